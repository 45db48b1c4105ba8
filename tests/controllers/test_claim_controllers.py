"""Claims from the creation of a pod to its end, against a real server in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from dralloc.controllers.claim_lifecycle.controller import ClaimLifecycleController
from dralloc.controllers.controller_context import ControllerContext
from dralloc.controllers.controller_set import CONTROLLERS
from dralloc.kube.batch_v1 import Job
from dralloc.kube.core_v1 import Event
from dralloc.kube.meta_v1 import OwnerReference
from dralloc.kube.pod_claims import CLAIM_FINALIZER, pod_reference
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim
from dralloc.primitives.features import FeatureGates
from dralloc.testing.builders import allocation, alternative, claim, first_available, held, request
from dralloc.testing.virtual_time import run_virtual
from tests.support.controlled_cluster import ControlledCluster, controlled_cluster
from tests.support.workloads import claim_template, existing, job, pod, quota, template

Scenario = Callable[[ControlledCluster], Awaitable[None]]

ONLY = ("claim-templates", "claim-lifecycle")


def play(scenario: Scenario, gates: FeatureGates | None = None) -> None:
    async def main() -> None:
        async with controlled_cluster(only=ONLY, gates=gates) as cluster:
            await scenario(cluster)

    run_virtual(main())


async def events_about(cluster: ControlledCluster, name: str) -> list[tuple[str, str, int]]:
    events = await cluster.client.list(Event, fields=f"involvedObject.name={name}")
    return [(event.reason, event.message, event.count) for event in events]


def test_a_claim_is_created_reserved_deallocated_and_deleted_with_its_pod() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(claim_template("t", request()))
        await cluster.client.create(pod("p", {"gpu": template("t")}))
        await cluster.settle()
        made = await cluster.claim_of("p", "gpu")
        await cluster.schedule("p", made.metadata.name)
        await cluster.settle()
        assert (await cluster.claim(made.metadata.name)).status.reserved_for == (pod_reference(await cluster.pod("p")),)
        await cluster.end_pod("p")
        await cluster.settle()
        assert await cluster.claims() == ()

    play(scenario)


def test_names_of_63_characters_give_a_valid_claim_name() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(claim_template("t", request()))
        await cluster.client.create(pod("p" * 63, {"c" * 63: template("t")}))
        await cluster.settle()
        made = await cluster.claim_of("p" * 63, "c" * 63)
        assert len(made.metadata.name) == 62

    play(scenario)


def test_a_missing_template_is_reported_once_and_used_when_it_is_created() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(pod("p", {"gpu": template("t")}))
        await cluster.settle(600)
        message = 'PodResourceClaim gpu: resource claim template "t" not found'
        assert await events_about(cluster, "p") == [("FailedResourceClaimCreation", message, 1)]
        await cluster.client.create(claim_template("t", request()))
        await cluster.settle()
        assert (await cluster.claim_of("p", "gpu")).metadata.name.startswith("p-gpu-")

    play(scenario)


def test_a_refused_claim_is_reported_and_retried() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(quota("few", {"count/resourceclaims.resource.k8s.io": "1"}))
        await cluster.client.create(claim_template("t", request()))
        await cluster.client.create(pod("first", {"gpu": template("t")}))
        await cluster.settle()
        await cluster.client.create(pod("second", {"gpu": template("t")}))
        await cluster.settle(120)
        ((reason, message, count),) = await events_about(cluster, "second")
        assert reason == "FailedResourceClaimCreation"
        assert "exceeded quota: few" in message
        assert count == 1
        await cluster.remove_pod("first")
        await cluster.settle(120)
        assert await cluster.claim_of("second", "gpu")
        assert "resourceclaim_controller_create_failures_total" in cluster.metrics

    play(scenario)


def test_a_deleted_claim_is_replaced_under_another_name() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(claim_template("t", request()))
        await cluster.client.create(pod("p", {"gpu": template("t")}))
        await cluster.settle()
        old = await cluster.claim_of("p", "gpu")
        await cluster.client.delete(ResourceClaim, old.metadata.name)
        await cluster.settle()
        new = await cluster.claim_of("p", "gpu")
        assert new.metadata.name != old.metadata.name
        assert len(await cluster.claims()) == 1

    play(scenario)


def test_a_pod_bound_by_others_gets_a_reservation() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(claim("shared", request()))
        await cluster.client.create(pod("first", {"gpu": existing("shared")}))
        await cluster.schedule("first", "shared")
        await cluster.client.create(pod("forced", {"gpu": existing("shared")}, node="node-b"))
        await cluster.settle()
        listed = (await cluster.claim("shared")).status.reserved_for
        assert [consumer.name for consumer in listed] == ["first", "forced"]

    play(scenario)


@pytest.mark.slow
def test_hundreds_of_pods_bound_by_others_do_not_compete_for_their_claim() -> None:
    """Without the gate each pod is listed. One write lists all that fit, and the others wait for room without requests."""

    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(claim("shared", request()))
        await cluster.client.create(pod("first", {"gpu": existing("shared")}))
        await cluster.schedule("first", "shared")
        for number in range(400):
            await cluster.client.create(pod(f"p{number}", {"gpu": existing("shared")}, node="node-b"))
        await cluster.settle(15)
        assert len((await cluster.claim("shared")).status.reserved_for) == 256
        assert 'workqueue_retries_total{name="resource_claim"}' not in cluster.metrics
        before = (await cluster.claim("shared")).metadata.resource_version
        await cluster.settle(60)
        assert (await cluster.claim("shared")).metadata.resource_version == before
        listed = {consumer.name for consumer in (await cluster.claim("shared")).status.reserved_for}
        waiting = {f"p{number}" for number in range(400)} - listed
        events = await cluster.client.list(Event)
        of_pods = [event for event in events if event.involved_object.kind == "Pod"]
        assert {event.involved_object.name for event in of_pods} == waiting
        assert {event.reason for event in of_pods} == {"FailedResourceClaimReservation"}
        for name in sorted(listed)[:10]:
            await cluster.end_pod(name)
        await cluster.settle(15)
        now = {consumer.name for consumer in (await cluster.claim("shared")).status.reserved_for}
        assert len(now) == 256
        assert len(now - listed) == 10

    play(scenario, FeatureGates.parse("DRAReservedForWorkloads=false"))


def test_a_bound_pod_gets_no_reservation_of_an_unallocated_claim() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(claim("shared", request()))
        await cluster.client.create(pod("forced", {"gpu": existing("shared")}, node="node-b"))
        await cluster.settle(60)
        assert (await cluster.claim("shared")).status.allocation is None

    play(scenario)


def test_a_standalone_claim_is_deallocated_after_its_last_pod_and_kept() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(claim("shared", request()))
        for name in ("a", "b"):
            await cluster.client.create(pod(name, {"gpu": existing("shared")}))
            await cluster.schedule(name, "shared")
        await cluster.end_pod("a")
        await cluster.settle()
        after_one = await cluster.claim("shared")
        assert [consumer.name for consumer in after_one.status.reserved_for] == ["b"]
        assert after_one.status.allocation is not None
        await cluster.remove_pod("b")
        await cluster.settle()
        after_both = await cluster.claim("shared")
        assert after_both.status.allocation is None
        assert after_both.metadata.finalizers == ()

    play(scenario)


def test_a_terminating_pod_with_a_node_keeps_its_claim_until_it_has_finished() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(claim("shared", request()))
        await cluster.client.create(pod("p", {"gpu": existing("shared")}))
        await cluster.schedule("p", "shared")
        await cluster.client.delete(Pod, "p")
        await cluster.settle(600)
        assert (await cluster.claim("shared")).status.allocation is not None
        await cluster.remove_pod("p")
        await cluster.settle()
        assert (await cluster.claim("shared")).status.allocation is None

    play(scenario)


def test_a_deleted_claim_exists_until_its_pods_have_finished() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(claim("shared", request()))
        await cluster.client.create(pod("p", {"gpu": existing("shared")}))
        await cluster.schedule("p", "shared")
        await cluster.client.delete(ResourceClaim, "shared")
        await cluster.settle(60)
        assert CLAIM_FINALIZER in (await cluster.claim("shared")).metadata.finalizers
        await cluster.end_pod("p")
        await cluster.settle()
        assert not await cluster.exists(ResourceClaim, "shared")

    play(scenario)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_claim_for_extended_resources_is_deleted_after_its_pod(phase: str) -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        owner = await cluster.client.create(pod("p", requests={"example.com/gpu": "1"}, node="node-a"))
        made = claim("p-extended-resources-abcde", request("container-0-request-0"))
        reference = OwnerReference(api_version="v1", kind="Pod", name="p", uid=owner.metadata.uid, controller=True)
        annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
        metadata = replace(made.metadata, owner_references=(reference,), annotations=annotations, uid="")
        await cluster.client.create(replace(made, metadata=metadata))
        await cluster.protect(made.metadata.name)
        result = allocation(held("gpu-0", request="container-0-request-0"))
        await cluster.allocate(made.metadata.name, [pod_reference(await cluster.pod("p"))], result)
        await cluster.settle()
        assert (await cluster.claim(made.metadata.name)).status.allocation is not None
        await cluster.end_pod("p", phase)
        await cluster.settle()
        assert await cluster.claims() == ()

    play(scenario)


def test_claims_of_a_crashed_scheduler_are_deallocated() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        # A crash after the finalizer was written.
        await cluster.client.create(claim("protected", request()))
        await cluster.protect("protected")
        # A crash between the reservation and the binding; then the pod is deleted.
        await cluster.client.create(claim("allocated", request()))
        await cluster.client.create(pod("p", {"gpu": existing("allocated")}))
        await cluster.protect("allocated")
        await cluster.allocate("allocated", [pod_reference(await cluster.pod("p"))])
        await cluster.client.delete(Pod, "p")
        await cluster.settle()
        assert (await cluster.claim("allocated")).status.allocation is None
        await cluster.client.delete(ResourceClaim, "protected")
        await cluster.settle()
        assert not await cluster.exists(ResourceClaim, "protected")

    play(scenario)


def test_pods_that_finished_without_a_controller_are_cleaned_up_at_start() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(claim_template("t", request()))
        await cluster.client.create(claim("shared", request()))
        await cluster.client.create(pod("p", {"own": template("t"), "gpu": existing("shared")}))
        await cluster.settle()
        own = (await cluster.claim_of("p", "own")).metadata.name
        reference = pod_reference(await cluster.pod("p"))
        for name, device in ((own, "gpu-0"), ("shared", "gpu-1")):
            await cluster.protect(name)
            await cluster.allocate(name, [reference], allocation(held(device)))
        await cluster.bind("p")
        await cluster.kill()
        await cluster.remove_pod("p")
        cluster.start()
        await cluster.settle()
        (left,) = await cluster.claims()
        assert (left.metadata.name, left.status.allocation) == ("shared", None)

    play(scenario)


# --- claims that a workload holds (KEP-5194) ----------------------------------------------------------------------


async def job_holding_a_claim(cluster: ControlledCluster, pods: int = 2) -> ConsumerReference:
    """A job, its claim, allocated for any pod, and running pods that use it."""
    holder = await cluster.client.create(job("job"))
    reference = ConsumerReference(api_group="batch", resource="jobs", name="job", uid=holder.metadata.uid)
    await cluster.client.create(claim("shared", request(), reserved_for=reference))
    await cluster.protect("shared")
    result = {"devices": allocation(held("gpu-0")).devices, "reservedForAnyPod": True}
    patch = {"status": {"allocation": result, "reservedFor": [reference]}}
    await cluster.client.patch(ResourceClaim, "shared", patch, subresource="status")
    for number in range(pods):
        await cluster.client.create(pod(f"p{number}", {"gpu": existing("shared")}))
        await cluster.bind(f"p{number}")
    await cluster.settle()
    return reference


def test_pods_of_a_job_leave_no_reservation_in_a_claim_of_the_job() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        reference = await job_holding_a_claim(cluster)
        before = await cluster.claim("shared")
        assert before.status.reserved_for == (reference,)
        await cluster.end_pod("p0")
        await cluster.remove_pod("p1")
        await cluster.settle(600)
        assert await cluster.claim("shared") == before

    play(scenario)


def test_a_claim_that_its_job_released_is_deallocated_after_the_last_pod() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await job_holding_a_claim(cluster)
        await cluster.client.patch(ResourceClaim, "shared", {"status": {"reservedFor": None}}, subresource="status")
        await cluster.settle(600)
        running = await cluster.claim("shared")
        assert running.status.allocation is not None
        assert running.status.reserved_for == ()
        await cluster.end_pod("p0")
        await cluster.end_pod("p1")
        await cluster.settle()
        ended = await cluster.claim("shared")
        assert ended.status.allocation is None
        assert ended.metadata.finalizers == ()

    play(scenario)


def test_nothing_is_kept_of_jobs_that_released_their_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[ClaimLifecycleController] = []

    def start(context: ControllerContext) -> ClaimLifecycleController:
        started.append(ClaimLifecycleController(context))
        return started[-1]

    async def scenario(cluster: ControlledCluster) -> None:
        reference = await job_holding_a_claim(cluster, pods=0)
        (controller,) = started
        assert list(controller._checked_s) == [("default", reference)]
        await cluster.client.patch(ResourceClaim, "shared", {"status": {"reservedFor": None}}, subresource="status")
        await cluster.settle()
        assert not controller._checked_s

    monkeypatch.setitem(CONTROLLERS, "claim-lifecycle", start)
    play(scenario)


@pytest.mark.parametrize("replaced", [False, True], ids=["is gone", "was replaced"])
def test_the_reservation_of_a_deleted_job_is_removed(replaced: bool) -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await job_holding_a_claim(cluster, pods=0)
        first = await cluster.client.get(Job, "job")
        await cluster.client.delete(Job, "job")
        await cluster.settle(1)
        if replaced:
            await cluster.client.create(job("job"))
            assert (await cluster.client.get(Job, "job")).metadata.uid != first.metadata.uid
        await cluster.settle(90)
        assert (await cluster.claim("shared")).status.allocation is None

    play(scenario)


@pytest.mark.parametrize(
    "reference",
    [
        ConsumerReference(api_group="batch", resource="unservedjobs", name="x", uid="u"),
        ConsumerReference(api_group="nobody.example", resource="things", name="x", uid="u"),
    ],
    ids=["an unknown resource", "an unknown group"],
)
def test_a_reservation_that_cannot_be_checked_is_kept(reference: ConsumerReference) -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(claim("shared", request()))
        await cluster.protect("shared")
        await cluster.allocate("shared", [reference])
        await cluster.settle(600)
        assert (await cluster.claim("shared")).status.reserved_for == (reference,)

    play(scenario)


def test_reservations_of_pods_and_workloads_are_removed_one_by_one() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        reference = await job_holding_a_claim(cluster, pods=1)
        # A scheduler with the gate off reserves the claim for a pod beside the job.
        await cluster.client.create(pod("listed", {"gpu": existing("shared")}))
        listed = [reference, pod_reference(await cluster.pod("listed"))]
        await cluster.client.patch(ResourceClaim, "shared", {"status": {"reservedFor": listed}}, subresource="status")
        await cluster.bind("listed")
        await cluster.settle()
        assert (await cluster.claim("shared")).status.reserved_for == tuple(listed)
        await cluster.end_pod("listed")
        await cluster.settle()
        assert (await cluster.claim("shared")).status.reserved_for == (reference,)
        await cluster.end_pod("p0")
        await cluster.client.patch(ResourceClaim, "shared", {"status": {"reservedFor": None}}, subresource="status")
        await cluster.settle()
        assert (await cluster.claim("shared")).status.allocation is None

    play(scenario)


def test_a_pod_with_a_claim_of_its_own_is_no_work_until_it_ends() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        keys = cluster.controllers.metrics.queues.adds
        await cluster.client.create(claim("own", request()))
        await cluster.client.create(pod("p", {"gpu": existing("own")}))
        await cluster.settle()
        await cluster.schedule("p", "own")
        await cluster.settle()
        assert keys.value("resource_claim") == 0
        await cluster.end_pod("p")
        await cluster.settle()
        assert keys.value("resource_claim") > 0
        assert (await cluster.claim("own")).status.allocation is None

    play(scenario)


# --- metrics --------------------------------------------------------------------------------------------------------


def test_metrics_distinguish_claims_with_a_prioritized_list() -> None:
    async def scenario(cluster: ControlledCluster) -> None:
        await cluster.client.create(claim_template("plain", request()))
        await cluster.client.create(claim_template("listed", first_available("r", alternative("a"), alternative("b"))))
        await cluster.client.create(
            pod("p", {"a": template("plain"), "b": template("listed"), "c": template("listed")})
        )
        await cluster.settle()
        reference = pod_reference(await cluster.pod("p"))
        made = (await cluster.claim_of("p", "b")).metadata.name
        await cluster.allocate(made, [reference], allocation(held("gpu-0", request="r/a")))
        await cluster.settle()
        lines = cluster.metrics.splitlines()
        for line in (
            'resourceclaim_controller_create_total{prioritized_list="false"} 1',
            'resourceclaim_controller_create_total{prioritized_list="true"} 2',
            'resourceclaim_controller_resource_claims{prioritized_list="false"} 1',
            'resourceclaim_controller_resource_claims{prioritized_list="true"} 2',
            'resourceclaim_controller_allocated_resource_claims{prioritized_list="false"} 0',
            'resourceclaim_controller_allocated_resource_claims{prioritized_list="true"} 1',
            'dynamic_resource_allocation_resourceclaim_creates_total{status="success",admin_access="false",'
            'owner_api_group="",owner_api_kind="Pod",prioritized_list="true"} 2',
            'dynamic_resource_allocation_resource_claims{allocated="true",admin_access="false",'
            'source="resource_claim_template",prioritized_list="true"} 1',
            'workqueue_depth{name="resource_claim"} 0',
        ):
            assert line in lines

    play(scenario)
