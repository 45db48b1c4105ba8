"""`dralloc defrag`: the plan as text and values, from files; applied to a running cluster, step by step."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from dralloc import connect
from dralloc.cli.main import app
from dralloc.cli.object_documents import as_manifest
from dralloc.client.blocking_client import Client
from dralloc.kube.codec import encode
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceTaintRule
from dralloc.testing.builders import request
from tests.answers.test_defrag import TWO_HALVES, cluster, wanting
from tests.support.cluster_process import ClusterProcess, cluster_process
from tests.support.workloads import claim_template, pod, template

NEW = wanting("new", 1, 4)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A cluster with a half of two devices in use, where a pod waits for a whole one."""
    items = []
    for kind, found in cluster(*TWO_HALVES, *NEW).objects.items():
        group = "v1" if kind.__name__ in ("Pod", "Node") else "resource.k8s.io/v1"
        for obj in found.values():
            document = json.loads(as_manifest(obj, "v1") if group != "v1" else encode(obj))
            items.append({**document, "apiVersion": group, "kind": kind.__name__})
    (tmp_path / "cluster.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["defrag", *arguments])


def test_a_plan_for_people(files: Path) -> None:
    told = run("--for", "new", "-f", str(files / "cluster.json"))
    assert told.exit_code == 0, told.output
    lines = told.stdout.splitlines()
    assert lines[0] == "1 move would make room for 1 pod"
    assert lines[2].split() == ["STEP", "POD", "FROM", "TO", "FREES", "GETS", "HELD", "MEANWHILE"]
    _, moved, start, end, frees, gets, *held = lines[3].split()
    assert (moved, {start, end}, frees, gets) in (
        ("default/a", {"n1", "n2"}, "gpu-0", "gpu-0"),
        ("default/b", {"n1", "n2"}, "gpu-0", "gpu-0"),
    )
    assert held == ["node", start]
    assert lines[-1] == f"then default/new fits on {start}"


def test_a_plan_for_programs(files: Path) -> None:
    told = json.loads(run("--for", "default/new", "-f", str(files / "cluster.json"), "-o", "json").stdout)
    [move] = told["moves"]
    assert told["placed"] == [{"pod": "default/new", "node": move["from"]}]
    assert (told["isFewest"], told["notMoved"], move["held"]["nodes"]) == (True, [], [move["from"]])


def test_whole_devices(files: Path) -> None:
    told = run("-f", str(files / "cluster.json"))
    assert told.stdout.splitlines()[0] == "1 move would free 1 whole device"


def test_no_plan_says_why_and_who_stays(files: Path) -> None:
    told = run("--for", "new", "--moves-max", "0", "-f", str(files / "cluster.json"))
    assert told.exit_code == 1
    assert "no plan of at most 0 moves makes room" in told.stdout
    assert "insufficient capacity" in told.stdout or "0/2 nodes are available" in told.stdout
    refused = run("--apply", "-f", str(files / "cluster.json"))
    assert (refused.exit_code, "cannot be combined with -f" in refused.output) == (2, True)


# --- A running cluster ----------------------------------------------------------------------------------------------------


@pytest.fixture
def running() -> Iterator[ClusterProcess]:
    with cluster_process("--ephemeral", "--nodes", "gpu=2") as found:
        yield found


def job(name: str) -> dict[str, Any]:
    made = pod(name, {"gpu": template("half")}, requests={"cpu": "20"})
    inner = {"metadata": {"labels": {"job": name}}, "spec": {**made["spec"], "restartPolicy": "Never"}}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": inner}}


def wait(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until, "it should have happened by now"
        time.sleep(0.1)


def places(client: Client) -> dict[str, str]:
    return {each.metadata.name: each.spec.node_name for each in client.list(Pod) if not each.is_terminating}


@pytest.mark.slow
def test_moves_are_made_and_the_waiting_pod_gets_its_place(running: ClusterProcess) -> None:
    with connect(running.kubeconfig) as client:
        for name, memory in (("half", "40Gi"), ("whole", "80Gi")):
            wanted = request("gpus", device_class="gpu.example.com", count=8, capacity={"memory": memory})
            client.create(claim_template(name, wanted))
        for name in ("a", "b"):
            client.create(job(name))
        wait(lambda: len(set(places(client).values()) - {""}) == 2)
        before = places(client)
        client.create(pod("big", {"gpu": template("whole")}, requests={"cpu": "1"}))
        found = run("--for", "big", "--apply", "--timeout", "60", "--kubeconfig", str(running.kubeconfig))
        assert found.exit_code == 0, found.output
        assert "done: 1 pod moved" in found.output
        after = places(client)
        gone = before.keys() - after.keys()
        assert len(gone) == 1, "nothing else moved"
        assert after["big"] == before[gone.pop()], "the pod has the place that the move made"
        assert not any(taint.key == "dralloc.io/defrag" for node in client.list(Node) for taint in node.spec.taints)
        assert not client.list(DeviceTaintRule)
