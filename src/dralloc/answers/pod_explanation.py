"""The question of `dralloc explain`: why a pod, a claim or a group of pods gets its devices, or none. The command and the server both ask it here."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from dralloc.answers.claim_story import events_of_claim
from dralloc.answers.cluster_objects import PLACEMENT_NEEDED, PLACEMENT_USEFUL, ClusterObjects, UnknownObject
from dralloc.answers.engine import Engine
from dralloc.answers.group_explanation import GroupExplanation, explain_group
from dralloc.kube.core_v1 import Event
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.primitives.errors import Forbidden, NotFound
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.settings import ONLY_SCHEDULER_NAMES
from dralloc.scheduler.state.group_members import PodGroupKey

if TYPE_CHECKING:
    from dralloc.client.transport import Transport
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from dralloc.answers.allocations import subject_of_claim, subject_of_pod
from dralloc.answers.blockers import Blocker, Stage
from dralloc.answers.claim_story import StoryStep, claim_story
from dralloc.answers.cluster_objects import exists
from dralloc.answers.explanation.report import Explanation, FitVerdict, Question, explain
from dralloc.answers.explanation.text import headline, lines, plain_explanation
from dralloc.answers.group_explanation import GroupRefusal, MemberStanding, for_group, member_answer, subject_of_group
from dralloc.answers.preemption_preview import GangPreemptionPreview, PreemptionPreview
from dralloc.answers.template_claims import MissingTemplate
from dralloc.devices.identity import ClaimId, text_of_result
from dralloc.kube.claim_event_reasons import DELETED
from dralloc.scheduler.contract import Placement, Rejection
from dralloc.scheduler.decide.node_verdicts import Fits


@dataclass(frozen=True, slots=True)
class SubjectQuestion:
    """About a `pod`, a `claim` or a `podgroup`, by NAMESPACE/NAME or by name; on any node, or on one."""

    kind: str
    name: str
    node: str | None = None
    scheduler_names: Collection[str] = ONLY_SCHEDULER_NAMES

    @property
    def needed(self) -> frozenset[type[ApiObject]]:
        """The kinds without which there is no answer."""
        return PLACEMENT_NEEDED | (set() if self.kind == "claim" else {Pod})

    @property
    def useful(self) -> frozenset[type[ApiObject]]:
        # Events tell what goes wrong on a pod's node, and what happened to a claim.
        return PLACEMENT_USEFUL | {Event}

    def events(self, namespace: str) -> str:
        """The field selector of the events that the answer reads; `namespace` is that of names that come without one."""
        if self.kind != "claim":
            return "involvedObject.kind=Pod"
        where, _, name = self._key(namespace).partition("/")
        return events_of_claim(where, name)

    def _key(self, namespace: str) -> str:
        return self.name if "/" in self.name else f"{namespace}/{self.name}"

    def answer(self, objects: ClusterObjects) -> SubjectExplanation | GroupExplanation:
        """Raises UnknownObject. What the user should know about the answer is added to the notes of the objects."""
        only_node = objects.find_node(self.node).metadata.name if self.node is not None else ""
        engine = partial(Engine, objects, objects.now, only_node=only_node, scheduler_names=self.scheduler_names)
        if self.kind == "pod":
            pod = objects.find(Pod, self.kind, self.name)
            return explain_pod(engine(), pod)
        if self.kind == "podgroup":
            group = objects.find(PodGroup, "pod group", self.name).metadata
            return explain_group(engine(), PodGroupKey(group.namespace, group.name))
        try:
            claim = objects.find(ResourceClaim, self.kind, self.name)
        except UnknownObject:
            where, _, name = self._key(objects.namespace).partition("/")
            if (found := explain_deleted_claim(where, name, objects.all(Event).values())) is not None:
                return found
            raise
        return explain_claim(engine(), claim)


async def ask_cluster(
    question: SubjectQuestion, transport: Transport, namespace: str, gates: FeatureGates, now: datetime | None = None
) -> tuple[SubjectExplanation | GroupExplanation, list[str]]:
    """The answer from the objects of a server, with notes; `now` is the time that it assumes.

    Raises NotFound, and Forbidden if a needed kind cannot be read.
    """
    # The command with -f starts faster without a client.
    from dralloc.answers.live_cluster import read_cluster

    objects = ClusterObjects(gates, place="the cluster", namespace=namespace)
    objects.now = now or objects.now
    wanted = question.needed | question.useful
    for kind, found in (await read_cluster(transport, namespace, wanted, events=question.events(namespace))).items():
        if found.is_missing and kind in question.needed:
            raise Forbidden(found.note)
        objects.add_read(found)
    if not objects.has_nodes:
        objects.notes.append("no Node objects can be read: assuming those that slices and pods name, without labels")
    try:
        return question.answer(objects), objects.notes
    except UnknownObject as error:
        raise NotFound(str(error)) from None


# --- Pod explanation ------------------------------------------------------------------------------------------------
# Why a pod or a claim gets its devices, or none: the scheduler's verdicts on every node, and what would change
# them.


__all__ = ["SubjectExplanation", "explain_claim", "explain_pod"]

ALLOCATED: Final = "Allocated"
# The pod has its node and runs there; as the node is now, it would not get it again.
NO_LONGER_FITS: Final = "NoLongerFits"
# Something else than the scheduler's decision blocks the pod.
BLOCKED: Final = "Blocked"
FINISHED: Final = "Finished"


@dataclass(frozen=True, slots=True)
class SubjectExplanation:
    """The answer about one pod or claim: a message alone, or an explanation; and the devices that its claims have.

    `blockers` are in the order of a pod's life. If there are none, nothing keeps the subject from its devices.
    """

    subject: str
    verdict: str
    message: str = ""
    explanation: Explanation | None = None
    held: tuple[str, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    # The pods that would be evicted for it.
    preemption: PreemptionPreview | GangPreemptionPreview | None = None
    # Of a claim.
    story: tuple[StoryStep, ...] = ()

    @property
    def is_good(self) -> bool:
        """True if nothing keeps the subject from its devices."""
        return not self.blockers

    def lines(self) -> Iterator[str]:
        """The answer as `dralloc explain` prints it."""
        if self.explanation is None:
            yield self.message
            yield from self.held
        elif self.message:
            yield from (self.message, "", "And then", *(f"  {line}" for line in lines(self.explanation, self.subject)))
        else:
            yield from lines(self.explanation, self.subject)
            if self.held:
                yield from ("", "Allocated claims", *(f"  {line}" for line in self.held))
        if self.preemption is not None:
            yield from ("", f"It {self.preemption.summary}", *(f"  {line}" for line in self.preemption.lines()))
        if len(self.blockers) > 1:
            yield from ("", "What blocks it, in this order", *(f"  {each.message}" for each in self.blockers))
        if self.story:
            yield from ("", "What happened", *(f"  {step.line()}" for step in self.story))

    def values(self) -> dict[str, Any]:
        """The answer as `dralloc explain -o json` prints it."""
        plain = plain_explanation(self.explanation, self.subject) if self.explanation is not None else {}
        if self.explanation is None or self.message:
            plain |= {"subject": self.subject, "verdict": self.verdict, "message": self.message}
        if self.held or self.verdict == ALLOCATED:
            plain["devices" if self.explanation is None else "allocated"] = list(self.held)
        blockers = [
            {"stage": each.stage.value, "reason": each.reason, "message": each.message} for each in self.blockers
        ]
        if self.preemption is not None:
            plain["preemption"] = self.preemption.values()
        if self.story:
            plain["story"] = [step.values() for step in self.story]
        return {**plain, "blockers": blockers}


def explain_claim(engine: Engine, claim: ResourceClaim) -> SubjectExplanation:
    """Why the claim gets no devices and what would help, or which it has or would get."""
    namespace, name = claim.metadata.namespace, claim.metadata.name
    events, pods = engine.objects.all(Event).values(), engine.objects.all(Pod).values()
    story = claim_story(claim, namespace, name, events, pods) if exists(claim) else ()
    # Its creation alone is no story: the first line says what is.
    return replace(_explain_claim(engine, claim), story=story if len(story) > 1 else ())


def explain_deleted_claim(namespace: str, name: str, events: Iterable[Event]) -> SubjectExplanation | None:
    """The story of a claim that does not exist any more; None if there are no events of it."""
    story = claim_story(None, namespace, name, events)
    if not story:
        return None
    subject = f"claim {namespace}/{name}"
    blocker = Blocker(Stage.CREATION, DELETED, "it does not exist any more")
    return SubjectExplanation(subject, DELETED, f"{subject} does not exist any more", blockers=(blocker,), story=story)


def _explain_claim(engine: Engine, claim: ResourceClaim) -> SubjectExplanation:
    subject = subject_of_claim(claim)
    if claim.status.allocation is not None:
        held = tuple(_held_lines(claim))
        return SubjectExplanation(subject, ALLOCATED, f"{subject} has its devices already", held=held)
    return _explain_waiting(engine, engine.pod_for(claim), subject)


def explain_pod(engine: Engine, pod: Pod) -> SubjectExplanation:
    """Why the pod gets no node and what would help, or where it is or would be."""
    subject = subject_of_pod(pod)
    if pod.is_finished:
        return SubjectExplanation(subject, FINISHED, f"{subject} has ended: {pod.status.phase}")
    return _explain_placed(engine, pod, subject) if pod.spec.node_name else _explain_waiting(engine, pod, subject)


def _explain_placed(engine: Engine, pod: Pod, subject: str) -> SubjectExplanation:
    claims, blockers = engine.claims_of(pod), engine.blockers(pod)
    verdict, message = ALLOCATED, f"{subject} is on node {pod.spec.node_name} already{_going(claims)}"
    if blockers:
        verdict, message = BLOCKED, f"{message} and does not run: {blockers[0].message}"
    elif misfit := engine.misfit_of(pod):
        verdict, message = NO_LONGER_FITS, f"{message}; it would not be placed there again: {misfit}"
    return SubjectExplanation(subject, verdict, message, held=_all_held(claims), blockers=blockers)


def _explain_waiting(engine: Engine, pod: Pod, subject: str) -> SubjectExplanation:
    blockers = engine.blockers(pod)
    key = engine.groups.key_of(pod)
    if key is not None and not blockers:
        return _explain_member(engine, pod, subject, key)
    return _blocked(_explain_alone(engine, pod, subject), blockers)


def _explain_alone(engine: Engine, pod: Pod, subject: str) -> SubjectExplanation:
    try:
        return _explain(engine, engine.complete(pod), subject)
    except MissingTemplate:
        return SubjectExplanation(subject, BLOCKED)


def _blocked(found: SubjectExplanation, blockers: tuple[Blocker, ...]) -> SubjectExplanation:
    if not blockers:
        return found
    subject = found.subject
    if found.verdict == FitVerdict.FITS.value:
        found = SubjectExplanation(subject, BLOCKED, held=found.held)
    message = f"{subject} cannot be scheduled: {blockers[0].message}"
    return replace(found, verdict=BLOCKED, message=message, blockers=(*blockers, *found.blockers))


def _explain_member(engine: Engine, pod: Pod, subject: str, key: PodGroupKey) -> SubjectExplanation:
    """The member of a group gets what the decision about the group says."""
    match member_answer(engine, pod, key):
        case MemberStanding(node=node, devices=devices):
            message = f"{subject} fits with the other pods of {subject_of_group(key)}: it gets node {node}"
            return SubjectExplanation(subject, FitVerdict.FITS.value, message, held=devices)
        case GroupRefusal(blocker, preemption):
            found = _explain_alone(engine, pod, subject)
            explanation = found.explanation and for_group(engine, key, pod.metadata.name, found.explanation)
            found = _blocked(replace(found, explanation=explanation), (blocker,))
            return replace(found, preemption=preemption)


def _explain(engine: Engine, pod: Pod, subject: str) -> SubjectExplanation:
    claims, question = engine.claims_of(pod), Question.about(engine, pod)
    # Where no node fits, the verdicts are all that there is to the decision.
    if not question.verdicts or any(isinstance(question.verdicts[node.name], Fits) for node in question.nodes):
        decision = engine.decide(pod)
        if isinstance(decision, Rejection):
            return _refused(subject, decision.message)
        question = replace(question, chosen=decision.node if isinstance(decision, Placement) else "")
    explanation = explain(question)
    verdict = explanation.verdict
    blockers: tuple[Blocker, ...] = ()
    if verdict is not FitVerdict.FITS:
        blockers = (
            Blocker(Stage.SCHEDULING, verdict.value, headline(explanation, subject).removeprefix(subject).strip()),
        )
    preemption = engine.preemption(pod) if verdict is FitVerdict.DOES_NOT_FIT else None
    return SubjectExplanation(
        subject,
        verdict.value,
        explanation=explanation,
        held=_all_held(claims),
        blockers=blockers,
        preemption=preemption,
    )


def _refused(subject: str, message: str) -> SubjectExplanation:
    blocker = Blocker(Stage.SCHEDULING, "Rejected", message)
    verdict = FitVerdict.ERROR.value
    return SubjectExplanation(subject, verdict, f"{subject} cannot be scheduled: {message}", blockers=(blocker,))


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
        yield f"{ClaimId.of(claim)}: request {result.request} has {text_of_result(result)}"
