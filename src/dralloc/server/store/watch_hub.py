"""Fan-out of events to many watches, at a cost proportional to the events, not the watches.

Watches of one prefix share a channel: the events of that prefix, each stored once. A watch is only a position in its
channel, so a slow one costs nothing; it is dropped when compaction passes its position. History limits therefore bound
the backlog of all watches together. Runs in one event loop, without locks.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from dralloc.server.store.errors import Compacted, StoreClosed, StoreError, WatcherTooSlow
from dralloc.server.store.event_log import EventLog, revision_of
from dralloc.server.store.interface import Watch
from dralloc.server.store.records import StoreEvent

# Directories whose channels are remembered.
DIRECTORIES_MAX: Final = 4096


class WatchHub:
    """Delivers to each watch the events after its revision, including those in the log."""

    def __init__(self, log: EventLog, *, revision: int, on_wait: Callable[[], None] | None = None) -> None:
        """`on_wait` is called when a watch starts to wait for a revision that the hub has not reached."""
        self.revision = revision
        self._on_wait = on_wait
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._log = log
        self._channels: dict[str, _Channel] = {}
        # Lengths of the watched prefixes: an event finds its channels by truncating its key, however many channels
        # there are. Those that end with a slash are found by what precedes the last part of the key, and remembered by it.
        self._lengths: tuple[int, ...] = ()
        self._name_lengths: tuple[int, ...] = ()
        self._by_directory: dict[str, tuple[_Channel, ...]] = {}
        self._closed = False

    def subscribe(self, prefix: str, *, after_revision: int) -> Watch:
        """Returns a watch of a prefix; raises Compacted if the log does not reach back that far."""
        if self._closed:
            raise StoreClosed
        if after_revision < self._log.compacted:
            raise Compacted(after_revision, compacted=self._log.compacted)
        channel = self._channels.get(prefix)
        if channel is None:
            channel = self._channels[prefix] = _Channel(prefix, since=self.revision)
            self._channels_changed()
        channel.reach_back(self._log, after_revision)
        return HubWatch(self, channel, after_revision=after_revision)

    def publish(self, events: Sequence[StoreEvent], *, revision: int) -> None:
        """Delivers the next events, which are in the log; `revision` is the revision reached."""
        self.revision = revision
        touched: dict[_Channel, None] = {}
        for event in events:
            key = event.key
            for channel in self._channels_in(key[: key.rfind("/") + 1]):
                channel.events.append(event)
                touched[channel] = None
            for length in self._name_lengths:
                if length > len(key):
                    break
                if (named := self._channels.get(key[:length])) is not None:
                    named.events.append(event)
                    touched[named] = None
        for channel in touched:
            channel.wake()
        if self._waiting:
            for waiter in [waiter for waiter, wanted in self._waiting.items() if wanted <= revision]:
                _resolve(waiter)

    @property
    def wanted(self) -> int | None:
        """The lowest revision that a watch waits for."""
        return min(self._waiting.values(), default=None)

    async def wait_for(self, revision: int) -> None:
        """Returns when the hub has reached the revision, or the watches have ended."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = revision
        if self._on_wait is not None:
            self._on_wait()
        try:
            await waiter
        finally:
            del self._waiting[waiter]

    def forget(self, revision: int) -> None:
        """Drops the events that the log has compacted."""
        for channel in self._channels.values():
            channel.forget(revision)

    def end_watches(self, error: StoreError) -> None:
        """Ends every watch with an error; new ones may follow."""
        channels, self._channels = self._channels, {}
        self._channels_changed()
        for channel in channels.values():
            channel.error = error
            channel.wake()
        for waiter in self._waiting:
            _resolve(waiter)

    def close(self) -> None:
        self._closed = True
        self.end_watches(StoreClosed())

    def leave(self, watch: HubWatch, channel: _Channel) -> None:
        """Removes a watch, and its channel if it was the last one."""
        channel.watches.pop(watch, None)
        if not channel.watches and self._channels.get(channel.prefix) is channel:
            del self._channels[channel.prefix]
            self._channels_changed()

    def _channels_changed(self) -> None:
        self._lengths = tuple(sorted({len(prefix) for prefix in self._channels if prefix.endswith("/")}))
        self._name_lengths = tuple(sorted({len(prefix) for prefix in self._channels if not prefix.endswith("/")}))
        self._by_directory.clear()

    def _channels_in(self, directory: str) -> tuple[_Channel, ...]:
        """The channels of all keys that begin with this directory."""
        found = self._by_directory.get(directory)
        if found is None:
            if len(self._by_directory) >= DIRECTORIES_MAX:
                self._by_directory.clear()
            wanted = (self._channels.get(directory[:length]) for length in self._lengths if length <= len(directory))
            found = self._by_directory[directory] = tuple(channel for channel in wanted if channel is not None)
        return found


class _Channel:
    """The events of one prefix after revision `since`. Positions count from the channel's first event and never change."""

    def __init__(self, prefix: str, *, since: int) -> None:
        self.prefix = prefix
        self.since = since
        self.events: list[StoreEvent] = []
        self.first_place = 0
        # Both in FIFO order, so that wake-ups are fair and runs deterministic.
        self.watches: dict[HubWatch, None] = {}
        self.waiting: dict[asyncio.Future[None], None] = {}
        self.listeners: dict[HubWatch, Callable[[], None]] = {}
        self.error: StoreError | None = None

    def reach_back(self, log: EventLog, revision: int) -> None:
        if revision >= self.since:
            return
        older = [event for event in log.between(revision, self.since) if event.key.startswith(self.prefix)]
        self.events[:0] = older
        self.first_place -= len(older)
        self.since = revision

    def place_after(self, revision: int) -> int:
        return self.first_place + bisect_right(self.events, revision, key=revision_of)

    def forget(self, revision: int) -> None:
        count = bisect_right(self.events, revision, key=revision_of)
        del self.events[:count]
        self.first_place += count
        self.since = max(self.since, revision)

    def wake(self) -> None:
        for waiter in self.waiting:
            _resolve(waiter)
        self.waiting.clear()
        for wake in tuple(self.listeners.values()):
            wake()


class HubWatch(Watch):
    """A position in a channel."""

    def __init__(self, hub: WatchHub, channel: _Channel, *, after_revision: int) -> None:
        self._hub = hub
        self._channel = channel
        self._place = channel.place_after(after_revision)
        self._start = after_revision
        self._returned = after_revision
        self._closed = False
        self._waiter: asyncio.Future[None] | None = None
        channel.watches[self] = None

    @property
    def revision(self) -> int:
        is_behind = self.has_more or self._channel.error
        return self._returned if is_behind else max(self._returned, self._hub.revision)

    @property
    def has_more(self) -> bool:
        return self._place < self._channel.first_place + len(self._channel.events)

    async def next(self, *, limit: int = 1000, timeout_s: float | None = None) -> Sequence[StoreEvent]:
        events = self._take(limit)
        if events or timeout_s == 0:
            return events
        loop = asyncio.get_running_loop()
        deadline = None if timeout_s is None else loop.time() + timeout_s
        while not events:
            waiter = self._waiter = loop.create_future()
            self._channel.waiting[waiter] = None
            timer = None if deadline is None else loop.call_at(deadline, _resolve, waiter)
            try:
                await waiter
                # Let pending writers run first, so that one wake-up delivers their events, too.
                await asyncio.sleep(0)
            finally:
                self._channel.waiting.pop(waiter, None)
                if timer is not None:
                    timer.cancel()
            events = self._take(limit)
            if deadline is not None and loop.time() >= deadline:
                break
        return events

    async def reach(self, revision: int) -> None:
        while self._hub.revision < revision:
            self._check()
            await self._hub.wait_for(revision)
        self._check()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            wake = self._channel.listeners.pop(self, None)
            self._hub.leave(self, self._channel)
            if wake is not None:
                wake()
            # Do not wake others: many watches leave at once when a client disconnects.
            if self._waiter is not None:
                _resolve(self._waiter)

    def on_change(self, wake: Callable[[], None]) -> None:
        self._channel.listeners[self] = wake

    def take(self, *, limit: int = 1000, bytes_max: int | None = None) -> Sequence[StoreEvent]:
        return self._take(limit, bytes_max)

    def _take(self, limit: int, bytes_max: int | None = None) -> Sequence[StoreEvent]:
        self._check()
        channel = self._channel
        start = self._place - channel.first_place
        if start < 0:
            raise WatcherTooSlow(f"the watch is behind revision {channel.since}, the oldest one kept")
        events = channel.events[start : start + limit]
        if bytes_max is not None and len(events) > 1:
            events = _head_of(events, bytes_max)
        self._place += len(events)
        # A watch may start after a future revision; events before it are skipped.
        if events and events[0].revision <= self._start:
            events = [event for event in events if event.revision > self._start]
        if events:
            self._returned = events[-1].revision
        return events

    def _check(self) -> None:
        if self._closed:
            raise StoreClosed
        if self._channel.error is not None:
            raise self._channel.error.with_traceback(None)


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _head_of(events: list[StoreEvent], bytes_max: int) -> list[StoreEvent]:
    size = 0
    for count, event in enumerate(events, start=1):
        record = event.record or event.previous
        size += len(record.value) if record else 0
        if size >= bytes_max:
            return events[:count]
    return events
