"""Why a group of pods gets its nodes, or none: its members, what is missing for the rest, and what would help.

Everything is asked of the scheduler's gang cycle. Of a gang that does not fit, the largest part that fits together is shown: the
members that would be placed if the gang needed no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from dralloc.answers.blockers import Blocker, Stage
from dralloc.answers.engine import Engine
from dralloc.answers.explanation.remedies import Remedy
from dralloc.answers.explanation.report import Explanation, FitVerdict, Question, explain
from dralloc.answers.explanation.text import headline, plain_explanation
from dralloc.answers.object_changes import InapplicableChange
from dralloc.answers.preemption_preview import GangPreemptionPreview
from dralloc.answers.template_claims import MissingTemplate
from dralloc.devices.identity import ClaimId, DeviceId
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.primitives.phrases import counted
from dralloc.scheduler.contract import Placement
from dralloc.scheduler.decide.gang_cycle import GangPlacement, GangRejection, GangRequest
from dralloc.scheduler.group_requests import GroupNotReady
from dralloc.scheduler.state.group_members import PodGroupKey

ALLOCATED: Final = "Allocated"
BLOCKED: Final = "Blocked"
# For larger gangs, a change is not tried with all members.
TRIED_MEMBERS_MAX: Final = 200
MEMBERS_SHOWN_MAX: Final = 50


class MemberState(StrEnum):
    # It has a node.
    PLACED = "Placed"
    # It would get one with the others.
    FITS = "Fits"
    # It is what is missing.
    MISSING = "Missing"
    # The scheduler does not look at it.
    WAITING = "Waiting"


@dataclass(frozen=True, slots=True)
class MemberStanding:
    """One member; `devices` are those that it has or would get, with the request or the alternative that they serve."""

    name: str
    state: MemberState
    node: str = ""
    devices: tuple[str, ...] = ()
    message: str = ""

    def line(self) -> str:
        where = f" on {self.node}" if self.node else ""
        what = f" with {', '.join(self.devices)}" if self.devices else ""
        why = f": {self.message}" if self.message else ""
        verb = {MemberState.PLACED: "has a node", MemberState.FITS: "would fit"}.get(self.state, self.state.lower())
        return f"{self.name} {verb}{where}{what}{why}"

    def values(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"pod": self.name, "state": self.state.value}
        if self.node:
            plain |= {"node": self.node, "devices": list(self.devices)}
        return {**plain, "message": self.message} if self.message else plain


@dataclass(frozen=True, slots=True)
class GroupExplanation:
    """The answer about one group. `missing` is the explanation of the first member without a place, beside those that fit."""

    subject: str
    verdict: str
    message: str
    members: tuple[MemberStanding, ...] = ()
    missing_name: str = ""
    missing: Explanation | None = None
    # With this `minCount`, the members that fit would be placed; 0 if none fits.
    smaller_min_count: int = 0
    preemption: GangPreemptionPreview | None = None
    blockers: tuple[Blocker, ...] = ()

    @property
    def is_good(self) -> bool:
        return not self.blockers

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        return self.missing.remedies if self.missing is not None else ()

    def lines(self) -> Iterator[str]:
        yield self.message
        yield from ("", "Members", *(f"  {each.line()}" for each in self.members[:MEMBERS_SHOWN_MAX]))
        if (hidden := len(self.members) - MEMBERS_SHOWN_MAX) > 0:
            yield f"  and {hidden:,} more"
        if self.missing is not None:
            subject = f"pod {self.missing_name}"
            yield from ("", f"Beside those that fit, {headline(self.missing, subject)}")
        if helps := list(self._help_lines()):
            yield from ("", "It would be placed if you", *(f"  {line}" for line in helps))
        if self.preemption is not None:
            yield from ("", f"It {self.preemption.summary}", *(f"  {line}" for line in self.preemption.lines()))

    def _help_lines(self) -> Iterator[str]:
        if self.smaller_min_count:
            yield f"set spec.schedulingPolicy.gang.minCount to {self.smaller_min_count}"
        for remedy in self.remedies:
            yield f"{remedy.change.text} ({self.missing_name} then gets {remedy.node})"

    def values(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"subject": self.subject, "verdict": self.verdict, "message": self.message}
        plain["members"] = [each.values() for each in self.members]
        if self.missing is not None:
            plain["missing"] = plain_explanation(self.missing, f"pod {self.missing_name}")
        if self.smaller_min_count:
            plain["smallerMinCount"] = self.smaller_min_count
        if self.preemption is not None:
            plain["preemption"] = self.preemption.values()
        blockers = [
            {"stage": each.stage.value, "reason": each.reason, "message": each.message} for each in self.blockers
        ]
        return {**plain, "blockers": blockers}


def explain_group(engine: Engine, key: PodGroupKey) -> GroupExplanation:
    subject = subject_of_group(key)
    members = engine.groups.members(key)
    request = engine.groups.request(key)
    if isinstance(request, GroupNotReady):
        blocker = Blocker(Stage.GROUP, "GroupError" if request.is_error else "GroupNotReady", request.message)
        standings = tuple(_standings(engine, members, None, request.message))
        return GroupExplanation(subject, BLOCKED, f"{subject}: {request.message}", standings, blockers=(blocker,))
    if not request.pods:
        standings = tuple(_standings(engine, members, None, ""))
        message = f"{subject}: {_has_nodes(standings)}"
        return GroupExplanation(subject, ALLOCATED, message, standings)
    engine.groups.release(request)
    with engine.groups.tried(request) as decision:
        if isinstance(decision, GangPlacement):
            return _explain_placed(engine, subject, members, decision)
    return _explain_rejected(engine, key, subject, request, decision)


def subject_of_group(key: PodGroupKey) -> str:
    return f"{'gang of' if key.is_of_owner else 'pod group'} {key.namespace}/{key.name}"


@dataclass(frozen=True, slots=True)
class GroupRefusal:
    """Why a member gets no node with its group, and what would be evicted for the group."""

    blocker: Blocker
    preemption: GangPreemptionPreview | None = None


def member_answer(engine: Engine, pod: Pod, key: PodGroupKey) -> MemberStanding | GroupRefusal:
    """What a member that waits gets with its group."""
    subject = subject_of_group(key)
    request = engine.groups.request(key)
    if isinstance(request, GroupNotReady):
        return GroupRefusal(Blocker(Stage.GROUP, "GroupNotReady", f"{subject}: {request.message}"))
    engine.groups.release(request)
    with engine.groups.tried(request) as decision:
        if isinstance(decision, GangRejection):
            blocker = Blocker(Stage.GROUP, "GroupDoesNotFit", f"{subject} does not fit: {decision.message}")
            return GroupRefusal(blocker, engine.groups.preemption(request))
        (standing,) = _standings(engine, (pod,), decision, "")
    if standing.state is MemberState.FITS:
        return standing
    message = f"there is no room beside the other pods of {subject}: {standing.message}"
    return GroupRefusal(Blocker(Stage.GROUP, "NoRoomBesideGroup", message))


def for_group(engine: Engine, key: PodGroupKey, name: str, explanation: Explanation) -> Explanation:
    """The explanation of the member of this name, with the changes that make the whole group fit."""
    return replace(explanation, remedies=tuple(_for_group(engine, key, name, explanation.remedies)))


def _explain_placed(engine: Engine, subject: str, members: Iterable[Pod], decision: GangPlacement) -> GroupExplanation:
    standings = tuple(_standings(engine, members, decision, ""))
    missing = [each.message for each in standings if each.state is MemberState.MISSING]
    more = counted(len(missing), "more pod")
    if not decision.placed:
        message = f"{subject} has the nodes that it needs; there is no room for {more}: {missing[0]}"
        blocker = Blocker(Stage.SCHEDULING, "NoRoomBesideGroup", missing[0])
        return GroupExplanation(subject, FitVerdict.DOES_NOT_FIT.value, message, standings, blockers=(blocker,))
    beyond = f"; there is no room for {more}" if missing else ""
    message = f"{subject} fits: {counted(len(decision.placed), 'pod')} would get nodes together{beyond}"
    return GroupExplanation(subject, FitVerdict.FITS.value, message, standings)


def _explain_rejected(
    engine: Engine, key: PodGroupKey, subject: str, request: GangRequest, decision: GangRejection
) -> GroupExplanation:
    members = engine.groups.members(key)
    verdict = FitVerdict.UNDECIDED if decision.is_undecided else FitVerdict.DOES_NOT_FIT
    message = f"{subject} does not fit: {decision.message}"
    if decision.is_error:
        verdict, message = FitVerdict.ERROR, f"{subject} cannot be placed: {decision.message}"
    found = GroupExplanation(
        subject,
        verdict.value,
        message,
        preemption=engine.groups.preemption(request) if not decision.is_error else None,
        blockers=(Blocker(Stage.SCHEDULING, verdict.value, decision.message),),
    )
    part = engine.groups.largest_part(request)
    if part is None:
        found = _with_members(engine, members, found, GangPlacement((), decision.members))
    else:
        with engine.groups.tried(part) as smaller:
            assert isinstance(smaller, GangPlacement)
            found = _with_members(engine, members, found, smaller)
        found = replace(found, smaller_min_count=0 if key.is_of_owner else part.min_count)
    if found.missing is None:
        return found
    return replace(found, missing=for_group(engine, key, found.missing_name, found.missing))


def _with_members(
    engine: Engine, members: Iterable[Pod], found: GroupExplanation, decision: GangPlacement
) -> GroupExplanation:
    """With the explanation of the first member that gets no node while the others have theirs."""
    found = replace(found, members=tuple(_standings(engine, members, decision, "")))
    for pod, _ in decision.others:
        question = Question.about(engine, pod)
        if question.verdicts:
            return replace(found, missing_name=pod.metadata.name, missing=explain(question))
    return found


def _for_group(engine: Engine, key: PodGroupKey, name: str, remedies: Iterable[Remedy]) -> Iterator[Remedy]:
    if len(engine.groups.members(key)) > TRIED_MEMBERS_MAX:
        return
    for remedy in remedies:
        try:
            with engine.trial(remedy.change.objects) as trial:
                request = trial.groups.request(key)
                decision = trial.groups.decide(request) if isinstance(request, GangRequest) else None
        except (InapplicableChange, MissingTemplate):
            continue
        for pod, placement in decision.placed if isinstance(decision, GangPlacement) else ():
            if pod.metadata.name == name:
                yield replace(remedy, placement=Placement(placement.node))


# --- Members --------------------------------------------------------------------------------------------------------------


def _standings(
    engine: Engine, members: Iterable[Pod], decision: GangPlacement | None, message: str
) -> Iterator[MemberStanding]:
    placed = {pod.metadata.name: (pod, place.node) for pod, place in decision.placed} if decision is not None else {}
    refused = {pod.metadata.name: each.message for pod, each in decision.others} if decision is not None else {}
    for pod in members:
        name = pod.metadata.name
        if pod.spec.node_name:
            held = tuple(_devices(engine.claims_of(pod)))
            yield MemberStanding(name, MemberState.PLACED, pod.spec.node_name, held)
        elif name in placed:
            completed, node = placed[name]
            yield MemberStanding(name, MemberState.FITS, node, tuple(_devices(engine.claims_of(completed))))
        elif name in refused:
            yield MemberStanding(name, MemberState.MISSING, message=refused[name])
        else:
            blockers = engine.blockers(pod)
            why = blockers[0].message if blockers else message
            yield MemberStanding(name, MemberState.WAITING, message=why)


def _devices(claims: Iterable[ResourceClaim]) -> Iterator[str]:
    for claim in claims:
        for result in claim.status.allocation.devices.results if claim.status.allocation is not None else ():
            yield f"{DeviceId.of(result)} for {ClaimId.of(claim).name} {result.request}"


def _has_nodes(standings: tuple[MemberStanding, ...]) -> str:
    placed = [each for each in standings if each.state is MemberState.PLACED]
    if not standings:
        return "it has no pods"
    return f"all {counted(len(placed), 'pod')} have nodes" if len(placed) > 1 else "its pod has a node"
