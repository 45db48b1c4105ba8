"""Which claims to create, record and reserve for a pod."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from dralloc.api import pod_claims
from dralloc.api.pod_v1 import Pod, PodResourceClaim, PodResourceClaimStatus
from dralloc.api.resource_v1 import ConsumerReference, ResourceClaim
from dralloc.api.timestamps import parse_timestamp
from dralloc.api.unstructured_object import UnstructuredObject
from dralloc.api.validation.resource_claim_status import RESERVED_FOR_COUNT_MAX
from dralloc.controllers.claim_creation import CreateClaim, ReportProblem, claim_document, labels_of_template
from dralloc.controllers.planned_actions import PlannedActions
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.name_suffixes import suffix

# With the suffix, a name stays within the 63 characters of a label.
BASE_LENGTH_MAX: Final = 57
# Names collide only if five random-looking characters do; so many collisions in a row do not happen.
NAME_ATTEMPTS_MAX: Final = 10
# An informer has shown what was written so long ago.
SHOWN_AFTER: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class RecordClaims:
    """Write the names of all created claims, by entry and sorted, to the pod's status."""

    pod: Pod
    names: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Reserve:
    """Add the pod, which already has a node, to the `reservedFor` list of an allocated claim."""

    pod: Pod
    claim: str


PodAction = CreateClaim | RecordClaims | Reserve | ReportProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class PodContext:
    """The objects in the pod's namespace that the plan depends on. A claim that is not found does not exist."""

    find_claim: Callable[[str], ResourceClaim | None]
    find_template: Callable[[str], UnstructuredObject | None]
    # The claims that the pod controls.
    own_claims: Sequence[ResourceClaim]
    gates: FeatureGates
    now: datetime


def plan_pod(pod: Pod, context: PodContext) -> PlannedActions[PodAction]:
    """The actions for the pod. A pod that is terminating or finished needs none."""
    if pod.is_terminating or pod.is_finished:
        return PlannedActions()
    actions: list[PodAction] = []
    recorded = {entry.name: entry.resource_claim_name for entry in pod.status.resource_claim_statuses}
    names = dict(recorded)
    for entry in pod.spec.resource_claims:
        # An entry that is recorded without a claim needs no claim.
        if entry.resource_claim_template_name is None or recorded.get(entry.name, "unknown") is None:
            continue
        if _is_in_place(recorded.get(entry.name), pod, context):
            continue
        found = _find_or_create(pod, entry, context)
        if isinstance(found, ResourceClaim):
            names[entry.name] = found.metadata.name
        else:
            actions.append(found)
            if isinstance(found, CreateClaim):
                names[entry.name] = found.document["metadata"]["name"]
    if names != recorded:
        actions.append(RecordClaims(pod, tuple(sorted((entry, name) for entry, name in names.items() if name))))
    reservations = tuple(_plan_reservations(_with_claims(pod, names), context))
    pause = _reservation_pause(pod, context.now)
    if reservations and pause > timedelta():
        return PlannedActions(tuple(actions), pause.total_seconds())
    return PlannedActions((*actions, *reservations))


def _with_claims(pod: Pod, names: Mapping[str, str | None]) -> Pod:
    statuses = tuple(PodResourceClaimStatus(name=entry, resource_claim_name=name) for entry, name in names.items())
    return replace(pod, status=replace(pod.status, resource_claim_statuses=statuses))


def _is_in_place(name: str | None, pod: Pod, context: PodContext) -> bool:
    claim = None if name is None else context.find_claim(name)
    return claim is not None and pod_claims.is_made_for(claim, pod)


# --- Creation of a claim ----------------------------------------------------------------------------------------


def _find_or_create(
    pod: Pod, entry: PodResourceClaim, context: PodContext
) -> ResourceClaim | CreateClaim | ReportProblem:
    """An unrecorded claim of the entry (a crash or a stale cache may have prevented the record); otherwise a new one."""
    orphans = [claim for claim in context.own_claims if _is_for(claim, pod, entry)]
    if orphans:
        return min(orphans, key=lambda claim: claim.metadata.name)
    for name in _possible_names(pod, entry):
        claim = context.find_claim(name)
        if claim is None:
            return _plan_creation(pod, entry, name, context)
        if _is_for(claim, pod, entry):
            return claim
    return _problem(pod, entry, "all candidate names for the claim are in use")


def _is_for(claim: ResourceClaim, pod: Pod, entry: PodResourceClaim) -> bool:
    return (
        pod_claims.is_made_for(claim, pod)
        and claim.metadata.annotations.get(pod_claims.POD_CLAIM_NAME) == entry.name
        and claim.metadata.deletion_timestamp is None
    )


def _plan_creation(pod: Pod, entry: PodResourceClaim, name: str, context: PodContext) -> CreateClaim | ReportProblem:
    assert entry.resource_claim_template_name is not None, "claims are created only for entries with templates"
    template = context.find_template(entry.resource_claim_template_name)
    if template is None:
        return _problem(pod, entry, f'resource claim template "{entry.resource_claim_template_name}" not found')
    labels = labels_of_template(template)
    for gate, used in (("DRAAdminAccess", labels.admin_access), ("DRAPrioritizedList", labels.prioritized_list)):
        if used == "true" and gate not in context.gates:
            return _problem(
                pod, entry, f'template "{template.metadata.name}" requires the feature gate {gate}, which is disabled'
            )
    document = claim_document(
        pod,
        template,
        {"apiVersion": "v1", "kind": "Pod"},
        name=name,
        generateName=name_base(pod.metadata.name, entry.name),
        annotations={pod_claims.POD_CLAIM_NAME: entry.name},
    )
    return CreateClaim(pod, document, labels)


def _problem(pod: Pod, entry: PodResourceClaim, message: str) -> ReportProblem:
    return ReportProblem(pod, f"PodResourceClaim {entry.name}: {message}")


def _possible_names(pod: Pod, entry: PodResourceClaim) -> Iterator[str]:
    """Candidate names for the claim, in a fixed order; the first free one is used.

    A claim that replaces another gets a different name, because a node may still use the old claim.
    """
    recorded = (
        status.resource_claim_name for status in pod.status.resource_claim_statuses if status.name == entry.name
    )
    seed = f"{pod.metadata.uid}/{entry.name}/{next(recorded, '') or ''}"
    base = name_base(pod.metadata.name, entry.name)
    return (f"{base}{suffix(seed, attempt)}" for attempt in range(NAME_ATTEMPTS_MAX))


def name_base(pod: str, entry: str) -> str:
    """The prefix of the claim's name. If it is too long, both parts are shortened in proportion."""
    base = f"{pod}-{entry}-"
    if len(base) <= BASE_LENGTH_MAX:
        return base
    pod_part, entry_part = (part[: len(part) * BASE_LENGTH_MAX // len(base)] for part in (pod, entry))
    # A name part that ends in a dot is invalid.
    return f"{pod_part.rstrip('.-')}-{entry_part}"


# --- Reservations -----------------------------------------------------------------------------------------------


def _plan_reservations(pod: Pod, context: PodContext) -> Iterator[Reserve | ReportProblem]:
    """A pod with a node must be reserved; a scheduler without DRA support or a person may have bound it."""
    if not pod.spec.node_name:
        return
    for use in pod_claims.claims_of(pod):
        claim = context.find_claim(use.claim)
        if claim is None or not pod_claims.may_use(use, claim, pod) or not needs_reservation(claim, pod, context.gates):
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


def with_reservations(claim: ResourceClaim, pods: Iterable[Pod], gates: FeatureGates) -> tuple[ConsumerReference, ...]:
    """The consumers of the claim and those of the pods that need a reservation, as many as a claim can have."""
    added = {pod_claims.pod_reference(pod): None for pod in pods if needs_reservation(claim, pod, gates)}
    return (*claim.status.reserved_for, *added)[: max(RESERVED_FOR_COUNT_MAX, len(claim.status.reserved_for))]


def needs_reservation(claim: ResourceClaim, pod: Pod, gates: FeatureGates) -> bool:
    """True if the pod must be added to `reservedFor`. A workload that is listed stands for all its pods."""
    if claim.status.allocation is None or claim.metadata.deletion_timestamp is not None:
        return False
    if "DRAReservedForWorkloads" in gates:
        return not (pod_claims.is_held_by_workload(claim) or pod_claims.is_reserved_for(claim, pod))
    return all(reference.uid != pod.metadata.uid for reference in claim.status.reserved_for)
