"""The claims that are created from templates for a pod or for a PodGroup: found again, or planned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from dralloc.controllers.claim_creation import CreateClaim, ReportProblem, claim_document, labels_of_template
from dralloc.kube import pod_claims
from dralloc.kube.pod_v1 import Pod, PodResourceClaim
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.kube.scheduling_v1beta1 import API_VERSION, PodGroup, PodGroupResourceClaim
from dralloc.kube.unstructured_object import UnstructuredObject
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.names import suffix

# With the suffix, a name stays within the 63 characters of a label.
BASE_LENGTH_MAX: Final = 57
# Names collide only if five random-looking characters do; so many collisions in a row do not happen.
NAME_ATTEMPTS_MAX: Final = 10

ClaimOwner = Pod | PodGroup
ClaimEntry = PodResourceClaim | PodGroupResourceClaim


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimObjects:
    """The claims and templates in the owner's namespace. A claim that is not found does not exist."""

    find_claim: Callable[[str], ResourceClaim | None]
    find_template: Callable[[str], UnstructuredObject | None]
    # The claims that an object controls, by its UID.
    claims_made_for: Callable[[str], Iterable[ResourceClaim]]
    gates: FeatureGates


def claim_in_place(name: str | None, owner: ClaimOwner, objects: ClaimObjects) -> ResourceClaim | None:
    """The claim of this name, if it exists and was made for the owner."""
    claim = None if name is None else objects.find_claim(name)
    return claim if claim is not None and pod_claims.is_made_for(claim, owner) else None


def find_made(owner: ClaimOwner, entry: ClaimEntry, objects: ClaimObjects) -> ResourceClaim | None:
    """A claim that was made for the entry, recorded or not: a crash or a stale cache may have prevented the record."""
    made = [claim for claim in objects.claims_made_for(owner.metadata.uid) if _is_for(claim, owner, entry)]
    return min(made, key=lambda claim: claim.metadata.name, default=None)


def find_or_create(
    owner: ClaimOwner, entry: ClaimEntry, objects: ClaimObjects
) -> ResourceClaim | CreateClaim | ReportProblem:
    if (made := find_made(owner, entry, objects)) is not None:
        return made
    for name in _possible_names(owner, entry):
        claim = objects.find_claim(name)
        if claim is None:
            return _plan_creation(owner, entry, name, objects)
        if _is_for(claim, owner, entry):
            return claim
    return problem(owner, entry, "all candidate names for the claim are in use")


def problem(owner: ClaimOwner, entry: ClaimEntry, message: str) -> ReportProblem:
    return ReportProblem(owner, f"{type(entry).__name__} {entry.name}: {message}")


def _is_for(claim: ResourceClaim, owner: ClaimOwner, entry: ClaimEntry) -> bool:
    return (
        pod_claims.is_made_for(claim, owner)
        and claim.metadata.annotations.get(pod_claims.POD_CLAIM_NAME) == entry.name
        and claim.metadata.deletion_timestamp is None
    )


def _plan_creation(
    owner: ClaimOwner, entry: ClaimEntry, name: str, objects: ClaimObjects
) -> CreateClaim | ReportProblem:
    assert entry.resource_claim_template_name is not None, "claims are created only for entries with templates"
    template = objects.find_template(entry.resource_claim_template_name)
    if template is None:
        return problem(owner, entry, f'resource claim template "{entry.resource_claim_template_name}" not found')
    labels = labels_of_template(template)
    for gate, used in (("DRAAdminAccess", labels.admin_access), ("DRAPrioritizedList", labels.prioritized_list)):
        if used == "true" and gate not in objects.gates:
            return problem(
                owner, entry, f'template "{template.metadata.name}" requires the feature gate {gate}, which is disabled'
            )
    document = claim_document(
        owner,
        template,
        {"apiVersion": API_VERSION if isinstance(owner, PodGroup) else "v1", "kind": type(owner).__name__},
        name=name,
        generateName=name_base(owner.metadata.name, entry.name),
        annotations={pod_claims.POD_CLAIM_NAME: entry.name},
    )
    return CreateClaim(owner, document, labels)


def _possible_names(owner: ClaimOwner, entry: ClaimEntry) -> Iterator[str]:
    """Candidate names for the claim, in a fixed order; the first free one is used.

    A claim that replaces another gets a different name, because a node may still use the old claim.
    """
    recorded = (
        status.resource_claim_name for status in owner.status.resource_claim_statuses if status.name == entry.name
    )
    seed = f"{owner.metadata.uid}/{entry.name}/{next(recorded, '') or ''}"
    base = name_base(owner.metadata.name, entry.name)
    return (f"{base}{suffix(seed, attempt)}" for attempt in range(NAME_ATTEMPTS_MAX))


def name_base(owner: str, entry: str) -> str:
    """The prefix of the claim's name. If it is too long, both parts are shortened in proportion."""
    base = f"{owner}-{entry}-"
    if len(base) <= BASE_LENGTH_MAX:
        return base
    owner_part, entry_part = (part[: len(part) * BASE_LENGTH_MAX // len(base)] for part in (owner, entry))
    # A name part that ends in a dot is invalid.
    return f"{owner_part.rstrip('.-')}-{entry_part}"
