"""One claim with decisions that are not stored yet: assumed, stored, forgotten."""

from __future__ import annotations

from msgspec.structs import replace

from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.pod_claims import group_reference, pod_reference
from dralloc.kube.resource_v1 import AllocationResult, ConsumerReference, ResourceClaim
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.scheduler.state.tracked_claim import TrackedClaim, revision_of
from dralloc.testing.builders import allocation, claim, held, request
from tests.support.workloads import pod, seen

P, Q = seen(pod("p")), seen(pod("q"))
GPU = allocation(held("gpu-0"))
JOB = ConsumerReference(api_group="batch", resource="jobs", name="job", uid="uid-of-job")


def stored(
    revision: str, allocated: AllocationResult | None = None, reserved_for: tuple[ConsumerReference, ...] = ()
) -> ResourceClaim:
    made = claim("c", request(), allocation=allocated)
    metadata = replace(made.metadata, resource_version=revision)
    return replace(made, metadata=metadata, status=replace(made.status, reserved_for=reserved_for))


def test_a_claim_without_decisions_is_the_stored_object() -> None:
    tracked = TrackedClaim(stored("1"))
    assert tracked.effective is tracked.stored
    assert not tracked.is_unwritten(P.metadata.uid)


def test_an_assumed_decision_counts_until_it_is_stored() -> None:
    tracked = TrackedClaim(stored("1"))
    tracked.assume(P, GPU, for_workloads=True)
    assert tracked.effective.status.allocation == GPU
    assert tracked.effective.status.reserved_for == (pod_reference(P),)
    assert tracked.is_unwritten(P.metadata.uid)
    tracked.store(stored("2", GPU, (pod_reference(P),)))
    assert tracked.effective is tracked.stored
    assert not tracked.is_unwritten(P.metadata.uid)
    assert tracked.allocated_revision == 2


def test_a_second_pod_keeps_the_first_allocation() -> None:
    tracked = TrackedClaim(stored("1"))
    tracked.assume(P, GPU, for_workloads=True)
    tracked.assume(Q, allocation(held("gpu-1")), for_workloads=True)
    assert tracked.effective.status.allocation == GPU
    assert tracked.effective.status.reserved_for == (pod_reference(P), pod_reference(Q))


def test_an_assumed_allocation_is_forgotten_with_the_last_pod_that_depends_on_it() -> None:
    tracked = TrackedClaim(stored("1"))
    for user in (P, Q):
        tracked.assume(user, GPU, for_workloads=True)
    assert [tracked.forget(user.metadata.uid) for user in (P, Q)] == [False, True]
    assert tracked.effective is tracked.stored


def test_a_stored_allocation_is_not_forgotten() -> None:
    tracked = TrackedClaim(stored("1", GPU))
    tracked.assume(P, GPU, for_workloads=True)
    assert not tracked.forget(P.metadata.uid)
    assert tracked.effective.status.allocation == GPU


def test_a_claim_for_a_workload_is_reserved_for_the_workload_and_any_pod() -> None:
    made = stored("1")
    tracked = TrackedClaim(replace(made, spec=replace(made.spec, reserved_for=JOB)))
    tracked.assume(P, GPU, for_workloads=True)
    status = tracked.effective.status
    assert status.reserved_for == (JOB,)
    assert status.allocation is not None
    assert status.allocation.reserved_for_any_pod


def test_a_new_allocation_has_to_be_proven_again() -> None:
    tracked = TrackedClaim(stored("1"))
    tracked.store(stored("2", GPU))
    tracked.is_proven = True
    tracked.store(stored("3", GPU))
    assert tracked.is_proven
    tracked.store(stored("4"))
    tracked.store(stored("5", GPU))
    assert (tracked.is_proven, tracked.allocated_revision) == (False, 5)


def test_a_revision_that_is_not_a_number_is_older_than_all_others() -> None:
    assert [revision_of(stored(text)) for text in ("17", "", "opaque")] == [17, 0, 0]


def test_members_of_a_group_share_one_reservation_and_each_depends_on_it() -> None:
    group = PodGroup(metadata=ObjectMeta(name="g", namespace="default", uid="uid-of-g"))
    tracked = TrackedClaim(stored("1"))
    for user in (P, Q):
        tracked.assume(user, GPU, for_workloads=True, group=group)
    status = tracked.effective.status
    assert status.reserved_for == (group_reference(group),)
    assert status.allocation is not None
    assert status.allocation.reserved_for_any_pod is None
    assert [tracked.forget(user.metadata.uid) for user in (P, Q)] == [False, True]
    tracked.assume(P, GPU, for_workloads=True, group=group)
    tracked.store(stored("2", GPU, (group_reference(group),)))
    tracked.assume(Q, GPU, for_workloads=True, group=group)
    assert tracked.effective is tracked.stored
    assert not tracked.is_unwritten(Q.metadata.uid)
