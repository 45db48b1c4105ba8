"""Whom a claim is reserved for: each pod, or their workload."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.resource_v1 import (
    AllocationResult,
    ConsumerReference,
)
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.scheduler.state.tracked_claim import consumer_for
from dralloc.testing.builders import allocation, claim, held, request
from tests.support.workloads import pod, seen

JOB = ConsumerReference(api_group="batch", resource="jobs", name="job", uid="uid-of-job")
OTHER = ConsumerReference(resource="pods", name="other", uid="uid-of-other")
POD = ConsumerReference(resource="pods", name="p", uid="uid-of-p")
PLAIN = allocation(held("gpu"))
FOR_ANY = replace(PLAIN, reserved_for_any_pod=True)


@dataclass(frozen=True)
class ReservationCase:
    id: str
    allocation: AllocationResult | None = None
    spec: ConsumerReference | None = None
    listed: tuple[ConsumerReference, ...] = ()
    want: ConsumerReference | None = POD
    off: bool = False
    group: PodGroup | None = None


GROUP = PodGroup(metadata=ObjectMeta(name="g", namespace="default", uid="uid-of-g"))
OF_GROUP = ConsumerReference(api_group="scheduling.k8s.io", resource="podgroups", name="g", uid="uid-of-g")
OF_OLD_GROUP = replace(OF_GROUP, uid="uid-of-an-earlier-g")

RESERVATIONS = [
    ReservationCase("the first pod"),
    ReservationCase("another pod", PLAIN, listed=(OTHER,)),
    ReservationCase("a pod that is listed", PLAIN, listed=(OTHER, POD), want=None),
    ReservationCase("the first pod of a workload", spec=JOB, want=JOB),
    ReservationCase("the first pod of a claim whose workload is another pod", spec=OTHER),
    ReservationCase("the first pod of a claim whose workload is this pod", spec=POD),
    ReservationCase("a later pod of a workload", FOR_ANY, JOB, (JOB,), want=None),
    ReservationCase(
        "a later pod beside one that was listed while the feature was off", FOR_ANY, JOB, (OTHER, JOB), want=None
    ),
    ReservationCase("a pod after the workload gave up its reservation", FOR_ANY, JOB, want=JOB),
    ReservationCase("a listed workload, without reservedForAnyPod", PLAIN, JOB, (JOB,)),
    ReservationCase("allocated before its first pod, without reservedForAnyPod", PLAIN, JOB),
    ReservationCase("the first pod of a workload, with the feature off", spec=JOB, off=True),
    ReservationCase("a later pod of a workload, with the feature off", FOR_ANY, JOB, (JOB,), off=True),
    ReservationCase("the first member of a group", group=GROUP, want=OF_GROUP),
    ReservationCase("a later member of a group", PLAIN, listed=(OF_GROUP,), group=GROUP, want=None),
    ReservationCase("a member beside a pod", PLAIN, listed=(OTHER,), group=GROUP, want=OF_GROUP),
    ReservationCase("an entry of an earlier group", PLAIN, listed=(OF_OLD_GROUP,), group=GROUP, want=OF_GROUP),
    ReservationCase("a pod with its own claim beside a group", PLAIN, listed=(OF_GROUP,)),
    ReservationCase("a member of a group that is the workload", FOR_ANY, OF_GROUP, (OF_GROUP,), group=GROUP, want=None),
]


@pytest.mark.parametrize("case", RESERVATIONS, ids=lambda case: case.id)
def test_the_consumer_to_add(case: ReservationCase) -> None:
    made = claim("c", request(), allocation=case.allocation)
    used = replace(
        made,
        spec=replace(made.spec, reserved_for=case.spec),
        status=replace(made.status, reserved_for=case.listed),
    )
    assert consumer_for(used, seen(pod("p")), for_workloads=not case.off, group=case.group) == case.want
