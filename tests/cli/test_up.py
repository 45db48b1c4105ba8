"""`dralloc up` as a process: it is ready soon, keeps what it has, ends when told, and says what to do where it cannot start."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from dralloc import connect
from dralloc.cli.main import app
from dralloc.client.blocking_client import Client
from dralloc.kube.coordination_v1 import Lease
from dralloc.kube.core_v1 import Node
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice
from dralloc.testing.builders import request
from tests.support.cluster_process import cluster_process, start_cluster
from tests.support.etcd_server import EtcdServer
from tests.support.workloads import claim_template, pod, template

pytestmark = pytest.mark.slow

DEADLINE_S = 60
ENDING = "\nshutting down: closing watches, finishing requests\n"
FEW = ("--nodes", "gpu=1,nic=1")

TEMPLATE = claim_template("share", request("gpu", device_class="gpu.example.com", capacity={"memory": "20Gi"}))


def run_pod(client: Client, name: str) -> Pod:
    """A pod with a share of a card that names no scheduler, once it runs."""
    client.create(pod(name, {"gpu": template("share")}))
    return until_running(client, name)


def until_running(client: Client, name: str) -> Pod:
    deadline = time.monotonic() + DEADLINE_S
    for event in client.watch(Pod, fields=f"metadata.name={name}"):
        if event.object.status.phase == "Running":
            return event.object
        assert time.monotonic() < deadline, event.object
    raise AssertionError("a watch has no end")


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """How a process ended by itself, and what it said."""
    said, _ = process.communicate(timeout=DEADLINE_S)
    return process.returncode, said


# --- Being there --------------------------------------------------------------------------------------------------


def test_the_node_of_the_tutorial_has_what_its_manifest_states(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
    manifest = tmp_path / "my-devices.yaml"
    manifest.write_text(page.partition("```yaml file=my-devices.yaml\n")[2].partition("```")[0])
    stated = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    with cluster_process("--ephemeral", *FEW) as cluster, connect(cluster.kubeconfig) as client:
        command = [
            sys.executable,
            "-m",
            "dralloc",
            "apply",
            "-f",
            str(manifest),
            "--kubeconfig",
            str(cluster.kubeconfig),
        ]
        applied = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
        assert (applied.stdout.splitlines()[0], applied.stderr) == ("node/lab created", "")
        for event in client.watch(Node, fields="metadata.name=lab"):
            status = event.object.status
            if status.conditions:
                break
        assert [(each.type, each.status) for each in status.conditions] == [("Ready", "True")]
        for amounts in (status.capacity, status.allocatable):
            assert {name: str(amount) for name, amount in amounts.items()} == stated


def test_everything_is_there_and_goes_when_told() -> None:
    with cluster_process("--ephemeral") as cluster:
        used_s = cpu_seconds(cluster.process.pid)
        directory = cluster.kubeconfig.parent
        assert f"export KUBECONFIG={cluster.kubeconfig}" in cluster.said
        example = Path(shlex.split(cluster.said.partition("dralloc apply -f ")[2].partition("\n")[0])[0])
        assert (example.is_absolute(), example.is_dir()) == (True, True)
        with urlopen(f"{cluster.url}/ui/", timeout=DEADLINE_S) as page:
            assert page.status == 200
        with connect(cluster.kubeconfig) as client:
            names = sorted(node.metadata.name for node in client.list(Node))
            assert names == [f"{profile}-{number}" for profile in ("gpu", "mig", "nic") for number in range(4)]
            classes = [item.metadata.name for item in client.list(DeviceClass)]
            assert classes == ["gpu.example.com", "mig.example.com", "nic.example.com"]
            client.create(TEMPLATE)
            assert run_pod(client, "p").spec.node_name.startswith("gpu-")
            assert shown_of_components(cluster.url) == (1, 1)
            cluster.process.send_signal(signal.SIGINT)
            assert ended(cluster.process) == (0, ENDING)
        assert not directory.exists()
        # The wall clock says little on a machine that does other things, too; and some take thrice as long for everything.
        assert used_s < 5.0, "it does little before it is ready"


def shown_of_components(url: str) -> tuple[int, int]:
    """How many pods were scheduled and how many claims created, as the server's metrics say. They have idle devices, too."""
    with urlopen(f"{url}/metrics", timeout=DEADLINE_S) as answer:
        values = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines())
    with urlopen(f"{url}/dralloc/v1/fragmentation", timeout=DEADLINE_S) as answer:
        idle = json.load(answer)["samples"][-1]["drivers"]["gpu.example.com"]["idle"]
    assert float(values['dralloc_idle_devices{driver="gpu.example.com"}']) == idle
    return (
        int(values['scheduler_schedule_attempts_total{result="scheduled",profile="default-scheduler"}']),
        int(values['resourceclaim_controller_create_total{prioritized_list="false"}']),
    )


def test_with_tls_only_users_with_a_token_are_served(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("secret,ann,1\n")
    options = ("--ephemeral", *FEW, "--tls", "--token-file", str(tokens))
    with cluster_process(*options) as cluster:
        assert cluster.url.startswith("https://")
        with connect(cluster.kubeconfig) as client:
            assert {node.metadata.name for node in client.list(Node)} == {"gpu-0", "nic-0"}
        untrusting = ssl._create_unverified_context()
        with pytest.raises(HTTPError, match="401"):
            urlopen(f"{cluster.url}/api/v1/nodes", context=untrusting, timeout=10)
        as_ann = Request(f"{cluster.url}/api/v1/nodes", headers={"authorization": "Bearer secret"})
        with pytest.raises(HTTPError, match="403"):
            urlopen(as_ann, context=untrusting, timeout=10)


def test_many_nodes_are_not_waited_for() -> None:
    with cluster_process("--ephemeral", "--nodes", "nic=300") as cluster, connect(cluster.kubeconfig) as client:
        assert cluster.process.stdout is not None
        line = cluster.process.stdout.readline()
        assert line.startswith("all 300 simulated nodes are ready, after ")
        assert len(client.list(Node)) == 300


def cpu_seconds(pid: int) -> float:
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def test_features_are_those_of_all_components() -> None:
    gates = ("--feature-gates", "DRAConsumableCapacity=false", "--one-process")
    with cluster_process("--ephemeral", *FEW, *gates) as cluster, connect(cluster.kubeconfig) as client:
        devices = [device for slice_ in client.list(ResourceSlice) for device in slice_.spec.devices or ()]
        assert devices
        client.create(claim_template("share", request("gpu", device_class="gpu.example.com")))
        run_pod(client, "p")
        assert shown_of_components(cluster.url) == (1, 1)
        assert not any(device.allow_multiple_allocations for device in devices)
        cluster.process.terminate()
        assert ended(cluster.process) == (0, ENDING)


# --- Staying ------------------------------------------------------------------------------------------------------


def test_killed_and_started_again_it_goes_on_with_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    wanted = ("--kubeconfig", str(tmp_path / "somewhere" / "config"))
    with cluster_process(*FEW, *wanted) as cluster, connect(tmp_path / "somewhere" / "config") as client:
        client.create(TEMPLATE)
        before = run_pod(client, "before")
        client.create(pod("waiting", {"gpu": template("missing")}))
        nodes, slices = uids(client.list(Node)), uids(client.list(ResourceSlice))
        cluster.process.kill()
        cluster.process.wait()
    # The nodes are those of last time.
    with cluster_process() as cluster, connect(tmp_path / "dralloc" / "kubeconfig") as client:
        assert (uids(client.list(Node)), uids(client.list(ResourceSlice))) == (nodes, slices)
        after = client.get(Pod, "before")
        assert (after.metadata.uid, after.status.phase) == (before.metadata.uid, "Running")
        client.create({**TEMPLATE, "metadata": {"name": "missing", "namespace": "default"}})
        until_running(client, "waiting")
        assert len(client.list(ResourceClaim)) == 2
    with cluster_process("--nodes", "gpu=1") as cluster, connect(cluster.kubeconfig) as client:
        assert "deleted simulated nodes that are no longer requested, with their pods: nic-0\n" in cluster.said
        assert [node.metadata.name for node in client.list(Node)] == ["gpu-0"]
        assert client.get(Pod, "before").status.phase == "Running"


def test_none_is_a_number_of_nodes_that_is_kept_too(tmp_path: Path) -> None:
    place = ("--data-dir", str(tmp_path))
    for options in (("--no-nodes",), ()):
        with cluster_process(*place, *options) as cluster, connect(cluster.kubeconfig) as client:
            assert "nodes       none\n" in cluster.said
            assert not client.list(Node)


def uids(items: Iterable[ApiObject]) -> dict[str, str]:
    return {item.metadata.name: item.metadata.uid for item in items}


def test_several_serve_what_is_in_one_etcd_and_one_is_at_work(tmp_path: Path) -> None:
    with EtcdServer(tmp_path / "etcd") as etcd:
        options = ("--store", etcd.url(), *FEW)
        here, there = (("--data-dir", str(tmp_path / name), *options) for name in ("here", "there"))
        with (
            cluster_process(*here) as first,
            cluster_process(*there) as second,
            connect(second.kubeconfig) as client,
        ):
            client.create(TEMPLATE)
            run_pod(client, "p")
            leases = {
                each.metadata.name: each.spec.holder_identity for each in client.list(Lease, namespace="kube-system")
            }
            parts = ("controllers", "fake-nodes", "manifest-nodes", "scheduler")
            assert sorted(leases) == [f"dralloc-{part}" for part in parts]
            assert len(set(leases.values())) == 1
            # A process that ends hands over.
            first.process.send_signal(signal.SIGINT)
            assert ended(first.process) == (0, ENDING)
            run_pod(client, "q")
            assert client.get(Pod, "p").status.phase == "Running"


def test_told_to_end_in_the_middle_of_its_start_it_leaves_nothing_that_hinders_the_next(tmp_path: Path) -> None:
    for phase in ("admin.token", "kubeconfig"):
        with start_cluster("--data-dir", str(tmp_path), "--nodes", "gpu=250") as process:
            _until_there(tmp_path / phase, process)
            process.send_signal(signal.SIGINT)
            code, said = ended(process)
            # It may have been ready before we saw that it began.
            assert (code, said == "" or said.endswith(ENDING)) == (0, True), said
            (tmp_path / phase).unlink()
    with cluster_process("--data-dir", str(tmp_path), *FEW) as cluster:
        assert cluster.kubeconfig.exists()


def _until_there(file: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not file.exists():
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.005)
        assert time.monotonic() < deadline


# --- Not being able to --------------------------------------------------------------------------------------------


def refused(*options: str) -> str:
    command = [sys.executable, "-m", "dralloc", "up", *options]
    process = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (process.returncode, process.stdout) == (2, "")
    return process.stderr


def test_a_second_one_in_the_same_place_is_told_what_to_do(tmp_path: Path) -> None:
    with cluster_process("--data-dir", str(tmp_path), "--no-nodes") as cluster:
        before = cluster.kubeconfig.read_text()
        said = refused("--data-dir", str(tmp_path), "--port", "0")
        assert f"{tmp_path} is in use" in said
        assert f"whose kubeconfig is {cluster.kubeconfig}" in said
        assert "--ephemeral --port 0" in said
        assert cluster.kubeconfig.read_text() == before


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        said = refused("--ephemeral", "--port", str(port))
    assert said == (
        f"dralloc: port {port} is in use by another program; choose another one with --port, or 0 for a free port\n"
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--nodes", "gpu"), "--nodes: 'gpu' is not PROFILE=COUNT"),
        (("--nodes", "gpu=0"), "--nodes: 'gpu=0' is not PROFILE=COUNT"),
        (("--nodes", "gpu=2,gpu=3"), "--nodes: gpu is given twice"),
        (("--nodes", "quantum=2"), "--nodes: no profile 'quantum'"),
        (("--nodes", "gpu=1", "--no-nodes"), "--no-nodes exclude each other"),
        (("--feature-gates", "DRAMagic=true"), "--feature-gates: .*DRAMagic"),
        (("--store", "floppy://a"), "unknown store 'floppy'"),
        (("--ephemeral", "--store", "memory://"), "--ephemeral cannot be combined"),
        (("--bind", "0.0.0.0"), "--bind 0.0.0.0 lets other machines in.*add --tls.*--token-file"),
        (("--bind", "192.0.2.1"), "add --tls"),
        (("--token-file", "/dev/null"), "--token-file needs --tls"),
        (("--ephemeral", "--tls", "--token-file", "/nowhere"), "/nowhere.*No such file"),
        (
            ("--data-dir", "/dev/null/x"),
            "cannot start from /dev/null/x: Not a directory .*; choose another path with --data-dir",
        ),
        (
            ("--ephemeral", "--kubeconfig", "/dev"),
            "cannot write the kubeconfig /dev: it is not a file; choose another path with --kubeconfig",
        ),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    tmp_path: Path, options: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = () if "--data-dir" in options or "--ephemeral" in options else ("--data-dir", str(tmp_path))
    with pytest.raises(SystemExit) as ending, keeping_signal_handlers():
        app(["up", "--port", "0", *place, *options], standalone_mode=False)
    said = capsys.readouterr()
    assert (ending.value.code, said.out) == (2, "")
    assert re.search(says, said.err), said.err
    assert said.err.count("\n") == 1


@contextmanager
def keeping_signal_handlers() -> Iterator[None]:
    """The command takes signals for itself; here they are pytest's."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
