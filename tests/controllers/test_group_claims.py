"""Claims of PodGroups from the creation of the group to its end, against a real server in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from dralloc.kube.core_v1 import Event
from dralloc.kube.pod_claims import CLAIM_FINALIZER, POD_CLAIM_NAME, group_reference, pod_reference
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.primitives.features import FeatureGates
from dralloc.testing.builders import allocation, claim, held, request
from dralloc.testing.virtual_time import run_virtual
from tests.support.cluster import cluster_on
from tests.support.controlled_cluster import ControlledCluster, controlled_cluster
from tests.support.workloads import claim_template, existing, pod, pod_group, template

Scenario = Callable[[ControlledCluster], Awaitable[None]]

ONLY = ("claim-templates", "claim-lifecycle", "pod-group-protection")
GATES = FeatureGates.parse("GenericWorkload=true,DRAWorkloadResourceClaims=true")
SHARED = {"shared": template("t")}


def play(scenario: Scenario, gates: FeatureGates = GATES) -> None:
    async def main() -> None:
        async with controlled_cluster(only=ONLY, gates=gates) as cluster:
            await scenario(cluster)

    run_virtual(main())


def play_with(scenario: Scenario, *, server: str, controllers: str) -> None:
    """The server has other gates than the controllers."""

    def kind(transport: object) -> ControlledCluster:
        return ControlledCluster(transport, only=ONLY, gates=FeatureGates.parse(controllers))  # type: ignore[arg-type]

    async def main() -> None:
        async with cluster_on(kind, gates=FeatureGates.parse(server)) as cluster:
            cluster.start()
            await scenario(cluster)

    run_virtual(main())


async def group_named(cluster: ControlledCluster, name: str = "g") -> PodGroup:
    return await cluster.client.get(PodGroup, name)


async def claim_of_group(cluster: ControlledCluster, entry: str = "shared", group: str = "g") -> ResourceClaim:
    statuses = (await group_named(cluster, group)).status.resource_claim_statuses
    (name,) = [status.resource_claim_name for status in statuses if status.name == entry]
    assert name is not None
    return await cluster.claim(name)


async def events_about(cluster: ControlledCluster, name: str) -> list[tuple[str, str, str]]:
    events = await cluster.client.list(Event, fields=f"involvedObject.name={name}")
    return [(event.involved_object.kind, event.reason, event.message) for event in events]


async def allocate_for_group(cluster: ControlledCluster, name: str, group: str = "g") -> None:
    await cluster.protect(name)
    await cluster.allocate(name, [group_reference(await group_named(cluster, group))])


def test_a_claim_is_created_with_the_group_and_recorded_for_each_member() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.create(claim_template("t", request(), labels={"a": "b"}), pod_group("g", SHARED))
        await cluster.settle()
        made = await claim_of_group(cluster)
        assert made.metadata.name.startswith("g-shared-")
        assert made.metadata.labels == {"a": "b"}
        assert made.metadata.annotations == {POD_CLAIM_NAME: "shared"}
        (owner,) = made.metadata.owner_references
        group = await group_named(cluster)
        assert (owner.api_version, owner.kind, owner.name) == ("scheduling.k8s.io/v1beta1", "PodGroup", "g")
        assert (owner.uid, owner.controller, owner.block_owner_deletion) == (group.metadata.uid, True, None)
        await cluster.create(*(pod(f"p{n}", {**SHARED, "own": template("t")}, group="g") for n in range(3)))
        await cluster.settle()
        for n in range(3):
            assert (await cluster.claim_of(f"p{n}", "shared")).metadata.name == made.metadata.name
            assert (await cluster.claim_of(f"p{n}", "own")).metadata.name.startswith(f"p{n}-own-")
        assert len(await cluster.claims()) == 4
        assert 'owner_api_group="scheduling.k8s.io",owner_api_kind="PodGroup"' in cluster.metrics

    play(scenario)


def test_members_that_exist_before_the_group_wait_for_it() -> None:
    """Without the group nobody knows which claims are the pod's own."""

    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.create(claim_template("t", request()))
        await cluster.create(pod("p", {**SHARED, "own": template("t")}, group="g"))
        await cluster.settle(120)
        assert await cluster.claims() == ()
        assert await events_about(cluster, "p") == []
        await cluster.create(pod_group("g", SHARED))
        await cluster.settle()
        assert (await cluster.claim_of("p", "shared")).metadata.name.startswith("g-shared-")
        assert (await cluster.claim_of("p", "own")).metadata.name.startswith("p-own-")

    play(scenario)


@pytest.mark.parametrize(
    "entry",
    [{"shared": template("other")}, {"else": template("t")}, {"shared": existing("t")}],
    ids=["another template", "another name", "another source"],
)
def test_an_entry_that_differs_from_the_groups_is_the_pods_own(entry: dict[str, dict[str, str]]) -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.create(claim_template("t", request()), claim_template("other", request()))
        await cluster.create(pod_group("g", SHARED), pod("p", entry, group="g"))
        await cluster.settle()
        (name,) = entry
        if "resourceClaimName" not in entry[name]:
            assert (await cluster.claim_of("p", name)).metadata.owner_references[0].kind == "Pod"

    play(scenario)


def test_a_deleted_claim_is_replaced_and_the_other_stays_recorded() -> None:
    """Both entries are written together, so that none is dropped."""

    async def scenario(cluster: ControlledCluster) -> None:
        claims = {"one": template("t"), "two": template("t")}
        await cluster.create(claim_template("t", request()), pod_group("g", claims), pod("p", claims, group="g"))
        await cluster.settle()
        before = {entry: (await claim_of_group(cluster, entry)).metadata.name for entry in claims}
        await cluster.client.delete(ResourceClaim, before["one"])
        await cluster.settle()
        after = {entry: (await claim_of_group(cluster, entry)).metadata.name for entry in claims}
        assert after["two"] == before["two"]
        assert after["one"] != before["one"]
        assert (await cluster.claim_of("p", "one")).metadata.name == after["one"]
        revision = (await group_named(cluster)).metadata.resource_version
        await cluster.settle(300)
        assert (await group_named(cluster)).metadata.resource_version == revision

    play(scenario)


def test_a_missing_template_is_reported_for_the_group() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.create(pod_group("g", SHARED))
        await cluster.settle(300)
        message = 'PodGroupResourceClaim shared: resource claim template "t" not found'
        assert await events_about(cluster, "g") == [("PodGroup", "FailedResourceClaimCreation", message)]
        await cluster.create(claim_template("t", request()))
        await cluster.settle()
        assert await claim_of_group(cluster)

    play(scenario)


def test_a_claim_without_a_record_is_found_again() -> None:
    """The controller died between the creation and the record."""

    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.create(claim_template("t", request()), pod_group("g", SHARED))
        await cluster.settle()
        made = await claim_of_group(cluster)
        await cluster.kill()
        await cluster.client.patch(PodGroup, "g", {"status": {"resourceClaimStatuses": None}}, subresource="status")
        cluster.start()
        await cluster.settle()
        assert (await claim_of_group(cluster)).metadata.name == made.metadata.name
        assert len(await cluster.claims()) == 1

    play(scenario)


def test_a_bound_member_reserves_for_the_group_once() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.create(claim_template("t", request()), pod_group("g", {**SHARED, "ready": existing("c")}))
        await cluster.create(claim("c", request()))
        await cluster.settle()
        entries = {**SHARED, "ready": existing("c"), "own": template("t")}
        await cluster.create(*(pod(f"p{n}", entries, group="g", node="node-a") for n in range(2)))
        await cluster.settle()
        name = (await claim_of_group(cluster)).metadata.name
        own = (await cluster.claim_of("p0", "own")).metadata.name
        for n, each in enumerate((name, "c", own)):
            await cluster.allocate(each, [], allocation(held(f"gpu-{n}")))
        await cluster.settle(60)
        reference = group_reference(await group_named(cluster))
        assert (await cluster.claim(name)).status.reserved_for == (reference,)
        assert (await cluster.claim("c")).status.reserved_for == (reference,)
        assert (await cluster.claim(own)).status.reserved_for == (pod_reference(await cluster.pod("p0")),)

    play(scenario)


def test_the_groups_reservation_lasts_as_long_as_the_group() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.create(claim_template("t", request()), pod_group("g", SHARED))
        await cluster.settle()
        name = (await claim_of_group(cluster)).metadata.name
        await allocate_for_group(cluster, name)
        reference = group_reference(await group_named(cluster))
        await cluster.create(*(pod(f"p{n}", SHARED, group="g", node="node-a") for n in range(2)))
        await cluster.settle(60)
        await cluster.end_pod("p0")
        await cluster.remove_pod("p1")
        await cluster.settle(600)
        assert (await cluster.claim(name)).status.reserved_for == (reference,)
        await cluster.client.delete(PodGroup, "g")
        await cluster.settle()
        assert not await cluster.exists(PodGroup, "g")
        assert not await cluster.exists(ResourceClaim, name)

    play(scenario)


def test_an_existing_claim_is_deallocated_when_the_group_is_gone() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.create(claim("c", request()), pod_group("g", {"shared": existing("c")}))
        await allocate_for_group(cluster, "c")
        await cluster.settle(300)
        assert (await cluster.claim("c")).status.allocation is not None
        await cluster.client.delete(PodGroup, "g")
        await cluster.settle()
        released = await cluster.claim("c")
        assert released.status.reserved_for == ()
        assert released.status.allocation is None
        assert CLAIM_FINALIZER not in released.metadata.finalizers

    play(scenario)


def test_a_new_group_of_the_same_name_does_not_keep_the_old_reservation() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.create(claim("c", request()), pod_group("g", {"shared": existing("c")}))
        await allocate_for_group(cluster, "c")
        await cluster.kill()
        await cluster.client.patch(PodGroup, "g", {"metadata": {"finalizers": None}})
        await cluster.client.delete(PodGroup, "g")
        await cluster.create(pod_group("g", {"shared": existing("c")}))
        cluster.start()
        await cluster.settle()
        assert (await cluster.claim("c")).status.reserved_for == ()

    play(scenario)


def test_a_deleted_group_waits_for_its_pods() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.create(pod_group("g"), *(pod(f"p{n}", group="g") for n in range(3)), pod("q", group="other"))
        await cluster.client.delete(PodGroup, "g")
        await cluster.settle()
        assert await cluster.exists(PodGroup, "g")
        assert [each.is_terminating for each in await cluster.client.list(Pod)] == [False] * 4
        await cluster.end_pod("p0")
        await cluster.end_pod("p1", phase="Failed")
        await cluster.settle()
        assert await cluster.exists(PodGroup, "g")
        await cluster.remove_pod("p2")
        await cluster.settle()
        assert not await cluster.exists(PodGroup, "g")

    play(scenario)


def test_without_the_gate_for_claims_members_have_claims_of_their_own() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.create(claim_template("t", request()), pod_group("g", SHARED), pod("p", SHARED, group="g"))
        await cluster.settle()
        assert (await group_named(cluster)).spec.resource_claims == ()
        assert (await cluster.claim_of("p", "shared")).metadata.name.startswith("p-shared-")

    play(scenario, FeatureGates.parse("GenericWorkload=true"))


def test_controllers_without_the_gates_touch_nothing_of_a_group() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.create(claim("c", request()), claim_template("t", request()))
        await cluster.create(pod_group("g", {**SHARED, "ready": existing("c")}))
        await allocate_for_group(cluster, "c")
        await cluster.create(pod("p", SHARED, group="g"))
        await cluster.settle(600)
        assert len((await cluster.claim("c")).status.reserved_for) == 1
        assert len(await cluster.claims()) == 1
        ((kind, reason, message),) = await events_about(cluster, "p")
        assert (kind, reason) == ("Pod", "FailedResourceClaimCreation")
        assert "disabled" in message

    both = "GenericWorkload=true,DRAWorkloadResourceClaims=true"
    play_with(scenario, server=both, controllers="")
    play_with(scenario, server=both, controllers="GenericWorkload=true")
