"""The story of claims as events: created, waiting and why, allocated, reserved, released, deallocated, deleted.

Events are made from the changes of claims, whichever component or user made them. A claim has few: those of one user each only
while it has few users, and one for why it waits, which is updated. They are written slowly, because all of them can wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from dralloc.client.event_recorder import EventRecorder, Report, reference_to
from dralloc.client.known_resources import resource_for
from dralloc.controllers.controller_context import ControllerContext
from dralloc.devices.identity import text_of_result
from dralloc.kube.claim_event_reasons import ALLOCATED, CREATED, DEALLOCATED, DELETED, RELEASED, RESERVED, WAITS
from dralloc.kube.core_v1 import ObjectReference
from dralloc.kube.pod_claims import controller_of, is_pod
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ConsumerReference, DeviceRequest, ResourceClaim
from dralloc.kube.timestamps import stated_time

CLAIMS: Final = resource_for(ResourceClaim)

# A controller that starts sees all claims for the first time; the creation of older ones was reported before.
NEW_FOR: Final = timedelta(minutes=1)
# Beyond this number of users, one event stands for all that come, and one for all that go.
USERS_MAX: Final = 8
DEVICES_NAMED_MAX: Final = 8
STEPS_PER_S: Final = 20.0
WAITS_PER_S: Final = 5.0


class ClaimChange(NamedTuple):
    """A report, and when it happened if the claim says so."""

    report: Report
    at: datetime | None = None


class ClaimEvents:
    """Takes the changes that informers show."""

    def __init__(self, context: ControllerContext, recorder: EventRecorder) -> None:
        self._clock = context.clock
        self._steps = context.paced(recorder, per_s=STEPS_PER_S)
        # Apart: thousands of claims that wait do not delay the others.
        self._waits = context.paced(recorder, per_s=WAITS_PER_S)

    def claim_changed(self, before: ResourceClaim | None, after: ResourceClaim | None) -> None:
        for report, at in claim_changes(before, after, self._clock.now()):
            self._steps.add(report, at)

    def pod_waits(self, pod: Pod, claims: Iterable[ResourceClaim]) -> None:
        """The pod cannot be scheduled; of its claims, those without devices wait with it."""
        for claim in claims:
            if claim.status.allocation is None:
                self._waits.add(waiting(pod, claim))


def why_unscheduled(pod: Pod | None) -> str:
    """The message of the pod's `PodScheduled=False` condition; empty if there is none."""
    conditions = pod.status.conditions if pod is not None and not pod.spec.node_name else ()
    return next((each.message for each in conditions if (each.type, each.status) == ("PodScheduled", "False")), "")


def waiting(pod: Pod, claim: ResourceClaim) -> Report:
    related = reference_to(pod, "v1", "Pod")
    message = f"pod {pod.metadata.name}: {why_unscheduled(pod)}"
    return Report(_about(claim), "Warning", WAITS, message, "Scheduling", is_latest=True, related=related)


def claim_changes(before: ResourceClaim | None, after: ResourceClaim | None, now: datetime) -> Iterator[ClaimChange]:
    """What happened to the claim between the two states, in the order of a claim's life."""
    if before is None:
        created = stated_time(after.metadata.creation_timestamp) if after is not None else None
        if after is None or created is None or now - created >= NEW_FOR:
            return
        yield ClaimChange(_report(after, CREATED, _created(after)), created)
    elif after is None or after.metadata.uid != before.metadata.uid:
        yield ClaimChange(_report(before, DELETED, "deleted"))
        if after is not None:
            yield from claim_changes(None, after, now)
        return
    yield from _allocation_changes(before, after)


def _allocation_changes(before: ResourceClaim | None, after: ResourceClaim) -> Iterator[ClaimChange]:
    had = before.status.allocation if before is not None else None
    has = after.status.allocation
    listed = before.status.reserved_for if before is not None else ()
    if had is None and has is None and not listed and not after.status.reserved_for:
        return
    uids, was = {user.uid for user in after.status.reserved_for}, {user.uid for user in listed}
    new = [user for user in after.status.reserved_for if user.uid not in was]
    gone = [user for user in listed if user.uid not in uids]
    if had is not None and has is None:
        message = f"deallocated: {_devices(before)} can be allocated again{_after(gone)}"
        yield ClaimChange(_report(after, DEALLOCATED, message, gone))
    else:
        yield from (ClaimChange(each) for each in _users(after, RELEASED, "no longer reserved for", gone))
    if had is None and has is not None:
        message = f"allocated {_devices(after)}{f' for {_names(new)}' if new else ''}"
        yield ClaimChange(_report(after, ALLOCATED, message, new), stated_time(has.allocation_timestamp))
    else:
        yield from (ClaimChange(each) for each in _users(after, RESERVED, "reserved for", new))


def _users(claim: ResourceClaim, reason: str, verb: str, users: list[ConsumerReference]) -> Iterator[Report]:
    listed = len(claim.status.reserved_for)
    if len(users) + listed > USERS_MAX:
        if users:
            message = f"{verb} {_names(users)}; now reserved for {listed}"
            yield _report(claim, reason, message, users, is_latest=True)
        return
    for user in users:
        yield _report(claim, reason, f"{verb} {_name(user)}", [user])


def _report(
    claim: ResourceClaim,
    reason: str,
    message: str,
    users: list[ConsumerReference] | None = None,
    *,
    is_latest: bool = False,
) -> Report:
    """One user that is a pod is the related object."""
    related = None
    if users and len(users) == 1 and is_pod(users[0]):
        namespace, user = claim.metadata.namespace, users[0]
        related = ObjectReference(kind="Pod", api_version="v1", namespace=namespace, name=user.name, uid=user.uid)
    return Report(_about(claim), "Normal", reason, message, reason, is_latest=is_latest, related=related)


def _about(claim: ResourceClaim) -> ObjectReference:
    return reference_to(claim, CLAIMS.api_version, CLAIMS.kind)


def _created(claim: ResourceClaim) -> str:
    owner = controller_of(claim.metadata)
    requests = "; ".join(map(_request, claim.spec.devices.requests or ()))
    return f"created{f' for {owner.kind} {owner.name}' if owner is not None else ''}: {requests or 'no requests'}"


def _request(request: DeviceRequest) -> str:
    wishes = [request.exactly] if request.exactly is not None else list(request.first_available)
    classes = " or ".join(wish.device_class_name for wish in wishes)
    return f"request {request.name} of class {classes}"


def _devices(claim: ResourceClaim | None) -> str:
    allocation = claim.status.allocation if claim is not None else None
    results = allocation.devices.results if allocation is not None else ()
    named = ", ".join(map(text_of_result, results[:DEVICES_NAMED_MAX])) or "no devices"
    return f"{named} and {len(results) - DEVICES_NAMED_MAX} more" if len(results) > DEVICES_NAMED_MAX else named


def _after(users: list[ConsumerReference]) -> str:
    return f"; it is no longer reserved for {_names(users)}" if users else ""


def _names(users: list[ConsumerReference]) -> str:
    named = ", ".join(map(_name, users[:USERS_MAX]))
    return f"{named} and {len(users) - USERS_MAX} more" if len(users) > USERS_MAX else named


def _name(user: ConsumerReference) -> str:
    return f"{user.resource}/{user.name}"
