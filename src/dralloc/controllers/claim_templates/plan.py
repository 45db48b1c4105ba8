"""What a pod needs so that it has the claims that its templates ask for, and may use those that it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec.structs import replace

from dralloc.api.pod_claims import (
    POD_CLAIM_NAME,
    claims_of,
    is_held_by_workload,
    is_made_for,
    is_reserved_for,
    may_use,
)
from dralloc.api.pod_v1 import Pod, PodResourceClaim, PodResourceClaimStatus
from dralloc.api.resource_v1 import ResourceClaim, ResourceClaimTemplate
from dralloc.api.timestamps import parse_timestamp
from dralloc.api.unstructured_object import UnstructuredObject, view
from dralloc.controllers.metrics import SpecLabels
from dralloc.controllers.name_suffixes import suffix
from dralloc.primitives.features import FeatureGates

# With a hyphen and five more characters, a name stays within the 63 of a label.
BASE_LENGTH_MAX: Final = 57
# Two pods can come to the same name only by an accident of five characters; this many accidents do not happen.
NAME_ATTEMPTS_MAX: Final = 10
# What was written so long ago, we would know.
SHOWN_AFTER: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class CreateClaim:
    """Make a claim for an entry of the pod."""

    pod: Pod
    entry: str
    document: dict[str, Any]
    labels: SpecLabels


@dataclass(frozen=True, slots=True)
class RecordClaims:
    """Write into the pod's status which claim was made for which entry; all that are known, sorted."""

    pod: Pod
    names: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Reserve:
    """List the pod, which has a node already, among the users of a claim that is allocated."""

    pod: Pod
    claim: str


@dataclass(frozen=True, slots=True)
class ReportProblem:
    """Tell the pod's owner why a claim cannot be made. Nothing is written to the pod."""

    pod: Pod
    message: str


PodAction = CreateClaim | RecordClaims | Reserve | ReportProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What exists around a pod, in its namespace. A claim that is not found does not exist."""

    find_claim: Callable[[str], ResourceClaim | None]
    find_template: Callable[[str], UnstructuredObject | None]
    # The claims that belong to the pod.
    own_claims: Sequence[ResourceClaim]
    gates: FeatureGates
    now: datetime


@dataclass(frozen=True, slots=True)
class PodPlan:
    """What to do for a pod, in this order, and when to look at it again although nothing happens."""

    actions: tuple[PodAction, ...] = ()
    look_again: timedelta | None = None


def plan_pod(pod: Pod, around: Surroundings) -> PodPlan:
    """What the pod needs. One that ends needs nothing any more."""
    if pod.is_terminating or pod.is_finished:
        return PodPlan()
    actions: list[PodAction] = []
    recorded = {entry.name: entry.resource_claim_name for entry in pod.status.resource_claim_statuses}
    names = dict(recorded)
    for entry in pod.spec.resource_claims:
        # An entry that is recorded without a claim needs none.
        if entry.resource_claim_template_name is None or recorded.get(entry.name, "unknown") is None:
            continue
        if _is_in_place(recorded.get(entry.name), pod, around):
            continue
        found = _find_or_make(pod, entry, around)
        if isinstance(found, ResourceClaim):
            names[entry.name] = found.metadata.name
        else:
            actions.append(found)
            if isinstance(found, CreateClaim):
                names[entry.name] = found.document["metadata"]["name"]
    if names != recorded:
        actions.append(RecordClaims(pod, tuple(sorted((entry, name) for entry, name in names.items() if name))))
    reservations = tuple(_plan_reservations(_with_claims(pod, names), around))
    pause = _just_bound(pod, around.now)
    if reservations and pause > timedelta():
        return PodPlan(tuple(actions), pause)
    return PodPlan((*actions, *reservations))


def _with_claims(pod: Pod, names: Mapping[str, str | None]) -> Pod:
    statuses = tuple(PodResourceClaimStatus(name=entry, resource_claim_name=name) for entry, name in names.items())
    return replace(pod, status=replace(pod.status, resource_claim_statuses=statuses))


def _is_in_place(name: str | None, pod: Pod, around: Surroundings) -> bool:
    claim = None if name is None else around.find_claim(name)
    return claim is not None and is_made_for(claim, pod)


# --- Making a claim ---------------------------------------------------------------------------------------------


def _find_or_make(
    pod: Pod, entry: PodResourceClaim, around: Surroundings
) -> ResourceClaim | CreateClaim | ReportProblem:
    """A claim that was made for the entry and not recorded (somebody died in between, or it was just now); else a new one."""
    orphans = [claim for claim in around.own_claims if _is_for(claim, pod, entry)]
    if orphans:
        return min(orphans, key=lambda claim: claim.metadata.name)
    for name in _possible_names(pod, entry):
        claim = around.find_claim(name)
        if claim is None:
            return _plan_creation(pod, entry, name, around)
        if _is_for(claim, pod, entry):
            return claim
    return _problem(pod, entry, "every name for the claim is taken")


def _is_for(claim: ResourceClaim, pod: Pod, entry: PodResourceClaim) -> bool:
    return (
        is_made_for(claim, pod)
        and claim.metadata.annotations.get(POD_CLAIM_NAME) == entry.name
        and claim.metadata.deletion_timestamp is None
    )


def _plan_creation(pod: Pod, entry: PodResourceClaim, name: str, around: Surroundings) -> CreateClaim | ReportProblem:
    assert entry.resource_claim_template_name is not None, "only entries with templates have claims made"
    template = around.find_template(entry.resource_claim_template_name)
    if template is None:
        return _problem(pod, entry, f'resource claim template "{entry.resource_claim_template_name}" not found')
    labels = SpecLabels.of(view(template, ResourceClaimTemplate).spec.spec)
    for gate, used in (("DRAAdminAccess", labels.admin_access), ("DRAPrioritizedList", labels.prioritized_list)):
        if used == "true" and gate not in around.gates:
            return _problem(
                pod, entry, f'template "{template.metadata.name}" needs the feature gate {gate}, which is off'
            )
    return CreateClaim(pod, entry.name, _claim_document(pod, entry, template, name), labels)


def _problem(pod: Pod, entry: PodResourceClaim, message: str) -> ReportProblem:
    return ReportProblem(pod, f"PodResourceClaim {entry.name}: {message}")


def _possible_names(pod: Pod, entry: PodResourceClaim) -> Iterator[str]:
    """Names for a claim, the same each time as long as things are as they are; the first that is free is taken.

    A claim that takes the place of another gets another name: a node may still be busy with the old one.
    """
    recorded = (
        status.resource_claim_name for status in pod.status.resource_claim_statuses if status.name == entry.name
    )
    seed = f"{pod.metadata.uid}/{entry.name}/{next(recorded, '') or ''}"
    base = name_base(pod.metadata.name, entry.name)
    return (f"{base}{suffix(seed, attempt)}" for attempt in range(NAME_ATTEMPTS_MAX))


def name_base(pod: str, entry: str) -> str:
    """How names of claims for the entry begin. Where that gets too long, both parts give way in proportion."""
    base = f"{pod}-{entry}-"
    if len(base) <= BASE_LENGTH_MAX:
        return base
    pod_part, entry_part = (part[: len(part) * BASE_LENGTH_MAX // len(base)] for part in (pod, entry))
    # A part that was cut behind a dot would make a name that no server takes.
    return f"{pod_part.rstrip('.-')}-{entry_part}"


def _claim_document(pod: Pod, entry: PodResourceClaim, template: UnstructuredObject, name: str) -> dict[str, Any]:
    wanted: dict[str, Any] = template.member("spec")
    metadata = wanted.get("metadata") or {}
    return {
        "metadata": {
            "name": name,
            "generateName": name_base(pod.metadata.name, entry.name),
            "namespace": pod.metadata.namespace,
            "labels": metadata.get("labels") or {},
            "annotations": {**(metadata.get("annotations") or {}), POD_CLAIM_NAME: entry.name},
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": pod.metadata.name,
                    "uid": pod.metadata.uid,
                    "controller": True,
                }
            ],
        },
        "spec": wanted.get("spec") or {},
    }


# --- Reservations -----------------------------------------------------------------------------------------------


def _plan_reservations(pod: Pod, around: Surroundings) -> Iterator[Reserve]:
    """A pod that has a node must be listed with its claims: whoever gave it the node may not have known that."""
    if not pod.spec.node_name:
        return
    for use in claims_of(pod):
        claim = around.find_claim(use.claim)
        if claim is not None and may_use(use, claim, pod) and needs_reservation(claim, pod, around.gates):
            yield Reserve(pod, use.claim)


def _just_bound(pod: Pod, now: datetime) -> timedelta:
    """How much longer to wait for the scheduler's own reservation to be shown to us: it was written before the binding."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "True" and condition.last_transition_time:
            return parse_timestamp(condition.last_transition_time) + SHOWN_AFTER - now
    return timedelta()


def needs_reservation(claim: ResourceClaim, pod: Pod, gates: FeatureGates) -> bool:
    """Whether the pod is to be listed. Beside a workload that holds the claim for all its pods, it is not."""
    if claim.status.allocation is None or claim.metadata.deletion_timestamp is not None:
        return False
    if "DRAReservedForWorkloads" in gates:
        return not (is_held_by_workload(claim) or is_reserved_for(claim, pod))
    return all(reference.uid != pod.metadata.uid for reference in claim.status.reserved_for)
