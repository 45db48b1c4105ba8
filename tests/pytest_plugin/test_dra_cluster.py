"""The methods of a cluster in tests, and their error messages."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dralloc import connect
from dralloc.kube.batch_v1 import Job
from dralloc.kube.core_v1 import Event, Node
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim, ResourceSlice
from dralloc.primitives.errors import BadRequest, Invalid, NotFound
from dralloc.pytest_plugin.cluster import BadCluster, BadManifest, DraCluster, WaitFailed, running_cluster
from dralloc.testing.builders import claim, request
from dralloc.testing.components import ComponentDied
from tests.support.workloads import existing, job, pod

MANIFEST = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: some-memory}
spec:
  devices:
    requests:
      - name: gpu
        exactly: {deviceClassName: gpu.example.com, capacity: {requests: {memory: 20Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: inference}
spec:
  resourceClaims: [{name: gpu, resourceClaimName: some-memory}]
  containers: [{name: app, image: app:1, resources: {claims: [{name: gpu}]}}]
"""
HUNGRY = MANIFEST.replace("some-memory", "too-much").replace("inference", "hungry").replace("20Gi", "100Gi")

CLUSTER_CPU_S_MAX = 0.3
# Where `scripts/install-system-tools` puts it.
DEBIAN_KUBECTL = Path(__file__).parents[2] / ".tools" / "kubectl-debian" / "usr" / "bin" / "kubectl"


@pytest.fixture(params=[False, True], ids=["real time", "virtual time"])
def cluster(request: pytest.FixtureRequest) -> Iterator[DraCluster]:
    with running_cluster(nodes={"gpu": 2}, virtual_time=request.param) as running:
        yield running


def test_a_pod_gets_its_device_and_runs(cluster: DraCluster) -> None:
    applied = cluster.apply(MANIFEST)
    assert [item.metadata.name for item in applied] == ["some-memory", "inference"]
    running = cluster.wait_until_running("inference")
    (device,) = cluster.devices_of("inference")
    assert (device.pool, str(device.consumed_capacity["memory"])) == (running.spec.node_name, "20Gi")
    assert list(cluster.claims_of("inference")) == ["gpu"]
    assert cluster.claim("some-memory").status.allocation is not None
    assert "pod default/inference" in cluster.explain("inference")


def test_a_pod_that_does_not_fit_says_why_and_what_would_help(cluster: DraCluster) -> None:
    cluster.apply(HUNGRY)
    assert cluster.wait_until_pending("hungry", "insufficient memory").startswith("0/2 nodes are available")
    assert "request 80Gi of memory instead of 100Gi" in cluster.explain("hungry")


def test_what_is_deleted_or_ends_gives_back_its_devices(cluster: DraCluster) -> None:
    cluster.apply(MANIFEST)
    cluster.wait_until_running("inference")
    cluster.end_pod("inference")
    cluster.wait_until(ResourceClaim, "some-memory", lambda stored: stored.status.allocation is None)
    cluster.delete(Pod, "inference")
    with pytest.raises(NotFound):
        cluster.pod("inference")


@pytest.mark.dra_cluster(virtual_time=True)
def test_the_pods_of_a_job_go_with_it_unless_they_are_to_stay(dra_cluster: DraCluster) -> None:
    for name in ("goes", "leaves"):
        dra_cluster.apply(job(name))

    def pods_of(name: str) -> tuple[Pod, ...]:
        return dra_cluster.client.list(Pod, labels=f"job-name={name}")

    dra_cluster.wait_for(lambda: pods_of("goes") and pods_of("leaves"))
    dra_cluster.delete(Job, "goes")
    dra_cluster.delete(Job, "leaves", propagation="Orphan")
    dra_cluster.wait_for(lambda: not pods_of("goes"))
    (left,) = pods_of("leaves")
    assert left.metadata.deletion_timestamp is None
    assert left.metadata.owner_references == ()


@pytest.mark.dra_cluster(nodes={})
def test_everything_that_describes_objects_can_be_applied(dra_cluster: DraCluster, tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_text(MANIFEST)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "more.yaml").write_text(HUNGRY)
    dra_cluster.apply(tmp_path / "file.yaml", str(tmp_path / "folder"))
    dra_cluster.apply(pod("by-document", {"gpu": existing("typed")}), claim("typed", request()))
    dra_cluster.apply('{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "by-json"}}')
    generated = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "many-"}, "spec": pod("x")["spec"]}
    (first,) = dra_cluster.apply(generated)
    assert first.metadata.name.startswith("many-")
    # Apply is forced: it changes fields of other managers.
    changed = pod("by-document", {"gpu": existing("typed")}, labels={"colour": "red"})
    dra_cluster.apply(changed)
    assert dra_cluster.pod("by-document").metadata.labels == {"colour": "red"}
    assert {item.metadata.name for item in dra_cluster.client.list(ResourceClaim)} == {
        "some-memory",
        "too-much",
        "typed",
    }


@pytest.mark.dra_cluster(nodes={})
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere.yaml", "nowhere.yaml: No such file or directory"),
        ("a: b\nc: d\n", "the text: document 1 is not a Kubernetes object: it has no kind"),
        ("kind: Pod\n  metadata: {\n", "the text, line 2, column"),
    ],
)
def test_what_cannot_be_read_says_where(dra_cluster: DraCluster, source: str, message: str) -> None:
    with pytest.raises(BadManifest, match=message):
        dra_cluster.apply(source)


@pytest.mark.dra_cluster(nodes={})
def test_what_the_server_refuses_is_named(dra_cluster: DraCluster) -> None:
    with pytest.raises(Invalid, match=r"spec\.devices\.requests") as refused:
        dra_cluster.apply(MANIFEST.replace("name: gpu\n", "name: no spaces please\n"))
    assert refused.value.__notes__ == ["The refused object is ResourceClaim some-memory."]


@pytest.mark.dra_cluster(nodes={})
def test_a_misspelt_field_is_refused(dra_cluster: DraCluster) -> None:
    with pytest.raises(BadRequest, match=r'unknown field "spec.devices.requests\[0\].exactly.capcity"'):
        dra_cluster.apply(MANIFEST.replace("capacity", "capcity"))
    with pytest.raises(BadRequest, match="capcity"):
        dra_cluster.apply(MANIFEST.replace("capacity", "capcity").replace("name: some-memory", "generateName: some-"))


@pytest.mark.dra_cluster(nodes={})
def test_older_versions_of_the_api_can_be_applied(dra_cluster: DraCluster) -> None:
    (applied,) = dra_cluster.apply(
        """
apiVersion: resource.k8s.io/v1beta1
kind: ResourceClaim
metadata: {name: older}
spec: {devices: {requests: [{name: gpu, deviceClassName: gpu.example.com}]}}
"""
    )
    assert applied.spec.devices.requests[0].exactly.device_class_name == "gpu.example.com"


def test_a_wait_follows_changes_and_times_out_with_the_state_of_the_cluster(cluster: DraCluster) -> None:
    asked = 0

    def is_there() -> Node:
        nonlocal asked
        asked += 1
        return cluster.client.get(Node, "never")

    with pytest.raises(WaitFailed) as failed:
        cluster.wait_for(is_there, timeout=0.2, what="a node called never is there")
    assert asked < 10, "it is asked when something changed, not over and over"
    cluster.apply(HUNGRY)
    cluster.wait_until_pending("hungry")
    cluster.wait_for(lambda: cluster.client.list(Event))
    with pytest.raises(WaitFailed) as failed:
        cluster.wait_until_running("hungry", timeout=0.2)
    first, _, picture = str(failed.value).partition("\n\n")
    assert first == "timed out after 0.2 s waiting until Pod default/hungry runs"
    for told in (
        "gpu-1   True    8",
        "default/hungry   Pending",
        "insufficient memory",
        "not allocated",
        "FailedScheduling",
    ):
        assert told in picture


async def break_down(cluster: DraCluster) -> None:
    """Make a component die soon after this call."""

    async def explode() -> None:
        raise ZeroDivisionError("out of order")

    cluster._cluster.components.start("scheduler of the test", explode)


def test_a_component_that_dies_fails_the_wait_and_not_the_end_again() -> None:
    with running_cluster(nodes={}) as cluster:
        cluster.run(break_down(cluster))
        with pytest.raises(ComponentDied, match="scheduler of the test died: ZeroDivisionError: out of order"):
            cluster.wait_until_running("nobody")


def test_a_component_that_dies_unseen_fails_the_end() -> None:
    def block() -> None:
        with running_cluster(nodes={}) as cluster:
            cluster.run(break_down(cluster))

    with pytest.raises(ComponentDied):
        block()


def test_virtual_time_passes_only_in_calls() -> None:
    ended = pod("job", node="gpu-0")
    ended["metadata"]["annotations"] = {"fake.dralloc.io/run-seconds": "3600"}
    started = time.monotonic()
    with running_cluster(nodes={"gpu": 1}, virtual_time=True) as cluster:
        cluster.apply(ended)
        cluster.wait_until_running("job")
        cluster.advance(3000)
        assert cluster.pod("job").status.phase == "Running"
        cluster.advance(700)
        assert cluster.pod("job").status.phase == "Succeeded"
    assert time.monotonic() - started < 3000


@pytest.mark.dra_cluster(nodes={})
def test_real_time_cannot_be_advanced(dra_cluster: DraCluster) -> None:
    with pytest.raises(BadCluster, match="virtual_time=True"):
        dra_cluster.advance(1)


@pytest.mark.dra_cluster(nodes={}, virtual_time=True)
def test_other_programs_need_real_time(dra_cluster: DraCluster) -> None:
    with pytest.raises(BadCluster, match="without virtual_time"):
        dra_cluster.kubeconfig()


@pytest.mark.slow
@pytest.mark.real
def test_kubectl_finds_the_cluster_by_its_kubeconfig(dra_cluster: DraCluster, tmp_path: Path) -> None:
    program = str(DEBIAN_KUBECTL) if DEBIAN_KUBECTL.exists() else shutil.which("kubectl")
    if program is None:
        pytest.skip("needs kubectl: scripts/install-system-tools installs it as root on Debian")
    kubectl = [program, "--kubeconfig", str(dra_cluster.kubeconfig()), "--cache-dir", str(tmp_path)]
    subprocess.run([*kubectl, "create", "-f", "-"], input=MANIFEST, text=True, check=True, timeout=60)
    dra_cluster.wait_until_running("inference")
    listed = subprocess.run([*kubectl, "get", "pods"], capture_output=True, text=True, check=True, timeout=60)
    assert listed.stdout.splitlines()[1].split()[:3] == ["inference", "1/1", "Running"]


def test_other_programs_use_the_kubeconfig(dra_cluster: DraCluster) -> None:
    path = dra_cluster.kubeconfig()
    assert dra_cluster.kubeconfig() == path
    with connect(path) as client:
        assert {node.metadata.name for node in client.list(Node)} == {"gpu-0", "nic-0"}
        client.create(pod("from-outside"))
    dra_cluster.wait_until_running("from-outside")


def test_coroutines_run_beside_the_cluster(cluster: DraCluster) -> None:
    async def count() -> int:
        slices = await cluster.async_client.list(ResourceSlice)
        return sum(len(item.spec.devices or ()) for item in slices)

    assert cluster.run(count()) == 16


@pytest.mark.dra_cluster(nodes={"gpu": 1}, feature_gates="DRAConsumableCapacity=false")
def test_features_can_be_off(dra_cluster: DraCluster) -> None:
    dra_cluster.apply(MANIFEST)
    (asked,) = dra_cluster.claim("some-memory").spec.devices.requests or ()
    assert asked.exactly is not None
    assert asked.exactly.capacity is None


@pytest.mark.dra_cluster(nodes={}, controllers=())
def test_controllers_can_be_left_out(dra_cluster: DraCluster) -> None:
    dra_cluster.apply(pod("p", {"gpu": {"resourceClaimTemplateName": "nobody-makes-it"}}))
    assert not dra_cluster.client.list(Event)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"nodes": {"gpus": 1}}, "no profile 'gpus'"),
        ({"nodes": 3}, "nodes must map profiles to counts, such as .*; got 3"),
        ({"nodes": {"gpu": "two"}}, "nodes must map profiles to counts"),
        ({"controllers": ["all"]}, "unknown controllers: all; available: claim"),
        ({"feature_gates": "DRAEverything=true"}, "DRAEverything"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadCluster, match=message), running_cluster(**settings):
        pass


def test_a_cluster_is_up_and_gone_again_quickly() -> None:
    """In processor time, because the machine may be busy. The imports were made by the tests above."""
    costs = []
    for _ in range(3):
        before = time.process_time()
        with running_cluster():
            costs.append(time.process_time() - before)
    assert min(costs) < CLUSTER_CPU_S_MAX
    assert not [thread for thread in threading.enumerate() if thread.name == "dralloc-loop"]
