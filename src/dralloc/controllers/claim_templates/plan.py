"""Which claims to create, record and reserve for a pod or a PodGroup."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from dralloc.controllers.claim_creation import CreateClaim, ReportProblem
from dralloc.controllers.claim_templates.owned_claims import (
    ClaimEntry,
    ClaimObjects,
    ClaimOwner,
    claim_in_place,
    find_made,
    find_or_create,
    problem,
)
from dralloc.controllers.planned_actions import PlannedActions
from dralloc.kube import pod_claims
from dralloc.kube.pod_claims import group_reference, is_shared, shares_claim
from dralloc.kube.pod_v1 import Pod, PodResourceClaim, PodResourceClaimStatus
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.kube.timestamps import parse_timestamp
from dralloc.kube.validation.resource_claim_status import RESERVED_FOR_COUNT_MAX
from dralloc.primitives.features import FeatureGates

# An informer has shown what was written so long ago.
SHOWN_AFTER: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class RecordClaims:
    """Write the names of all created claims, by entry and sorted, to the owner's status."""

    owner: ClaimOwner
    names: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Reserve:
    """Reserve an allocated claim for the pod, which already has a node, or for its group."""

    pod: Pod
    claim: str


ClaimAction = CreateClaim | RecordClaims | Reserve | ReportProblem
# What was found for an entry; None if its claim is not needed or not there yet.
_Found = ResourceClaim | CreateClaim | ReportProblem | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodContext:
    """What the plan for a pod depends on."""

    objects: ClaimObjects
    now: datetime
    # The pod's group, if it is in one that exists.
    group: PodGroup | None = None


def plan_pod(pod: Pod, context: PodContext) -> PlannedActions[ClaimAction]:
    """The actions for the pod. A pod that is terminating or finished needs none."""
    if pod.is_terminating or pod.is_finished:
        return PlannedActions()
    name, objects = pod_claims.group_name(pod), context.objects
    if name and "GenericWorkload" not in objects.gates:
        why = f'the pod is in PodGroup "{name}", and the feature gate GenericWorkload is disabled'
        return PlannedActions((ReportProblem(pod, why),) if pod.spec.resource_claims else ())
    if name and context.group is None:
        # The group decides which claims are the pod's own. The group's creation queues the pod again.
        return PlannedActions()
    actions, names = _plan_claims(pod, lambda entry, recorded: _claim_of_entry(pod, entry, recorded, context))
    reservations = tuple(_plan_reservations(_with_claims(pod, names), context))
    pause = _reservation_pause(pod, context.now)
    if reservations and pause > timedelta():
        return PlannedActions(actions, pause.total_seconds())
    return PlannedActions((*actions, *reservations))


def may_get_claims(pod: Pod) -> bool:
    """True if the plan for the pod depends on more than reservations: it has templates, or is in a group, which may have them."""
    entries = pod.spec.resource_claims
    return bool(entries) and (
        bool(pod_claims.group_name(pod)) or any(entry.resource_claim_template_name is not None for entry in entries)
    )


def plan_group(group: PodGroup, objects: ClaimObjects) -> PlannedActions[ClaimAction]:
    """The actions for the group: its claims are created with it, not with its pods."""
    if group.metadata.deletion_timestamp is not None or "DRAWorkloadResourceClaims" not in objects.gates:
        return PlannedActions()
    actions, _ = _plan_claims(
        group,
        lambda entry, recorded: claim_in_place(recorded, group, objects) or find_or_create(group, entry, objects),
    )
    return PlannedActions(actions)


def _plan_claims(
    owner: ClaimOwner, find: Callable[[ClaimEntry, str | None], _Found]
) -> tuple[tuple[ClaimAction, ...], Mapping[str, str | None]]:
    """The actions for the entries with templates, and the names of all claims by entry."""
    actions: list[ClaimAction] = []
    recorded = {entry.name: entry.resource_claim_name for entry in owner.status.resource_claim_statuses}
    names = dict(recorded)
    for entry in owner.spec.resource_claims:
        # An entry that is recorded without a claim needs no claim.
        if entry.resource_claim_template_name is None or recorded.get(entry.name, "unknown") is None:
            continue
        found = find(entry, recorded.get(entry.name))
        if isinstance(found, ResourceClaim):
            names[entry.name] = found.metadata.name
        elif found is not None:
            actions.append(found)
            if isinstance(found, CreateClaim):
                names[entry.name] = found.document["metadata"]["name"]
    if names != recorded:
        actions.append(RecordClaims(owner, tuple(sorted((entry, name) for entry, name in names.items() if name))))
    return tuple(actions), names


def _claim_of_entry(pod: Pod, entry: ClaimEntry, recorded: str | None, context: PodContext) -> _Found:
    """A claim of the pod's own, or the one of its group, which is never created for a pod."""
    group, objects = context.group, context.objects
    if group is None or not isinstance(entry, PodResourceClaim) or not is_shared(entry, group):
        return claim_in_place(recorded, pod, objects) or find_or_create(pod, entry, objects)
    if (claim := claim_in_place(recorded, group, objects)) is not None:
        return claim
    if "DRAWorkloadResourceClaims" not in objects.gates:
        why = f"claim {entry.name} is a PodGroup claim but the DRAWorkloadResourceClaims feature is disabled"
        return problem(pod, entry, why)
    return find_made(group, entry, objects)


def _with_claims(pod: Pod, names: Mapping[str, str | None]) -> Pod:
    statuses = tuple(PodResourceClaimStatus(name=entry, resource_claim_name=name) for entry, name in names.items())
    return replace(pod, status=replace(pod.status, resource_claim_statuses=statuses))


# --- Reservations -----------------------------------------------------------------------------------------------


def _plan_reservations(pod: Pod, context: PodContext) -> Iterator[Reserve | ReportProblem]:
    """A pod with a node must be reserved; a scheduler without DRA support or a person may have bound it."""
    if not pod.spec.node_name:
        return
    objects = context.objects
    for use in pod_claims.claims_of(pod):
        claim = objects.find_claim(use.claim)
        if claim is None or not pod_claims.may_use(use, claim, pod):
            continue
        if not needs_reservation(claim, pod, objects.gates, context.group):
            continue
        if len(claim.status.reserved_for) < RESERVED_FOR_COUNT_MAX:
            yield Reserve(pod, use.claim)
        else:
            # A change of the claim queues the pod again.
            full = f'claim "{use.claim}" has {RESERVED_FOR_COUNT_MAX} consumers, the most that it can be reserved for'
            yield ReportProblem(pod, full, "FailedResourceClaimReservation")


def _reservation_pause(pod: Pod, now: datetime) -> timedelta:
    """How long to wait for the scheduler's reservation, which precedes the binding, to reach the informer."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "True" and condition.last_transition_time:
            return parse_timestamp(condition.last_transition_time) + SHOWN_AFTER - now
    return timedelta()


def with_reservations(
    claim: ResourceClaim, pods: Iterable[Pod], gates: FeatureGates, group_of: Callable[[Pod], PodGroup | None]
) -> tuple[ConsumerReference, ...]:
    """The consumers of the claim and those of the pods that need a reservation, as many as a claim can have."""
    added: dict[ConsumerReference, None] = {}
    for pod in pods:
        if needs_reservation(claim, pod, gates, group := group_of(pod)):
            added[_consumer(claim, pod, gates, group)] = None
    return (*claim.status.reserved_for, *added)[: max(RESERVED_FOR_COUNT_MAX, len(claim.status.reserved_for))]


def needs_reservation(claim: ResourceClaim, pod: Pod, gates: FeatureGates, group: PodGroup | None = None) -> bool:
    """True if the pod or its group must be added to `reservedFor`. A workload that is listed stands for all its pods."""
    if claim.status.allocation is None or claim.metadata.deletion_timestamp is not None:
        return False
    if "DRAReservedForWorkloads" in gates and (
        pod_claims.is_held_by_workload(claim) or pod_claims.is_reserved_for(claim, pod, for_groups=False)
    ):
        return False
    listed = {reference.uid for reference in claim.status.reserved_for}
    return pod.metadata.uid not in listed and _consumer(claim, pod, gates, group).uid not in listed


def _consumer(claim: ResourceClaim, pod: Pod, gates: FeatureGates, group: PodGroup | None) -> ConsumerReference:
    """Which of the pod and its group the claim is reserved for."""
    if group is not None and "DRAWorkloadResourceClaims" in gates and shares_claim(pod, claim.metadata.name, group):
        return group_reference(group)
    return pod_claims.pod_reference(pod)
