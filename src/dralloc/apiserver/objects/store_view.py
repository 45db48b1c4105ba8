"""Store views: keep an index that is derived from a part of the store (quota usage, dependents, devices in use) up to date.

A view reads the records once, then applies every change in order. If it falls behind the store's history, it starts over. What an index
needs of a large object is read in a thread, and the changes after it wait: each index decodes objects for itself, and all of them would hold
the event loop. For the same reason the first records are learned in pieces. Later ones replace at once what decisions are made with.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

from dralloc.api.kind import Kind
from dralloc.apiserver.http.flow_control import SIZE_INLINE_MAX, Pace, current_flow, give_way
from dralloc.apiserver.objects.api_resources import prefix_of
from dralloc.apiserver.objects.background_task import BackgroundTask
from dralloc.apiserver.objects.record_lists import read_all
from dralloc.store.errors import Compacted, StoreClosed, StoreError, StoreUnavailable, WatcherTooSlow
from dralloc.store.interface import Store, Watch
from dralloc.store.records import Record, StoreEvent

RETRY_S: Final = 1.0
READY_TIMEOUT_S: Final = 30.0

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class DerivedIndex(Protocol):
    """An index over the records under a prefix."""

    def reset(self, records: Iterable[Record], revision: int) -> None:
        """Start over with exactly these records, as stored at the revision."""

    def learn(self, record: Record) -> None:
        """Learn one more of the records that the index starts with."""

    def apply(self, event: StoreEvent) -> None:
        """Apply the next change."""

    def read_ahead(self, record: Record) -> None:
        """Read the next record, which is large. Called in a thread."""


class RecordReader(Generic[T]):
    """Reads what an index needs of a record, unless it was read ahead."""

    __slots__ = ("_ahead", "_read")

    def __init__(self, read: Callable[[Record], T]) -> None:
        self._read = read
        self._ahead: tuple[Record, T] | None = None

    def read_ahead(self, record: Record) -> None:
        self._ahead = record, self._read(record)

    def __call__(self, record: Record) -> T:
        ahead, self._ahead = self._ahead, None
        return ahead[1] if ahead is not None and ahead[0] is record else self._read(record)


class StoreView:
    """Feeds one index from a task of its own."""

    def __init__(self, store: Store, prefix: str, index: DerivedIndex) -> None:
        # The index has every change up to this revision.
        self.revision = 0
        self._store = store
        self._prefix = prefix
        self._index = index
        self._watch: Watch | None = None
        # Changes that were taken from the watch and are not applied yet, because the record of the first one is being read.
        self._taken: deque[StoreEvent] = deque()
        self._reading: asyncio.Task[None] | None = None
        # Without requests from other processes, as in tests and simulations, there are no threads.
        flow = current_flow()
        self._flow = flow.control.of_server if flow is not None else None
        # Set while there is a watch, and when the task has ended.
        self._watching = asyncio.Event()
        self._task = BackgroundTask(self._run, name=f"view of {prefix}")
        self._task.start()

    async def ready(self, revision: int | None = None) -> None:
        """Wait until the index has every change up to the revision; without one, up to the newest that the store has shown.

        So it has every change that was acknowledged before the caller's last read of the store began. Raises StoreUnavailable.
        """
        wanted = self._store.newest_seen if revision is None else revision
        if 0 < wanted <= self.revision:
            return
        if self._watch is not None:
            try:
                self._catch_up(self._watch, wanted)
            except StoreError:
                # The task meets the same error and starts over.
                self._watching.clear()
        if self.revision < wanted or not self.revision:
            await self._wait_for(max(wanted, 1))

    async def stop(self) -> None:
        await self._task.stop()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _wait_for(self, revision: int) -> None:
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                while self.revision < revision:
                    await self._approach(revision)
        except TimeoutError:
            if self._watch is not None:
                # The watch delivers nothing: start over without it.
                await self._task.stop()
                self._task.start()
            raise StoreUnavailable(f"the view of {self._prefix} has not reached revision {revision} in time") from None

    async def _approach(self, revision: int) -> None:
        await self._watching.wait()
        watch = self._watch
        if watch is None:
            raise StoreUnavailable(f"the view of {self._prefix} has ended")
        if self._reading is not None:
            await asyncio.wait((self._reading,))
            return
        try:
            await watch.reach(revision)
            self._catch_up(watch, revision)
        except StoreError:
            # The task meets the same error and starts over.
            if self._watch is watch:
                self._watching.clear()

    def _catch_up(self, watch: Watch, wanted: int) -> None:
        """Apply what the watch has, without waiting. Most often it has nothing: what changed is under other prefixes."""
        while (reached := watch.revision) < wanted and (events := watch.take()):
            self._take(events)
        self._note_reached(reached)

    async def _run(self) -> None:
        try:
            while True:
                try:
                    await self._read_and_watch()
                except StoreClosed:
                    return
                except (Compacted, WatcherTooSlow):
                    _logger.warning("the view of %s fell behind: reading it again", self._prefix)
                except StoreError as error:
                    _logger.warning("cannot update the view of %s: %s", self._prefix, error)
                    await asyncio.sleep(RETRY_S)
        finally:
            self._watching.set()

    async def _read_and_watch(self) -> None:
        records, revision = await read_all(self._store, self._prefix)
        if revision < self.revision:
            # The store was restored from a backup: nothing that is known, however new, is of its history.
            self._index.reset((), sys.maxsize)
        if self.revision:
            self._index.reset(records, revision)
        else:
            await self._learn_first(records, revision)
        self.revision = revision
        self._taken = deque()
        with await self._store.watch(self._prefix, after_revision=revision) as watch:
            self._watch = watch
            self._watching.set()
            try:
                while True:
                    self._take(await watch.next())
                    self._note_reached(watch.revision)
            finally:
                self._watch = None
                self._watching.clear()

    async def _learn_first(self, records: Iterable[Record], revision: int) -> None:
        """Learn the records in pieces: there may be hundreds of thousands, and nothing is decided before all of them are known."""
        self._index.reset((), revision)
        pace = Pace()
        for record in records:
            if self._flow is not None and len(record.value) > SIZE_INLINE_MAX:
                await self._flow.compute_patiently(partial(self._index.read_ahead, record))
            self._index.learn(record)
            if pace.is_over():
                await give_way()
                pace = Pace()

    def _take(self, events: Iterable[StoreEvent]) -> None:
        """Apply events after those that are not applied yet."""
        self._taken.extend(events)
        if self._reading is None:
            self._apply_taken()

    def _apply_taken(self, *, is_read: bool = False) -> None:
        """Apply what was taken, up to a large record, which is read first. `is_read`: that of the first event was."""
        taken, flow = self._taken, self._flow
        while taken:
            event = taken[0]
            record = event.record if flow is not None and not is_read else None
            if flow is not None and record is not None and len(record.value) > SIZE_INLINE_MAX:
                read = flow.compute_patiently(partial(self._index.read_ahead, record))
                self._reading = asyncio.create_task(self._apply_after(read, taken))
                return
            is_read = False
            taken.popleft()
            self._index.apply(event)
            self.revision = event.revision

    async def _apply_after(self, read: Awaitable[None], taken: deque[StoreEvent]) -> None:
        try:
            # An error comes again when the record is applied.
            await asyncio.gather(read, return_exceptions=True)
        finally:
            self._reading = None
        # The view may have started over meanwhile.
        self._apply_taken(is_read=taken is self._taken)
        if self._watch is not None:
            self._note_reached(self._watch.revision)

    def _note_reached(self, revision: int) -> None:
        if not self._taken and revision > self.revision:
            self.revision = revision


class KindIndex(ABC):
    """An index over the objects of one kind, whose view starts on first use."""

    def __init__(self, store: Store, kind: Kind) -> None:
        self._store = store
        self._kind = kind
        self._view: StoreView | None = None
        # For an index that needs much of a record.
        self._reader: RecordReader[Any] | None = None

    async def ready(self) -> None:
        if self._view is None:
            self._view = StoreView(self._store, prefix_of(self._kind), self)
        await self._view.ready()

    async def stop(self) -> None:
        if self._view is not None:
            await self._view.stop()

    def reset(self, records: Iterable[Record], revision: int) -> None:  # noqa: ARG002
        self._forget_all()
        for record in records:
            self.learn(record)

    def learn(self, record: Record) -> None:
        self._learn(record.key, record)

    def apply(self, event: StoreEvent) -> None:
        self._learn(event.key, event.record)

    def read_ahead(self, record: Record) -> None:
        if self._reader is not None:
            self._reader.read_ahead(record)

    @abstractmethod
    def _forget_all(self) -> None: ...

    @abstractmethod
    def _learn(self, key: str, record: Record | None) -> None: ...
