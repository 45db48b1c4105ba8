"""Which devices pods and claims would get, one after the other, each from what the ones before it left."""

from __future__ import annotations

from dataclasses import dataclass, field

from dralloc.answers.engine import Engine, pods_by_priority
from dralloc.answers.placements import UnplacedPod
from dralloc.devices.identity import ClaimId
from dralloc.kube.extended_resources import extended_names
from dralloc.kube.pod_claims import claims_of, controller_of
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim


@dataclass(frozen=True, slots=True)
class ClaimOnNode:
    """A claim with its devices, and the node where it gets them."""

    claim: ResourceClaim
    node: str


@dataclass(frozen=True, slots=True)
class RefusedSubject:
    """A pod or claim that gets nothing; `message` completes the sentence that begins with the subject."""

    subject: str
    message: str


@dataclass(frozen=True, slots=True)
class Allocations:
    allocated: list[ClaimOnNode] = field(default_factory=list)
    refusals: list[RefusedSubject] = field(default_factory=list)


def allocate_waiting(engine: Engine, namespace: str | None) -> Allocations:
    """Every pod that waits for a node or for devices, by priority and age; then every claim that no pod uses."""
    answer = Allocations()
    used: set[ClaimId] = set()
    for pod in pods_by_priority(engine.objects, namespace):
        used.update(ClaimId(pod.metadata.namespace, use.claim) for use in claims_of(pod))
        if pod.spec.resource_claims or extended_names(pod.spec):
            _add(answer, engine, pod, subject_of_pod(pod))
        elif not pod.spec.node_name:
            # It gets no devices, but its part of a node.
            engine.place(pod)
    for claim in engine.objects.all(ResourceClaim).values():
        is_meant = namespace in (None, claim.metadata.namespace) and claim.status.allocation is None
        if is_meant and ClaimId.of(claim) not in used and not _is_of_pod(claim):
            _add(answer, engine, engine.pod_for(claim), subject_of_claim(claim))
    return answer


def allocate_pod(engine: Engine, pod: Pod) -> Allocations:
    """The claims of the pod, including those that have devices."""
    answer = Allocations()
    _add(answer, engine, pod, subject_of_pod(pod), only_new=False)
    return answer


def allocate_claim(engine: Engine, claim: ResourceClaim) -> Allocations:
    answer = Allocations()
    if claim.status.allocation is not None:
        answer.allocated.append(ClaimOnNode(claim, _node_of(claim)))
    else:
        _add(answer, engine, engine.pod_for(claim), subject_of_claim(claim))
    return answer


def subject_of_pod(pod: Pod) -> str:
    return f"pod {pod.metadata.namespace}/{pod.metadata.name}"


def subject_of_claim(claim: ResourceClaim) -> str:
    return f"claim {ClaimId.of(claim)}"


def _add(answer: Allocations, engine: Engine, pod: Pod, subject: str, *, only_new: bool = True) -> None:
    placed = engine.place(pod)
    if isinstance(placed, UnplacedPod):
        verb = "cannot be allocated" if placed.is_error else "does not fit"
        answer.refusals.append(RefusedSubject(subject, f"{verb}: {placed.message}"))
        return
    for claim in placed.claims:
        if not only_new or ClaimId.of(claim) in placed.new:
            answer.allocated.append(ClaimOnNode(claim, placed.node))


def _is_of_pod(claim: ResourceClaim) -> bool:
    """True if the claim was made for a pod. It is for this pod alone, which may not have recorded it yet."""
    owner = controller_of(claim.metadata)
    return owner is not None and owner.kind == "Pod"


def _node_of(claim: ResourceClaim) -> str:
    """The only node that can use the allocated claim; `-` if there may be several."""
    allocation = claim.status.allocation
    selector = allocation.node_selector if allocation is not None else None
    terms = (selector.node_selector_terms or ()) if selector is not None else ()
    named = [field.values for term in terms for field in term.match_fields if field.operator == "In"]
    return named[0][0] if len(terms) == 1 and len(named) == 1 and len(named[0]) == 1 else "-"
