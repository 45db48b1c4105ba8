"""Why a pod or a claim gets its devices, or none: the scheduler's verdicts on every node, and what would change them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from dralloc.api.core_v1 import Node
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import ResourceClaim
from dralloc.devices.identity import ClaimId, DeviceId
from dralloc.scheduler.contract import Placement, Rejection
from dralloc.scheduler.decide.node_verdicts import Fits
from dralloc.whatif.allocations import subject_of_claim, subject_of_pod
from dralloc.whatif.engine import Engine
from dralloc.whatif.explanation.json_form import plain_explanation
from dralloc.whatif.explanation.report import Explanation, FitVerdict, Question, explain
from dralloc.whatif.explanation.text import lines
from dralloc.whatif.template_claims import MissingTemplate, pod_for_claim

ALLOCATED: Final = "Allocated"


@dataclass(frozen=True, slots=True)
class SubjectExplanation:
    """The answer about one pod or claim: a message alone, or an explanation; and the devices that its claims have."""

    subject: str
    verdict: str
    message: str = ""
    explanation: Explanation | None = None
    held: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        return self.verdict in (FitVerdict.FITS.value, ALLOCATED)

    def lines(self) -> Iterator[str]:
        if self.explanation is None:
            yield self.message
            yield from self.held
            return
        yield from lines(self.explanation, self.subject)
        if self.held:
            yield from ("", "Allocated claims", *(f"  {line}" for line in self.held))

    def values(self) -> dict[str, Any]:
        if self.explanation is None:
            plain = {"subject": self.subject, "verdict": self.verdict, "message": self.message}
            return {**plain, "devices": list(self.held)} if self.verdict == ALLOCATED else plain
        plain = plain_explanation(self.explanation, self.subject)
        return {**plain, "allocated": list(self.held)} if self.held else plain


def explain_claim(engine: Engine, claim: ResourceClaim) -> SubjectExplanation:
    subject = subject_of_claim(claim)
    if claim.status.allocation is not None:
        held = tuple(_held_lines(claim))
        return SubjectExplanation(subject, ALLOCATED, f"{subject} has its devices already", held=held)
    return _explain(engine, pod_for_claim(claim), subject)


def explain_pod(engine: Engine, pod: Pod) -> SubjectExplanation:
    subject = subject_of_pod(pod)
    try:
        completed = engine.complete(pod)
    except MissingTemplate as error:
        return _refused(subject, str(error))
    claims = engine.claims_of(completed)
    if pod.spec.node_name and all(claim.status.allocation is not None for claim in claims):
        message = f"{subject} is on node {pod.spec.node_name} already{_going(claims)}{_idle(engine, pod)}"
        return SubjectExplanation(subject, ALLOCATED, message, held=_all_held(claims))
    with engine.without(pod):
        return _explain(engine, completed, subject)


def _explain(engine: Engine, pod: Pod, subject: str) -> SubjectExplanation:
    claims, question = engine.claims_of(pod), Question.about(engine, pod)
    # Where no node fits, the verdicts are all that there is to the decision.
    if not question.verdicts or any(isinstance(question.verdicts[node.name], Fits) for node in question.nodes):
        decision = engine.decide(pod)
        if isinstance(decision, Rejection):
            return _refused(subject, decision.message)
        question = replace(question, chosen=decision.node if isinstance(decision, Placement) else "")
    explanation = explain(question)
    return SubjectExplanation(subject, explanation.verdict.value, explanation=explanation, held=_all_held(claims))


def _refused(subject: str, message: str) -> SubjectExplanation:
    return SubjectExplanation(subject, FitVerdict.ERROR.value, f"{subject} cannot be scheduled: {message}")


def _idle(engine: Engine, pod: Pod) -> str:
    """Why a pod that has its node does not run there, if the node says so."""
    node = engine.objects.all(Node).get(("", pod.spec.node_name))
    if node is None or pod.status.phase not in ("", "Pending"):
        return ""
    for each in node.status.conditions:
        if each.type == "Ready" and each.status != "True":
            why = f" ({each.message or each.reason})" if each.message or each.reason else ""
            return f" and does not run: the node is not ready{why}; delete the pod to have it scheduled again"
    return ""


def _going(claims: tuple[ResourceClaim, ...]) -> str:
    """Which claims were deleted while the pod uses them."""
    going = [claim.metadata.name for claim in claims if claim.metadata.deletion_timestamp is not None]
    return "".join(f"; its claim {name} will be deleted when no pod uses it" for name in going)


def _all_held(claims: tuple[ResourceClaim, ...]) -> tuple[str, ...]:
    return tuple(line for claim in claims for line in _held_lines(claim))


def _held_lines(claim: ResourceClaim) -> Iterator[str]:
    if claim.status.allocation is None:
        return
    for result in claim.status.allocation.devices.results:
        consumed = ",".join(f"{name}={amount}" for name, amount in result.consumed_capacity.items())
        share = consumed or ("a share" if result.share_id else "")
        line = f"{ClaimId.of(claim)}: request {result.request} has {DeviceId.of(result)}"
        yield f"{line} ({share})" if share else line
