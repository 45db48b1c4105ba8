"""Gangs in the scheduler: members wait for each other, are placed together or not at all, and a failure leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dralloc.client.transport import ClientRequest, ClientResponse
from dralloc.kube.batch_v1 import Job
from dralloc.kube.dralloc_v1 import EXTENSIONS_PATH
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.primitives.features import FeatureGates
from dralloc.testing.builders import allocation, claim, device, device_class, held, request, resource_slice
from dralloc.testing.virtual_time import run_virtual
from tests.support.scheduled_cluster import ScheduledCluster, gpus, in_cluster, node, our_pod, scheduled_cluster
from tests.support.scripted_transport import Loss, ScriptedTransport, failure
from tests.support.workloads import Document, job

GROUPS = "GenericWorkload=true"
MIN_COUNT = "dralloc.io/gang-min-count"


def group(name: str = "gang", min_count: int | None = 2, **spec: Any) -> Document:
    policy: Document = {"basic": {}} if min_count is None else {"gang": {"minCount": min_count}}
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": policy, **spec},
    }


def member(name: str, *claims: str, group: str = "gang", **more: Any) -> Document:
    document = our_pod(name, *claims, **more)
    document["spec"]["schedulingGroup"] = {"podGroupName": group}
    return document


async def nodes_of(cluster: ScheduledCluster) -> dict[str, str]:
    return {pod.metadata.name: pod.spec.node_name for pod in await cluster.client.list(Pod)}


async def condition(cluster: ScheduledCluster, name: str) -> str:
    conditions = (await cluster.client.get(Pod, name)).status.conditions
    return next((each.message for each in conditions if each.type == "PodScheduled"), "")


async def allocated(cluster: ScheduledCluster) -> list[str]:
    claims = await cluster.client.list(ResourceClaim)
    return sorted(each.metadata.name for each in claims if each.status.allocation is not None)


@in_cluster(GROUPS)
async def test_members_wait_for_their_group_and_for_each_other(cluster: ScheduledCluster) -> None:
    await cluster.create(node("node-a"), member("one"))
    await cluster.settle(20)
    assert await nodes_of(cluster) == {"one": ""}
    assert 'pod group "gang" to appear in scheduling queue' in await condition(cluster, "one")
    await cluster.create(group())
    await cluster.settle(20)
    assert await nodes_of(cluster) == {"one": ""}
    assert "waiting for minCount pods from a gang" in await condition(cluster, "one")
    await cluster.create(member("two"))
    await cluster.settle()
    assert await nodes_of(cluster) == {"one": "node-a", "two": "node-a"}
    stated = (await cluster.client.get(PodGroup, "gang")).status.conditions
    assert [(each.type, each.status, each.reason) for each in stated] == [
        ("PodGroupInitiallyScheduled", "True", "Scheduled")
    ]


@in_cluster(GROUPS)
async def test_a_member_whose_scheduling_gates_are_removed_completes_its_gang(cluster: ScheduledCluster) -> None:
    gated = member("gated")
    gated["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
    await cluster.create(node("node-a"), group(), member("ready"), gated)
    await cluster.settle(20)
    assert await nodes_of(cluster) == {"ready": "", "gated": ""}
    await cluster.client.patch(Pod, "gated", {"spec": {"schedulingGates": None}})
    await cluster.settle(20)
    assert await nodes_of(cluster) == {"ready": "node-a", "gated": "node-a"}


@in_cluster(GROUPS)
async def test_a_gang_waits_for_the_last_of_the_claims_that_its_members_need(cluster: ScheduledCluster) -> None:
    """It is not called unschedulable meanwhile, and a member that it may go without keeps it from nothing."""
    await cluster.create(node("node-a"), device_class(), gpus("node-a", 3), group(min_count=2))
    await cluster.create(*(member(f"pod-{number}", f"claim-{number}") for number in range(3)))
    await cluster.create(claim("claim-2", request()))
    await cluster.settle(20)
    assert await nodes_of(cluster) == dict.fromkeys(("pod-0", "pod-1", "pod-2"), "")
    assert (await cluster.client.get(PodGroup, "gang")).status.conditions == ()
    assert await condition(cluster, "pod-0") == "claim default/claim-0 does not exist"
    assert "waiting for the claims of 2 of its pods" in await condition(cluster, "pod-2")
    await cluster.create(claim("claim-0", request()))
    await cluster.settle(20)
    assert await nodes_of(cluster) == {"pod-0": "node-a", "pod-1": "", "pod-2": "node-a"}


@in_cluster(GROUPS)
async def test_a_gang_that_does_not_fit_gets_nothing(cluster: ScheduledCluster) -> None:
    names = ("one", "two", "three")
    await cluster.create(device_class(), node("node-a"), gpus("node-a", 2), group(min_count=3))
    await cluster.create(*(claim(name, request()) for name in names), *(member(name, name) for name in names))
    await cluster.settle(20)
    assert set((await nodes_of(cluster)).values()) == {""}
    assert await allocated(cluster) == []
    assert "minCount (3) cannot be satisfied: 0 scheduled, 3 remaining" in await condition(cluster, "one")
    assert (await condition(cluster, "one")).startswith("pod group is unschedulable, minCount (3)")
    assert "devices are in use" in await condition(cluster, "three")
    stated = (await cluster.client.get(PodGroup, "gang")).status.conditions
    assert [(each.status, each.reason) for each in stated] == [("False", "Unschedulable")]
    assert "at most 2 of 3" in stated[0].message
    # Another pod alone may have the devices, and the gang is placed when it fits.
    await cluster.create(claim("alone", request()), our_pod("alone", "alone"))
    await cluster.settle()
    assert (await nodes_of(cluster))["alone"] == "node-a"
    await cluster.create(node("node-b"), gpus("node-b", 2))
    await cluster.settle(30)
    assert "" not in (await nodes_of(cluster)).values()


@in_cluster(GROUPS)
async def test_members_get_other_devices_than_each_alone_would(cluster: ScheduledCluster) -> None:
    """The first member alone would take the device that only the second can use (kubernetes#138765)."""
    model = 'device.attributes["gpu.example.com"].model == "large"'
    devices = (device("gpu-0", attributes={"model": "large"}), device("gpu-1", attributes={"model": "small"}))
    await cluster.create(
        device_class(), node("node-a"), resource_slice("node-a", *devices, pool="p", node_name="node-a")
    )
    await cluster.create(claim("any", request()), claim("large", request(where=model)), group())
    await cluster.create(member("one", "any"), member("two", "large"))
    await cluster.settle()
    assert await nodes_of(cluster) == {"one": "node-a", "two": "node-a"}
    large = await cluster.client.get(ResourceClaim, "large")
    assert large.status.allocation is not None
    assert [each.device for each in large.status.allocation.devices.results] == ["gpu-0"]


@in_cluster(GROUPS)
async def test_extended_resources_of_members_are_part_of_the_search(cluster: ScheduledCluster) -> None:
    """The member with the extended resource alone would take the device that only the other can use."""
    model = 'device.attributes["gpu.example.com"].model == "large"'
    devices = (device("gpu-0", attributes={"model": "large"}), device("gpu-1", attributes={"model": "small"}))
    await cluster.create(device_class(extended="example.com/gpu"), node("node-a"), group())
    await cluster.create(resource_slice("node-a", *devices, pool="p", node_name="node-a"))
    one = member("one", requests={"example.com/gpu": "1"})
    one["spec"]["containers"][0]["resources"]["limits"] = {"example.com/gpu": "1"}
    await cluster.create(claim("large", request(where=model)), one, member("two", "large"))
    await cluster.settle()
    assert await nodes_of(cluster) == {"one": "node-a", "two": "node-a"}
    stated = (await cluster.client.get(Pod, "one")).status.extended_resource_claim_status
    assert stated is not None
    made = await cluster.client.get(ResourceClaim, stated.resource_claim_name)
    assert made.status.allocation is not None
    assert [each.device for each in made.status.allocation.devices.results] == ["gpu-1"]


@in_cluster(GROUPS)
async def test_members_share_a_claim_that_is_allocated_once(cluster: ScheduledCluster) -> None:
    shared = resource_slice("fabric", device("tpu"), pool="fabric", all_nodes=True)
    names = [f"pod-{number}" for number in range(20)]
    await cluster.create(device_class(), shared, *(node(f"node-{n}", pods="8") for n in range(3)))
    await cluster.create(claim("shared", request()), group(min_count=20))
    await cluster.create(*(member(name, "shared") for name in names))
    await cluster.settle()
    assert "" not in (await nodes_of(cluster)).values()
    assert await allocated(cluster) == ["shared"]


@in_cluster(GROUPS)
async def test_extra_members_are_placed_where_they_fit(cluster: ScheduledCluster) -> None:
    names = ("one", "two", "three")
    await cluster.create(device_class(), node("node-a"), gpus("node-a", 2), group(min_count=2))
    await cluster.create(*(claim(name, request()) for name in names), *(member(name, name) for name in names))
    await cluster.settle(20)
    assert sorted((await nodes_of(cluster)).values()) == ["", "node-a", "node-a"]
    await cluster.create(node("node-b"), gpus("node-b", 1))
    await cluster.settle(30)
    assert sorted((await nodes_of(cluster)).values()) == ["node-a", "node-a", "node-b"]


@in_cluster(GROUPS)
async def test_pods_of_a_basic_group_are_placed_one_by_one(cluster: ScheduledCluster) -> None:
    names = ("one", "two")
    await cluster.create(device_class(), node("node-a"), gpus("node-a", 1), group(min_count=None))
    await cluster.create(*(claim(name, request()) for name in names), *(member(name, name) for name in names))
    await cluster.settle()
    assert sorted((await nodes_of(cluster)).values()) == ["", "node-a"]


@in_cluster("GenericWorkload=true,TopologyAwareWorkloadScheduling=true")
async def test_all_members_are_in_one_topology_domain(cluster: ScheduledCluster) -> None:
    zones = {"node-a": "east", "node-b": "west", "node-c": "west"}
    await cluster.create(device_class(), *(node(name, labels={"zone": zone}) for name, zone in zones.items()))
    await cluster.create(*(gpus(name, 1) for name in zones))
    await cluster.create(group(schedulingConstraints={"topology": [{"key": "zone"}]}))
    await cluster.create(*(claim(name, request()) for name in ("one", "two")))
    await cluster.create(*(member(name, name) for name in ("one", "two")))
    await cluster.settle()
    assert sorted((await nodes_of(cluster)).values()) == ["node-b", "node-c"]


@in_cluster("")
async def test_pods_of_an_owner_ask_for_a_gang_with_an_annotation(cluster: ScheduledCluster) -> None:
    """Without PodGroups: the owner is the pods' controller, such as a Job."""
    await cluster.create(device_class(), node("node-a"), gpus("node-a", 1), job("job"))
    uid = (await cluster.client.get(Job, "job")).metadata.uid
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": uid, "controller": True}
    for name in ("one", "two"):
        document = our_pod(name, name)
        document["metadata"] |= {"annotations": {MIN_COUNT: "2"}, "ownerReferences": [owner]}
        await cluster.create(claim(name, request()), document)
    await cluster.settle(20)
    assert set((await nodes_of(cluster)).values()) == {""}
    assert await allocated(cluster) == []
    await cluster.create(node("node-b"), gpus("node-b", 1))
    await cluster.settle(30)
    assert sorted((await nodes_of(cluster)).values()) == ["node-a", "node-b"]


@in_cluster("DRAReservedForWorkloads=true")
async def test_pods_whose_claims_are_reserved_for_one_owner_are_a_gang(cluster: ScheduledCluster) -> None:
    reserved = {"apiGroup": "batch", "resource": "jobs", "name": "training", "uid": "uid-of-training"}
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}, "reservedFor": reserved}
    shared = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": spec}
    await cluster.create(device_class(), node("node-a", pods="2"), gpus("node-a", 1))
    for name in ("one", "two", "three"):
        document = our_pod(name, "c")
        document["metadata"]["annotations"] = {MIN_COUNT: "3"}
        await cluster.create(document)
    await cluster.create(shared)
    await cluster.settle(20)
    assert set((await nodes_of(cluster)).values()) == {""}
    assert await allocated(cluster) == []


NAMES = ("one", "two", "three")


class WriteScript:
    """Decides about the writes of the scheduler, numbered from 0: claims and bindings."""

    def __init__(self, decide: Callable[[int], Loss | ClientResponse], *, has_extensions: bool) -> None:
        self.number = 0
        self._decide = decide
        self._has_extensions = has_extensions

    def __call__(self, request: ClientRequest) -> Loss | ClientResponse:
        if request.path == EXTENSIONS_PATH and not self._has_extensions:
            return missing()
        is_claim = request.method in ("PATCH", "PUT") and "/resourceclaims/" in request.path
        if not is_claim and not request.path.endswith("/binding"):
            return Loss.NOTHING
        self.number += 1
        return self._decide(self.number - 1)


def refused() -> ClientResponse:
    return failure("Forbidden", 403)


def missing() -> ClientResponse:
    return failure("NotFound", 404)


# The writes for the gang below: four statuses, three bindings; without the server's extension four finalizers, too.
WRITES = 7
WRITES_WITHOUT_EXTENSIONS = 11


async def make_gang(cluster: ScheduledCluster) -> None:
    fabric = resource_slice("fabric", device("tpu"), pool="fabric", all_nodes=True)
    await cluster.create(device_class(), node("node-a"), gpus("node-a", 3), fabric, group(min_count=3))
    large = 'device.driver == "gpu.example.com"'
    await cluster.create(claim("shared", request(where=large)), *(claim(name, request()) for name in NAMES))
    await cluster.create(*(member(name, name, "shared") for name in NAMES))


@in_cluster(GROUPS)
async def test_a_claim_that_appears_with_devices_while_its_gang_waits_is_deallocated(cluster: ScheduledCluster) -> None:
    await cluster.create(device_class(), node("node-a"), gpus("node-a", 1), group(min_count=3), member("one", "one"))
    await cluster.settle(20)
    await cluster.create(claim("one", request()))
    uid = (await cluster.client.get(Pod, "one")).metadata.uid
    status = {
        "allocation": allocation(held("gpu-0", pool="node-a")),
        "reservedFor": [{"resource": "pods", "name": "one", "uid": uid}],
    }
    await cluster.client.patch(ResourceClaim, "one", {"status": status}, subresource="status")
    await cluster.settle(30)
    assert await allocated(cluster) == []


@pytest.mark.parametrize("fate", [Loss.REQUEST, Loss.ANSWER, "refused"])
@pytest.mark.parametrize(
    ("failing", "has_extensions"),
    [(write, True) for write in range(WRITES)] + [(write, False) for write in range(0, WRITES_WITHOUT_EXTENSIONS, 2)],
)
def test_a_write_that_fails_leaves_nothing_behind(failing: int, fate: Loss | str, *, has_extensions: bool) -> None:
    """Whichever write of the gang fails, in the end all members run, and only their claims hold devices."""

    async def main() -> None:
        outcome = refused() if isinstance(fate, str) else fate
        script = WriteScript(
            lambda number: outcome if number == failing else Loss.NOTHING, has_extensions=has_extensions
        )
        gates = FeatureGates.parse(GROUPS)
        async with scheduled_cluster(gates=gates, wrap=lambda inner: ScriptedTransport(inner, script)) as cluster:
            await make_gang(cluster)
            await cluster.settle(120)
            assert script.number > failing
            assert set((await nodes_of(cluster)).values()) == {"node-a"}
            assert await allocated(cluster) == sorted((*NAMES, "shared"))

    run_virtual(main())


def test_a_gang_whose_claim_cannot_be_written_is_undone() -> None:
    """While the writes of one claim are refused for good, no member has a node, and no other claim has devices."""

    async def main() -> None:
        is_refusing = True

        def script(request: ClientRequest) -> Loss | ClientResponse:
            is_write = request.method in ("PATCH", "PUT") and "/resourceclaims/two" in request.path
            return refused() if is_refusing and is_write else Loss.NOTHING

        gates = FeatureGates.parse(GROUPS)
        async with scheduled_cluster(gates=gates, wrap=lambda inner: ScriptedTransport(inner, script)) as cluster:
            await make_gang(cluster)
            for _ in range(5):
                await cluster.settle(7.3)
                assert set((await nodes_of(cluster)).values()) == {""}
            assert "the pod's gang was not placed" in await condition(cluster, "one")
            is_refusing = False
            await cluster.settle(60)
            assert set((await nodes_of(cluster)).values()) == {"node-a"}

    run_virtual(main())


@pytest.mark.parametrize("replacement", ["missing", "impossible"], ids=["waits for a claim", "does not fit"])
def test_a_claim_write_that_arrives_after_the_gang_was_undone_is_undone_as_well(replacement: str) -> None:
    """The write is answered with 503. When it takes effect, the gang waits, because another member was replaced."""

    async def main() -> None:
        late: list[ClientRequest] = []

        def script(request: ClientRequest) -> Loss | ClientResponse:
            if late or request.method != "PATCH" or not request.path.endswith("/resourceclaims/one/status"):
                return Loss.NOTHING
            late.append(request)
            return failure("ServiceUnavailable", 503)

        gates = FeatureGates.parse(GROUPS)
        async with scheduled_cluster(gates=gates, wrap=lambda inner: ScriptedTransport(inner, script)) as cluster:
            await make_gang(cluster)
            await cluster.settle(0.1)
            await cluster.remove_pod("three")
            await cluster.create(claim("impossible", request(where="false")), member("four", replacement))
            await cluster.settle(120)
            assert await allocated(cluster) == []
            assert (await cluster.network.send(late[0])).status == 200
            await cluster.settle(30)
            assert await allocated(cluster) == []

    run_virtual(main())


async def remove_gone_pods(cluster: ScheduledCluster, claims: Sequence[str]) -> None:
    """Removes pods that do not exist from `reservedFor`, and the allocation with the last, as the claims' controller does."""
    pods = {pod.metadata.uid for pod in await cluster.client.list(Pod)}
    for name in claims:
        reserved = (await cluster.client.get(ResourceClaim, name)).status.reserved_for
        left = [each for each in reserved if each.uid in pods]
        if len(left) < len(reserved):
            status: Document = {"reservedFor": left} if left else {"reservedFor": None, "allocation": None}
            await cluster.client.patch(ResourceClaim, name, {"status": status}, subresource="status")


@pytest.mark.parametrize(
    ("last", "has_extensions"),
    [(write, True) for write in range(WRITES + 1)] + [(write, False) for write in range(WRITES_WITHOUT_EXTENSIONS + 1)],
)
@pytest.mark.parametrize("fits", [True, False])
def test_a_crash_after_any_write_leaks_nothing(last: int, *, has_extensions: bool, fits: bool) -> None:
    """After the crash the gang is completed if it still fits, and otherwise holds nothing."""

    async def main() -> None:
        script = WriteScript(
            lambda number: Loss.NOTHING if number < last else Loss.REQUEST, has_extensions=has_extensions
        )
        gates = FeatureGates.parse(GROUPS)
        async with scheduled_cluster(gates=gates, wrap=lambda inner: ScriptedTransport(inner, script)) as cluster:
            await make_gang(cluster)
            await cluster.settle(1)
            await cluster.kill()
            assert script.number >= last
            has_nodes = any((await nodes_of(cluster)).values())
            if not fits and not has_nodes:
                await cluster.client.delete(Pod, "three")
            script._decide = lambda _: Loss.NOTHING
            await cluster.restart(GROUPS)
            await cluster.settle(20)
            await remove_gone_pods(cluster, ("shared", "three"))
            await cluster.settle(40)
            if fits or has_nodes:
                assert set((await nodes_of(cluster)).values()) == {"node-a"}
            else:
                assert set((await nodes_of(cluster)).values()) == {""}
                assert await allocated(cluster) == []

    run_virtual(main())


@in_cluster(GROUPS)
async def test_two_gangs_never_hold_half_each(cluster: ScheduledCluster) -> None:
    """Both need all devices: one runs, the other holds nothing."""
    await cluster.create(device_class(), node("node-a"), gpus("node-a", 4))
    for gang in ("red", "blue"):
        await cluster.create(group(gang, min_count=4))
    for number in range(4):
        for gang in ("red", "blue"):
            name = f"{gang}-{number}"
            await cluster.create(claim(name, request()), member(name, name, group=gang))
    await cluster.settle(30)
    placed = [name for name, at in (await nodes_of(cluster)).items() if at]
    assert len(placed) == 4
    assert len({name.split("-")[0] for name in placed}) == 1
    assert await allocated(cluster) == sorted(placed)


@pytest.mark.parametrize("was_scheduled", [False, True])
def test_a_group_with_too_few_members_keeps_devices_only_if_it_had_nodes(*, was_scheduled: bool) -> None:
    """A scheduler stops after it wrote the claim of a group; a member goes. Nothing may hold what the gang cannot use."""

    async def main() -> None:
        loses_bindings = not was_scheduled

        def script(request: ClientRequest) -> Loss:
            return Loss.REQUEST if loses_bindings and request.path.endswith("/binding") else Loss.NOTHING

        gates = FeatureGates.parse(f"{GROUPS},DRAWorkloadResourceClaims=true")
        async with scheduled_cluster(gates=gates, wrap=lambda inner: ScriptedTransport(inner, script)) as cluster:
            entry = {"name": "shared", "resourceClaimName": "shared"}
            await cluster.create(device_class(), node("node-a"), gpus("node-a", 1), claim("shared", request()))
            await cluster.create(group(resourceClaims=[entry]), *(member(name, "shared") for name in ("one", "two")))
            await cluster.settle(1)
            assert await allocated(cluster) == ["shared"]
            assert set((await nodes_of(cluster)).values()) == {"node-a" if was_scheduled else ""}
            await cluster.kill()
            loses_bindings = False
            for name in ("one", "two") if was_scheduled else ("two",):
                await cluster.client.delete(Pod, name)
            await cluster.create(member("three", "shared"))
            await cluster.client.patch(PodGroup, "gang", {"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}})
            await cluster.restart(f"{GROUPS},DRAWorkloadResourceClaims=true")
            await cluster.settle(30)
            assert await allocated(cluster) == (["shared"] if was_scheduled else [])

    run_virtual(main())


def test_groups_are_followed_once_the_server_has_them() -> None:
    """The scheduler was upgraded first: the server answers 404 for PodGroups when it starts, and not later."""

    async def main() -> None:
        is_served = False

        def script(request: ClientRequest) -> Loss | ClientResponse:
            is_about_groups = request.method == "GET" and request.path.endswith("/podgroups")
            return missing() if is_about_groups and not is_served else Loss.NOTHING

        gates = FeatureGates.parse(GROUPS)
        async with scheduled_cluster(gates=gates, wrap=lambda inner: ScriptedTransport(inner, script)) as cluster:
            await cluster.create(node("node-a"), group(), member("one"), member("two"))
            await cluster.settle(20)
            assert set((await nodes_of(cluster)).values()) == {""}
            is_served = True
            await cluster.settle(60)
            assert set((await nodes_of(cluster)).values()) == {"node-a"}

    run_virtual(main())
