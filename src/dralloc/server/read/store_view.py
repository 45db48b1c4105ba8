"""Store views: keep an index that is derived from a part of the store (quota usage, dependents, devices in use) up to date.

A view reads the records once, then applies every change in order. If it falls behind the store's history, or etcd was restored, it
starts over with another index, which takes the place of the earlier one when it has learned everything: all users of the index of a
view see the state of one revision, and `ready` waits until that is new enough.

Records are learned in pieces, so that requests are answered meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from os.path import commonpath
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from dralloc.server.read.background_task import BackgroundTask
from dralloc.server.read.record_lists import in_pieces, read_all
from dralloc.server.store.errors import Compacted, StoreClosed, StoreError, StoreUnavailable, WatcherTooSlow
from dralloc.server.store.interface import Store, Watch
from dralloc.server.store.records import Record, StoreEvent

RETRY_S: Final = 1.0
READY_TIMEOUT_S: Final = 30.0
# Changes that are applied before requests are answered again.
CHANGES_PER_STEP: Final = 50

T = TypeVar("T")

_logger = logging.getLogger(__name__)


class DerivedIndex(Protocol):
    """An index over the records under some prefixes. A new one knows nothing."""

    def learn(self, record: Record) -> None:
        """Learn one more of the records that the index starts with."""

    def apply(self, event: StoreEvent) -> None:
        """Apply the next change."""

    def replace(self, earlier: Self, revision: int) -> None:
        """Take the place of the earlier index: this one has every change up to the revision."""


IndexT = TypeVar("IndexT", bound=DerivedIndex)


class StoreView(Generic[IndexT]):
    """Feeds one index at a time from a task of its own, which `start` or the first `ready` begins.

    With several prefixes, the index has one revision of all of them. What it makes of a record can depend on the index of a view that it
    `follows`: that one always has the changes before.
    """

    def __init__(
        self,
        store: Store,
        prefixes: tuple[str, ...],
        make: Callable[[], IndexT],
        *,
        follows: StoreView[Any] | None = None,
    ) -> None:
        self.index = make()
        # The index has every change up to this revision.
        self.revision = 0
        self._store = store
        self._prefixes = prefixes
        self._root = f"{commonpath(prefixes)}/"
        self._is_whole = prefixes == (self._root,)
        self._make = make
        self._follows = follows
        self._watch: Watch | None = None
        # Changes that were taken from the watch and are not applied yet, because the first one waits until it can be.
        self._taken: deque[StoreEvent] = deque()
        self._preparing: asyncio.Task[None] | None = None
        # Set while there is a watch, and when the task has ended.
        self._watching = asyncio.Event()
        self._task = BackgroundTask(self._run, name=f"view of {self._name}")
        self._is_started = False

    def start(self) -> None:
        self._is_started = True
        self._task.start()

    async def ready(self, revision: int | None = None) -> None:
        """Wait until the index has every change up to the revision; without one, up to the newest that the store has shown.

        So it has every change that was acknowledged before the caller's last read of the store began. Raises StoreUnavailable.
        """
        if not self._is_started:
            self.start()
        wanted = max(self._store.newest_seen if revision is None else revision, 1)
        if not self._has(wanted):
            await self._wait_for(wanted)

    def _has(self, revision: int) -> bool:
        """True if the index has every change up to the revision, or gets them without waiting."""
        if self.revision < revision and self._watch is not None:
            try:
                self._catch_up(self._watch, revision)
            except StoreError:
                # The task meets the same error and starts over.
                self._watching.clear()
        return self.revision >= revision

    async def stop(self) -> None:
        await self._task.stop()
        if self._preparing is not None:
            self._preparing.cancel()
            await asyncio.gather(self._preparing, return_exceptions=True)

    @property
    def _name(self) -> str:
        return ", ".join(self._prefixes)

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
            raise StoreUnavailable(f"the view of {self._name} has not reached revision {revision} in time") from None

    async def _approach(self, revision: int) -> None:
        await self._watching.wait()
        watch = self._watch
        if watch is None:
            raise StoreUnavailable(f"the view of {self._name} has ended")
        if self._preparing is not None:
            await asyncio.wait((self._preparing,))
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
                    await self._start_over()
                except StoreClosed:
                    return
                except (Compacted, WatcherTooSlow):
                    _logger.warning("the view of %s fell behind: reading it again", self._name)
                except StoreError as error:
                    _logger.warning("cannot update the view of %s: %s", self._name, error)
                    await asyncio.sleep(RETRY_S)
        finally:
            self._watching.set()

    async def _start_over(self) -> None:
        records, revision = await self._read_all()
        # From here on, the earlier index stays as it is.
        self._taken = deque()
        with await self._store.watch(self._root, after_revision=revision) as watch:
            await self._replace_index(records, revision, watch)
            # They are not needed as long as the watch goes on.
            del records
            self._watch = watch
            self._watching.set()
            try:
                while True:
                    self._note_reached(watch.revision)
                    self._take(await watch.next())
            finally:
                self._watch = None
                self._watching.clear()

    async def _read_all(self) -> tuple[list[Record], int]:
        """The records under all prefixes at one revision."""
        first, *others = self._prefixes
        records, revision = await read_all(self._store, first)
        for prefix in others:
            records += (await read_all(self._store, prefix, revision=revision))[0]
        return records, revision

    async def _replace_index(self, records: Iterable[Record], revision: int, watch: Watch) -> None:
        """Make an index of the records, in pieces: there may be hundreds of thousands. What changes meanwhile is applied before it
        replaces the earlier one; it is taken at once, because the store keeps changes for a while only.
        """
        index, changes = self._make(), deque[StoreEvent]()
        if self._follows is not None:
            await self._follows.ready(revision)
        for piece in in_pieces(records, _work_of):
            for record in piece:
                index.learn(record)
            await asyncio.sleep(0)
            changes.extend(self._chosen(watch.take()))
        while changes:
            for _ in range(min(len(changes), CHANGES_PER_STEP)):
                event = changes.popleft()
                if self._follows is not None:
                    await self._follows.ready(event.revision)
                index.apply(event)
                revision = event.revision
            if changes:
                await asyncio.sleep(0)
                changes.extend(self._chosen(watch.take()))
        index.replace(self.index, revision)
        self.index, self.revision = index, revision

    def _take(self, events: Iterable[StoreEvent]) -> None:
        """Apply events after those that are not applied yet."""
        self._taken.extend(self._chosen(events))
        if self._preparing is None:
            self._apply_taken()

    def _apply_taken(self, *, is_prepared: bool = False) -> None:
        """Apply what was taken, up to a change that the followed view does not have yet. `is_prepared`: the first one has waited."""
        taken, follows = self._taken, self._follows
        while taken:
            event = taken[0]
            if not is_prepared and follows is not None and not follows._has(event.revision):
                self._preparing = asyncio.create_task(self._apply_after(follows.ready(event.revision), taken))
                return
            is_prepared = False
            taken.popleft()
            self.index.apply(event)
            self.revision = event.revision

    async def _apply_after(self, prepared: Awaitable[None], taken: deque[StoreEvent]) -> None:
        try:
            # Without the followed view, the change is applied as it is.
            await asyncio.gather(prepared, return_exceptions=True)
        finally:
            self._preparing = None
        # The view may have started over meanwhile.
        self._apply_taken(is_prepared=taken is self._taken)
        if self._watch is not None:
            self._note_reached(self._watch.revision)

    def _chosen(self, events: Iterable[StoreEvent]) -> Iterable[StoreEvent]:
        """Those under the prefixes, of those under the root."""
        if self._is_whole:
            return events
        return (event for event in events if event.key.startswith(self._prefixes))

    def _note_reached(self, revision: int) -> None:
        if not self._taken and revision > self.revision:
            self.revision = revision


def _work_of(record: Record) -> int:
    """As much as to copy so many bytes."""
    return 8 * (200 + len(record.value))


class RecordIndex(ABC):
    """An index whose entries depend on one record each."""

    def learn(self, record: Record) -> None:
        self._put(record.key, record)

    def apply(self, event: StoreEvent) -> None:
        self._put(event.key, event.record)

    def replace(self, earlier: Self, revision: int) -> None:  # noqa: B027
        """Nothing is kept of the earlier one."""

    @abstractmethod
    def _put(self, key: str, record: Record | None) -> None:
        """Set what is stored under the key."""
