"""The story of a claim: created, waited and why, allocated, reserved, prepared, released, deallocated, deleted.

Events tell what has been, also of a claim that is gone, as long as the server keeps them. The status tells what is; where both do, the
event is kept, because it says for whom. Only nodes know when devices were prepared; what they tell is a condition of the pods that use
the claim, so this step is known as long as such a pod exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dralloc.answers.blockers import prepared_since
from dralloc.devices.identity import text_of_result
from dralloc.kube.claim_event_reasons import ALLOCATED, CREATED, DEALLOCATED, DELETED, RELEASED, RESERVED, WAITS
from dralloc.kube.core_v1 import Event
from dralloc.kube.pod_claims import CLAIM_FINALIZER
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ConsumerReference, ResourceClaim
from dralloc.primitives.errors import Forbidden, NotFound

if TYPE_CHECKING:
    from dralloc.client.api_calls import ApiCalls

DELETION_REQUESTED: Final = "DeletionRequested"
PREPARED: Final = "Prepared"
# Things of one second happen in this order.
_ORDER: Final = (CREATED, WAITS, ALLOCATED, RESERVED, PREPARED, RELEASED, DEALLOCATED, DELETION_REQUESTED, DELETED)
NAMED_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class StoryStep:
    """`at` is when it happened first, `until` when last; `at` is empty if it is not known. `count` is how often it was reported."""

    reason: str
    at: str
    message: str
    until: str = ""
    count: int = 1
    is_warning: bool = False
    # The pod that had a part in it.
    pod: str = ""

    def line(self) -> str:
        often = f" (until {self.until}, reported {self.count} times)" if self.count > 1 else ""
        return f"{self.at or 'at an unknown time'}  {self.reason}: {self.message}{often}"

    def values(self) -> dict[str, Any]:
        return {
            "reason": self.reason,
            "at": self.at or None,
            "until": self.until or None,
            "message": self.message,
            "count": self.count,
            "isWarning": self.is_warning,
            "pod": self.pod or None,
        }


def claim_story(
    claim: ResourceClaim | None, namespace: str, name: str, events: Iterable[Event], pods: Iterable[Pod] = ()
) -> tuple[StoryStep, ...]:
    """What happened to the claim, the oldest first. `claim` is None if none exists: then it is the last one of this name.

    Of the pods, those count that the claim is reserved for.
    """
    about = [each for each in events if _names(each, namespace, name)]
    uid = claim.metadata.uid if claim is not None else _last_uid(about)
    told = [_step(each) for each in about if each.involved_object.uid == uid]
    if claim is not None:
        told += _from_status(claim, {step.reason: step for step in sorted(told, key=_place)}, about)
        told += _prepared(claim, pods)
    return tuple(sorted(told, key=_place))


def events_of_claim(namespace: str, name: str) -> str:
    """The field selector of a claim's events."""
    where, what = _escaped(namespace), _escaped(name)
    return f"involvedObject.kind=ResourceClaim,involvedObject.namespace={where},involvedObject.name={what}"


async def read_claim_story(calls: ApiCalls, namespace: str, name: str) -> tuple[StoryStep, ...]:
    """The story of a claim of a server. Raises ApiError if the claim or events cannot be read."""
    # The command with -f starts faster without a client.
    from dralloc.client.known_resources import resource_for
    from dralloc.client.typed_resource import ObjectKey

    selector = f"metadata.name={_escaped(name)}"
    claims, _ = await calls.list_all(resource_for(ResourceClaim), namespace=namespace, field_selector=selector)
    about = events_of_claim(namespace, name)
    events, _ = await calls.list_all(resource_for(Event), namespace=namespace, field_selector=about)
    claim = next(iter(claims), None)
    pods: list[Pod] = []
    for user in _pods_of(claim)[:NAMED_MAX] if claim is not None else ():
        # Its story is told without the pods that are gone, or that the caller may not read.
        with suppress(NotFound, Forbidden):
            pods.append(await calls.get(resource_for(Pod), ObjectKey(namespace, user.name)))
    return claim_story(claim, namespace, name, events, pods)


def _escaped(text: str) -> str:
    """Commas and equals signs have a meaning in selectors; no name has them, but users may type them."""
    return re.sub(r"([\\,=])", r"\\\1", text)


def _names(event: Event, namespace: str, name: str) -> bool:
    subject = event.involved_object
    return (subject.kind, subject.namespace, subject.name) == ("ResourceClaim", namespace, name)


def _last_uid(events: list[Event]) -> str:
    newest = max(events, key=lambda event: str(event.last_timestamp or event.event_time or ""), default=None)
    return newest.involved_object.uid if newest is not None else ""


def _step(event: Event) -> StoryStep:
    first = event.first_timestamp or event.event_time or event.metadata.creation_timestamp or ""
    last = event.last_timestamp or (event.series.last_observed_time if event.series is not None else None) or first
    count = event.series.count if event.series is not None else max(event.count, 1)
    return StoryStep(
        event.reason,
        str(first),
        event.message,
        until=str(last) if count > 1 else "",
        count=count,
        is_warning=event.type == "Warning",
        pod=event.related.name if event.related is not None and event.related.kind == "Pod" else "",
    )


def _place(step: StoryStep) -> tuple[bool, str, int]:
    order = _ORDER.index(step.reason) if step.reason in _ORDER else len(_ORDER)
    # What has no time is true now.
    return not step.at, step.at[:19], order


def _from_status(claim: ResourceClaim, last: dict[str, StoryStep], events: list[Event]) -> Iterator[StoryStep]:
    """What no event tells. `last` is the last step of each reason."""
    if CREATED not in last:
        yield StoryStep(CREATED, str(claim.metadata.creation_timestamp or ""), "created")
    allocation = claim.status.allocation
    if allocation is not None:
        known = last.get(ALLOCATED)
        returned = last.get(DEALLOCATED)
        if known is None or (returned is not None and _place(returned) > _place(known)):
            devices = _listed(map(text_of_result, allocation.devices.results)) or "no devices"
            yield StoryStep(ALLOCATED, str(allocation.allocation_timestamp or ""), f"allocated {devices}")
    told = {each.related.uid for each in events if each.related is not None}
    told_of = " ".join(step.message for step in last.values())
    users = [f"{user.resource}/{user.name}" for user in claim.status.reserved_for if user.uid not in told]
    # Not web-1 because of web-10.
    untold = [user for user in users if re.search(rf"{re.escape(user)}(?![\w.-])", told_of) is None]
    if untold:
        yield StoryStep(RESERVED, "", f"reserved for {_listed(iter(untold))}")
    if claim.metadata.deletion_timestamp is not None:
        yield StoryStep(DELETION_REQUESTED, str(claim.metadata.deletion_timestamp), _awaited(claim.metadata.finalizers))


def _pods_of(claim: ResourceClaim) -> tuple[ConsumerReference, ...]:
    return tuple(user for user in claim.status.reserved_for if user.resource == "pods" and not user.api_group)


def _prepared(claim: ResourceClaim, pods: Iterable[Pod]) -> Iterator[StoryStep]:
    """On each node once: for the first pod there whose containers could start."""
    users = {user.uid for user in _pods_of(claim)}
    first: dict[str, StoryStep] = {}
    for pod in pods:
        since = prepared_since(pod) if pod.metadata.uid in users else None
        node, name = pod.spec.node_name, pod.metadata.name
        if since is not None and node and (node not in first or since < first[node].at):
            first[node] = StoryStep(PREPARED, since, f"prepared on node {node} for pods/{name}", pod=name)
    yield from list(first.values())[:NAMED_MAX]


def _awaited(finalizers: Sequence[str]) -> str:
    """What the deletion of a claim waits for."""
    others = [each for each in finalizers if each != CLAIM_FINALIZER]
    message = "deletion was requested; it is deleted when no pod uses it"
    if others:
        message += f" and its finalizers are removed: {_listed(iter(others))}"
    return message


def _listed(names: Iterator[str]) -> str:
    known = list(names)
    more = f" and {len(known) - NAMED_MAX} more" if len(known) > NAMED_MAX else ""
    return ", ".join(known[:NAMED_MAX]) + more
