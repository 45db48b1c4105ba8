"""`dralloc fit`: how many more copies fit, as text, as values, and with assumed changes of the cluster."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from dralloc.cli.main import app

CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]},
}
REQUEST = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "gpu"},
    "spec": {"spec": {"devices": {"requests": [REQUEST]}}},
}
CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "wanted"},
    "spec": {"devices": {"requests": [REQUEST]}},
}


def node(name: str, gpus: int, cpu: int = 8, **labels: str) -> list[dict[str, Any]]:
    """A node with these devices."""
    amounts = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}
    published = {
        "driver": "gpu.example.com",
        "nodeName": name,
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"gpu-{number}"} for number in range(gpus)],
    }
    return [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        | {"status": {"allocatable": amounts}},
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": published},
    ]


def pod(name: str = "train", cpu: str = "1", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [container],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
            **spec,
        },
    }


CLUSTER = [CLASS, TEMPLATE, *node("n1", 4, pool="a"), *node("n2", 2, pool="a"), *node("n3", 3, cpu=2, pool="b")]


@pytest.fixture
def run(tmp_path: Path) -> Any:
    def call(model: Sequence[Any], *arguments: str, cluster: Sequence[Any] = CLUSTER) -> Result:
        for name, documents in (("cluster", cluster), ("model", model)):
            (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump_all(documents))
        files = [str(tmp_path / "model.yaml"), "-f", str(tmp_path / "cluster.yaml")]
        return CliRunner().invoke(app, ["fit", *files, *arguments])

    return call


def test_how_many_where_and_what_stops_it(run: Any) -> None:
    told = run([pod()], "--node-group", "pool")
    assert told.exit_code == 0
    assert told.stdout.splitlines() == [
        "pod default/train: 8 more fit",
        "",
        "pool   NODES   MORE                                    THEN",
        "a      2       6      ██████████████████████████████   2 nodes: devices are in use",
        "b      1       2      ██████████                       1 node: insufficient cpu",
        "",
        "The next one does not fit:",
        "  2 nodes: devices are in use",
        "  1 node: insufficient cpu",
        "",
        "Available, but of no use for this:",
        "DEVICES   NODES   AVAILABLE   BECAUSE",
        "1         1       -           insufficient cpu",
    ]


def test_nodes_without_copies_share_a_line(run: Any) -> None:
    told = run([pod(nodeSelector={"pool": "b"})])
    assert told.stdout.splitlines()[2:5] == [
        "NODE              MORE",
        "n3                2      ██████████████████████████████",
        "(2 other nodes)   0",
    ]
    told = run([pod(nodeSelector={"pool": "none"})])
    assert told.stdout.splitlines()[2:4] == ["NODE        MORE", "(3 nodes)   0"]


def test_values_for_programs(run: Any) -> None:
    values = json.loads(run([pod()], "-o", "json").stdout)
    assert values["count"] == 8
    assert values["groups"] == [
        {"node": "n1", "count": 4},
        {"node": "n2", "count": 2},
        {"node": "n3", "count": 2},
    ]
    assert values["stranded"] == [
        {
            "cause": "Node",
            "message": "insufficient cpu",
            "devices": ["gpu.example.com/n3/gpu-2"],
            "nodes": ["n3"],
            "free": {},
        }
    ]
    grouped = json.loads(run([pod()], "-o", "json", "--node-group", "pool").stdout)["groups"]
    assert grouped == [
        {"pool": "a", "count": 6, "nodes": {"n1": 4, "n2": 2}},
        {"pool": "b", "count": 2, "nodes": {"n3": 2}},
    ]


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (["--without-node", "n1"], 4),
        (["--without-node", "n1", "--without-node", "n2"], 2),
        (["--taint", "repair:NoSchedule@node/n1"], 4),
        (["--taint", "repair=yes:NoExecute@gpu.example.com/n1/gpu-0"], 7),
        (["--taint", "repair:NoSchedule@gpu.example.com/*/gpu-0"], 6),
        (["--taint", "repair:NoSchedule@gpu.example.com/n2/*"], 6),
        (["--taint", "repair:NoSchedule@gpu.example.com"], 0),
    ],
)
def test_assumed_changes(run: Any, options: list[str], count: int) -> None:
    told = run([pod()], "-o", "json", *options)
    assert (told.exit_code, json.loads(told.stdout)["count"]) == (0 if count else 1, count)


def test_added_nodes(run: Any, tmp_path: Path) -> None:
    pool = {"driver": "gpu.example.com", "slices": [{"devices": [{"name": "card-{i}", "repeat": 5}]}]}
    shape = tmp_path / "five.yaml"
    shape.write_text(
        yaml.safe_dump({"nodes": [{"capacity": {"cpu": "64", "memory": "1Ti", "pods": "9"}, "pools": [pool]}]})
    )
    told = run([pod()], "--add", f"{shape}=2", "-o", "json")
    assert json.loads(told.stdout)["count"] == 18
    alone = run([pod()], "--add", f"{shape}=2", "-o", "json", cluster=[CLASS, TEMPLATE])
    assert json.loads(alone.stdout)["count"] == 10


def test_claims_templates_and_workloads_are_models_too(run: Any) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "work"},
        "spec": {"parallelism": 3, "template": {"spec": pod()["spec"]}},
    }
    counts = [json.loads(run(model, "-o", "json").stdout)["count"] for model in ([CLAIM], [TEMPLATE], [job])]
    assert counts == [9, 9, 8]


def test_what_comes_with_the_pod_is_used(run: Any) -> None:
    named = pod() | {"metadata": {"name": "p"}}
    named["spec"] = {**named["spec"], "resourceClaims": [{"name": "gpu", "resourceClaimName": "wanted"}]}
    told = run([named, CLAIM], "-o", "json", cluster=[CLASS, *node("n1", 1)])
    assert json.loads(told.stdout)["count"] == 8


def test_the_limit_is_told(run: Any) -> None:
    told = run([pod()], "--max", "3")
    assert told.stdout.splitlines()[:2] == [
        "pod default/train: at least 3 more fit",
        "the count stopped at its limit; --max 30 counts further",
    ]


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ([CLASS], [], "expected one pod or one claim, found none"),
        ([pod("a"), pod("b")], [], "expected one pod or one claim, found 2"),
        ([pod()], ["--taint", "repair:NoSchedule"], "expected KEY[=VALUE]:EFFECT@node/NAME"),
        ([pod()], ["--taint", "repair:Never@node/n1"], "unknown effect Never"),
        ([pod()], ["--taint", "repair:NoSchedule@gpu.example.com/n1"], "expected DRIVER/POOL/DEVICE"),
        ([pod()], ["--add", "gpu"], "--add gpu: say how many nodes: gpu=1"),
        ([pod()], ["--add", "nonsense=1"], "--add nonsense=1: "),
    ],
)
def test_questions_that_make_no_sense(run: Any, model: list[Any], options: list[str], message: str) -> None:
    told = run(model, *options)
    assert (told.exit_code, message in told.stderr) == (2, True), told.stderr


def test_unknown_nodes(run: Any) -> None:
    for options in (["--without-node", "n4"], ["--taint", "repair:NoSchedule@node/n4"]):
        told = run([pod()], *options)
        assert (told.exit_code, "no node n4 in the files; known: n1" in told.stderr) == (1, True), told.stderr
