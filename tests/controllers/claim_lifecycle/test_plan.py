"""Removal of consumers, deallocation and deletion of claims: a table and properties."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dralloc.controllers.claim_creation import is_done
from dralloc.controllers.claim_lifecycle.plan import (
    ClaimAction,
    ConsumerFacts,
    Deallocate,
    DeleteClaim,
    RemoveConsumers,
    RemoveFinalizer,
    plan_claim,
)
from dralloc.kube.pod_claims import CLAIM_FINALIZER
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim
from dralloc.testing.builders import allocation, claim, held, request
from tests.support.workloads import pod, seen

POD_A = ConsumerReference(resource="pods", name="a", uid="uid-a")
POD_B = ConsumerReference(resource="pods", name="b", uid="uid-b")
JOB = ConsumerReference(api_group="batch", resource="jobs", name="job", uid="uid-job")
NOW = "2026-01-01T00:00:00Z"


def a_claim(
    *consumers: ConsumerReference, allocated: bool = True, protected: bool = True, deleted: bool = False
) -> ResourceClaim:
    item = claim("c", request(), allocation=allocation(held("gpu-0")) if allocated else None)
    metadata = replace(
        item.metadata,
        finalizers=(CLAIM_FINALIZER,) if protected else (),
        deletion_timestamp=NOW if deleted else None,
    )
    return replace(item, metadata=metadata, status=replace(item.status, reserved_for=consumers))


def gone(*consumers: ConsumerReference, **others: Any) -> ConsumerFacts:
    return ConsumerFacts(gone=frozenset(consumer.uid for consumer in consumers), **others)


@dataclass(frozen=True)
class Case:
    id: str
    claim: ResourceClaim
    holders: ConsumerFacts = field(default_factory=ConsumerFacts)
    want: str = ""


CASES = [
    Case("a claim in use stays as it is", a_claim(POD_A)),
    Case("an unallocated claim stays as it is", a_claim(allocated=False, protected=False)),
    Case("the last pod gone", a_claim(POD_A), gone(POD_A), "deallocate"),
    Case("one of two pods gone", a_claim(POD_A, POD_B), gone(POD_A), "release: b"),
    Case("both gone", a_claim(POD_A, POD_B), gone(POD_A, POD_B), "deallocate"),
    Case("a pod gone, a workload left", a_claim(JOB, POD_A), gone(POD_A), "release: job"),
    Case("a workload gone, a pod left", a_claim(JOB, POD_A), gone(JOB), "release: a"),
    Case("a pod and a workload gone", a_claim(JOB, POD_A), gone(JOB, POD_A), "deallocate"),
    Case("a workload gone, no pod left", a_claim(JOB), gone(JOB), "deallocate"),
    Case(
        "a workload gone, one of its pods still runs",
        a_claim(JOB),
        gone(JOB, in_use=True),
        "release:",
    ),
    Case("reservations emptied by the workload", a_claim(), gone(), "deallocate"),
    Case("reservations emptied while a pod still runs", a_claim(), gone(in_use=True)),
    Case("allocated by hand and never reserved", a_claim(protected=False)),
    Case(
        "allocated by hand, the last pod gone",
        a_claim(POD_A, protected=False),
        gone(POD_A),
        "release:",
    ),
    Case("finalizer without allocation: a scheduler is about to write", a_claim(allocated=False)),
    Case("deleted, in use", a_claim(POD_A, deleted=True)),
    Case("deleted, unused, with finalizer", a_claim(allocated=False, deleted=True), gone(), "remove finalizer"),
    Case("deleted and allocated without consumers", a_claim(deleted=True), gone(), "deallocate"),
    Case("deleted, the last pod gone", a_claim(POD_A, deleted=True), gone(POD_A), "deallocate"),
    Case("deleted with another finalizer", a_claim(allocated=False, protected=False, deleted=True)),
    Case(
        "the owning pod is done",
        a_claim(POD_A),
        gone(POD_A, owner_is_done=True),
        "deallocate, delete",
    ),
    Case(
        "the owning pod is done before the allocation",
        a_claim(allocated=False, protected=False),
        gone(owner_is_done=True),
        "delete",
    ),
    Case(
        "the owning pod is done after a scheduler set the finalizer",
        a_claim(allocated=False),
        gone(owner_is_done=True),
        "remove finalizer, delete",
    ),
    Case(
        "the owning pod is done, another pod uses the claim",
        a_claim(POD_A, POD_B),
        gone(POD_A, owner_is_done=True),
        "release: b",
    ),
    Case(
        "the owning pod is done and the claim is being deleted",
        a_claim(POD_A, deleted=True),
        gone(POD_A, owner_is_done=True),
        "deallocate",
    ),
]


def in_words(actions: tuple[ClaimAction, ...]) -> str:
    def words(action: ClaimAction) -> str:
        match action:
            case RemoveConsumers(_, kept):
                return f"release: {' '.join(consumer.name for consumer in kept)}".strip()
            case Deallocate():
                return "deallocate"
            case RemoveFinalizer():
                return "remove finalizer"
            case DeleteClaim():
                return "delete"

    return ", ".join(map(words, actions))


def carried_out(item: ResourceClaim | None, action: ClaimAction) -> ResourceClaim | None:
    """The claim after the action; None if it is deleted."""
    if item is None:
        return None
    match action:
        case RemoveConsumers(_, kept):
            return replace(item, status=replace(item.status, reserved_for=kept))
        case Deallocate() | RemoveFinalizer():
            nothing = replace(item.status, allocation=None, reserved_for=(), devices=())
            item = replace(item, status=nothing, metadata=replace(item.metadata, finalizers=()))
            return None if item.metadata.deletion_timestamp else item
        case DeleteClaim():
            return (
                replace(item, metadata=replace(item.metadata, deletion_timestamp=NOW))
                if item.metadata.finalizers
                else None
            )


def all_actions(item: ResourceClaim | None, holders: ConsumerFacts) -> tuple[ClaimAction, ...]:
    """What is done until nothing is left to do: each plan is for the claim as the one before has left it."""
    actions: list[ClaimAction] = []
    while item is not None and (planned := plan_claim(item, holders)):
        assert len(planned) == 1
        assert len(actions) < 4
        actions += planned
        item = carried_out(item, planned[0])
    return tuple(actions)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_plan_claim(case: Case) -> None:
    assert in_words(all_actions(case.claim, case.holders)) == case.want


@pytest.mark.parametrize(
    ("node", "phase", "deleted", "want"),
    [
        ("node-a", "Running", False, False),
        ("node-a", "Running", True, False),
        ("node-a", "Succeeded", False, True),
        ("node-a", "Failed", True, True),
        (None, "Pending", False, False),
        (None, "Pending", True, True),
    ],
    ids=[
        "running",
        "terminating with a node",
        "succeeded",
        "failed",
        "without a node",
        "terminating without a node",
    ],
)
def test_is_done(node: str | None, phase: str, deleted: bool, want: bool) -> None:
    item = seen(pod("p", node=node), phase=phase)
    if deleted:
        item = replace(item, metadata=replace(item.metadata, deletion_timestamp=NOW))
    assert is_done(item) == want


CLAIMS = st.builds(
    lambda consumers, allocated, protected, deleted: a_claim(
        *(consumers if allocated else ()), allocated=allocated, protected=protected, deleted=deleted
    ),
    st.lists(st.sampled_from([POD_A, POD_B, JOB]), unique=True),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
HOLDERS = st.builds(
    ConsumerFacts,
    gone=st.sets(st.sampled_from(["uid-a", "uid-b", "uid-job"])).map(frozenset),
    in_use=st.booleans(),
    owner_is_done=st.booleans(),
)


@given(item=CLAIMS, holders=HOLDERS)
def test_plans_come_to_an_end(item: ResourceClaim, holders: ConsumerFacts) -> None:
    all_actions(item, holders)


@given(item=CLAIMS, holders=HOLDERS)
def test_consumers_that_exist_keep_their_claim(item: ResourceClaim, holders: ConsumerFacts) -> None:
    after: ResourceClaim | None = item
    for action in all_actions(item, holders):
        after = carried_out(after, action)
    holding = [consumer for consumer in item.status.reserved_for if consumer.uid not in holders.gone]
    if holding or (holders.in_use and item.status.allocation is not None):
        assert after is not None
        assert after.status.allocation == item.status.allocation
        assert list(after.status.reserved_for) == holding
