"""Records Kubernetes events; an event that repeats is counted instead of written again, and one object has few of them.

A pure function decides what to write from what was written before; writing happens in the background and never blocks
the reporting component. If the server is slow, the oldest unwritten events are dropped and counted.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from dralloc.client.api_calls import ApiCalls
from dralloc.client.transport import TransportError
from dralloc.client.typed_resource import ObjectKey, TypedResource
from dralloc.kube.core_v1 import Event, EventSource, ObjectReference
from dralloc.kube.meta_v1 import ApiObject, ObjectMeta
from dralloc.kube.timestamps import print_timestamp
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import ApiError

REMEMBERED_MAX: Final = 4096
WAITING_MAX: Final = 1000
WAITING_PACED_MAX: Final = 10_000
MESSAGE_MAX: Final = 1024
# So many events with one reason are written about an object, and then one in this time; Kubernetes' components count all reasons together.
BURST: Final = 25
PERIOD_S: Final = 300.0


class Report(Struct, frozen=True, gc=False):
    """Something that happened to an object. `is_latest`: it replaces the previous report with the same reason.

    `related` is the other object that had a part in it.
    """

    about: ObjectReference
    type: str
    reason: str
    message: str
    action: str = ""
    is_latest: bool = False
    related: ObjectReference | None = None

    @property
    def like(self) -> Report:
        """The identity of an event: equal for reports that are counted as one."""
        return msgspec.structs.replace(self, message="", related=None) if self.is_latest else self


def reference_to(item: ApiObject, api_version: str, kind: str) -> ObjectReference:
    return ObjectReference(
        kind=kind,
        api_version=api_version,
        namespace=item.metadata.namespace,
        name=item.metadata.name,
        uid=item.metadata.uid,
    )


class SpamFilter:
    """Lets the first events about an object pass, and later ones at a low rate.

    Each reason has a rate of its own: a pod that has waited for hours is still told that it is scheduled.
    """

    def __init__(self) -> None:
        # The time at which there may be a whole burst again, by object and reason. What was not reported for long is forgotten.
        self._burst_at: OrderedDict[tuple[ObjectReference, str], float] = OrderedDict()

    def passes(self, report: Report, now: datetime) -> bool:
        key, now_s = (report.about, report.reason), now.timestamp()
        burst_at = self._burst_at.get(key, now_s)
        # A time in the past allows a whole burst. One that is too far in the future was noted by a clock that was ahead.
        if not now_s <= burst_at <= now_s + BURST * PERIOD_S:
            burst_at = now_s
        is_passing = burst_at - now_s <= (BURST - 1) * PERIOD_S
        self._burst_at[key] = burst_at + PERIOD_S if is_passing else burst_at
        self._burst_at.move_to_end(key)
        if len(self._burst_at) > REMEMBERED_MAX:
            self._burst_at.popitem(last=False)
        return is_passing


class Aggregator:
    """Turns reports into events: the first one creates an event, equal ones raise its count."""

    def __init__(self, component: str) -> None:
        self._component = component
        self._filter = SpamFilter()
        self._written: OrderedDict[Report, Event] = OrderedDict()
        self._number = 0

    def event(self, report: Report, now: datetime) -> Event | None:
        """The event to write; without one, the report is only counted, because the object has had many."""
        passes = self._filter.passes(report, now)
        moment = print_timestamp(now)
        like, message = report.like, _cut(report.message)
        known = self._written.get(like)
        if known is None and not passes:
            return None
        if known is not None:
            event = msgspec.structs.replace(known, count=known.count + 1, last_timestamp=moment, message=message)
        else:
            event = self._new(report, message, moment, now)
        self._written[like] = event
        self._written.move_to_end(like)
        if len(self._written) > REMEMBERED_MAX:
            self._written.popitem(last=False)
        return event if passes else None

    def forget(self, report: Report) -> None:
        """Forgets an event that does not exist: the next equal report creates it again."""
        self._written.pop(report.like, None)

    def _new(self, report: Report, message: str, moment: str, now: datetime) -> Event:
        self._number += 1
        suffix = f"{int(now.timestamp() * 1e6):x}{self._number:x}"
        return Event(
            metadata=ObjectMeta(name=f"{report.about.name}.{suffix}", namespace=report.about.namespace or "default"),
            involved_object=report.about,
            type=report.type,
            reason=report.reason,
            message=message,
            action=report.action,
            related=report.related,
            source=EventSource(component=self._component),
            reporting_component=self._component,
            first_timestamp=moment,
            last_timestamp=moment,
            count=1,
        )


def _cut(message: str) -> str:
    return message if len(message) <= MESSAGE_MAX else message[: MESSAGE_MAX - 4] + " ..."


class EventRecorder:
    """Accepts reports immediately and writes their events in `run`."""

    def __init__(self, calls: ApiCalls, events: TypedResource[Event], *, component: str, clock: Clock) -> None:
        self._calls = calls
        self._events = events
        self._clock = clock
        self._aggregator = Aggregator(component)
        self._waiting: deque[tuple[Report, Event]] = deque()
        self._arrived = asyncio.Event()
        self.dropped = 0

    def report(self, report: Report, at: datetime | None = None) -> None:
        """`at` is the time when it happened, if that is not now."""
        event = self._aggregator.event(report, at or self._clock.now())
        if event is None:
            return
        if len(self._waiting) >= WAITING_MAX:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append((report, event))
        self._arrived.set()

    async def run(self) -> None:
        """Writes events until cancelled."""
        while True:
            while self._waiting:
                await self._write(*self._waiting.popleft())
            self._arrived.clear()
            await self._arrived.wait()

    async def _write(self, report: Report, event: Event) -> None:
        try:
            if event.count == 1:
                await self._calls.create(self._events, event)
            else:
                key = ObjectKey(event.metadata.namespace, event.metadata.name)
                patch = {"count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message}
                await self._calls.patch(self._events, key, patch)
        except (ApiError, TransportError):
            # Events are best effort: a lost one does not stop the component, and the next equal one is created again.
            self._aggregator.forget(report)


class PacedReports:
    """Reports that can wait: passed on one after the other, so that thousands at once do not delay other writes.

    A report that replaces one that still waits takes its place. Beyond `WAITING_PACED_MAX`, the oldest is dropped.
    """

    def __init__(self, recorder: EventRecorder, clock: Clock, *, per_s: float) -> None:
        self._recorder = recorder
        self._clock = clock
        self._pause_s = 1 / per_s
        self._waiting: OrderedDict[Report, tuple[Report, datetime]] = OrderedDict()
        self._arrived = asyncio.Event()

    def add(self, report: Report, at: datetime | None = None) -> None:
        """`at` is the time when it happened, if that is not now."""
        self._waiting[report.like] = report, at or self._clock.now()
        if len(self._waiting) > WAITING_PACED_MAX:
            self._waiting.popitem(last=False)
        self._arrived.set()

    async def run(self) -> None:
        """Passes reports on until cancelled."""
        while True:
            while self._waiting:
                _, (report, at) = self._waiting.popitem(last=False)
                self._recorder.report(report, at)
                await asyncio.sleep(self._pause_s)
            self._arrived.clear()
            await self._arrived.wait()
