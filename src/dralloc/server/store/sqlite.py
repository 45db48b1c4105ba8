"""The default store: durable in one SQLite file, served from memory.

A write is decided and gets its revision in the event loop, then waits for its commit: writes that arrive during one
commit are batched into the next, so that writers share the cost of a sync to disk. Only after the commit do readers and
watches see it, and only then is it acknowledged. A queued write is stored before every later one, or none of them is, so
that a later one can be decided on it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Self

from dralloc.primitives.clock import Clock
from dralloc.server.store.disk import Disk
from dralloc.server.store.errors import FenceMoved, KeyExists, RevisionConflict, StoreClosed, StoreError
from dralloc.server.store.event_log import SLICE_MIN
from dralloc.server.store.interface import HistoryLimits
from dralloc.server.store.local_store import LocalStore
from dralloc.server.store.records import Record, StoreEvent
from dralloc.server.store.revisioned_map import ProposedWrite, RevisionedMap, decide
from dralloc.server.store.sqlite_file import Compaction, SqliteFile

MARK_SYNC_EVERY_S = 0.1
# After so long without a write there is time for what no write should wait for.
IDLE_S = 0.02


class _QueuedWrite(NamedTuple):
    event: StoreEvent
    done: asyncio.Future[None]


class SqliteStore(LocalStore):
    """Acknowledged writes survive a crash of the process."""

    def __init__(self, file: SqliteFile, revisioned: RevisionedMap) -> None:
        super().__init__(revisioned)
        self._file = file
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="dralloc-store")
        self._last_revision = revisioned.revision
        self._pending: dict[str, StoreEvent] = {}
        self._queue: list[_QueuedWrite] = []
        self._compactions: deque[Compaction] = deque()
        self._work = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._committer = asyncio.create_task(self._commit_until_closed())
        self._marked = asyncio.Event()
        self._mark_thread = ThreadPoolExecutor(1, thread_name_prefix="dralloc-store-mark")
        self._mark_syncer = asyncio.create_task(self._sync_mark())

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        limits: HistoryLimits | None = None,
        synchronous: str = "FULL",
        disk: Disk | None = None,
        accept_lost_writes: bool = False,
        clock: Clock | None = None,
    ) -> Self:
        """Opens or creates a store; raises StoreUnavailable, StoreFull, CorruptStore or LostWrites.

        With `accept_lost_writes`, a store that lost writes goes on with those that it has, at a higher revision.
        """
        file = SqliteFile(path, synchronous=synchronous, disk=disk, accept_lost_writes=accept_lost_writes, clock=clock)
        try:
            return cls(file, file.load(limits or HistoryLimits()))
        except BaseException:
            file.close_unchanged()
            raise

    @property
    def failure(self) -> StoreError | None:
        return self._file.failure

    async def close(self) -> None:
        self._closed = True
        self._work.set()
        # Every caller waits for the end; cancelling one does not affect the others.
        await asyncio.shield(self._committer)

    async def settle(self, fence: str, token: bytes) -> int:  # noqa: ARG002
        # A failed commit takes the revisions of all queued writes back.
        last = self._last_revision
        while self._map.revision < last <= self._last_revision:
            await asyncio.wait((self._finished,))
        return self._map.revision

    async def _write(self, change: ProposedWrite) -> StoreEvent:
        self._check_open()
        while (event := self._decide(change)) is None:
            await asyncio.wait((self._finished,))
            self._check_open()
        self._last_revision = event.revision
        self._pending[event.key] = event
        done = self._loop.create_future()
        self._queue.append(_QueuedWrite(event, done))
        self._work.set()
        await done
        return event

    def _decide(self, change: ProposedWrite) -> StoreEvent | None:
        """Returns the event of the change; None if that depends on an uncommitted write."""
        for record in change.unchanged:
            if self._newest(record.key) is not record:
                if self._map.get(record.key) is record:
                    # As below: the write that replaces it may still fail.
                    return None
                raise FenceMoved(change.key)
        revision = self._last_revision + 1
        pending = self._pending.get(change.key)
        if pending is None:
            return decide(change, current=self._map.get(change.key), revision=revision)
        try:
            return decide(change, current=pending.record, revision=revision)
        except (KeyExists, RevisionConflict):
            # The uncommitted write may still fail, and cannot be read yet, so an error now could not be explained. Fail
            # at once only if the committed state conflicts, too.
            decide(change, current=self._map.get(change.key), revision=revision)
            return None

    def _newest(self, key: str) -> Record | None:
        pending = self._pending.get(key)
        return self._map.get(key) if pending is None else pending.record

    async def _forget(self, revision: int) -> None:
        # Not awaited: after a crash the file may have more history than required, which is harmless.
        self._drop_until(revision)
        self._work.set()
        await asyncio.sleep(0)

    def _drop_until(self, revision: int) -> None:
        if revision > self._map.log.compacted:
            dropped, unreachable = self._map.compact(revision)
            self._hub.forget(revision)
            self._compactions.append(Compaction(revision=revision, events=len(dropped), unreachable=tuple(unreachable)))

    async def _commit_until_closed(self) -> None:
        """Commits one batch after the other; writes queued before close are still committed."""
        try:
            while not self._closed or self._queue:
                if self._file.needs_log_room and not await self._has_work_within(IDLE_S):
                    await self._loop.run_in_executor(self._thread, self._file.make_log_room)
                await self._work.wait()
                self._work.clear()
                if self._queue or self._compactions:
                    await self._commit_queue()
        finally:
            self._closed = True
            self._settle(self._queue, StoreClosed())
            self._hub.close()
            self._thread.shutdown()
            self._mark_syncer.cancel()
            self._mark_thread.shutdown()
            self._file.sync_mark()
            self._file.close()

    async def _has_work_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._work.wait()
        except TimeoutError:
            return False

    async def _sync_mark(self) -> None:
        """Syncs the high-water mark after commits, beside the next ones and not for each, so that no write waits for it."""
        while True:
            await self._marked.wait()
            self._marked.clear()
            await self._loop.run_in_executor(self._mark_thread, self._file.sync_mark)
            await asyncio.sleep(MARK_SYNC_EVERY_S)

    async def _commit_queue(self) -> None:
        batch, self._queue = self._queue, []
        events = [write.event for write in batch]
        compaction = self._compactions[0] if self._compactions else None
        try:
            await self._loop.run_in_executor(self._thread, self._file.commit, events, compaction)
        except StoreError as error:
            # Queued writes depend on the lost ones.
            self._settle(batch + self._queue, error)
            return
        except BaseException:
            # Cancelled with the event loop, or a bug: waiting writers must not hang.
            self._settle(batch + self._queue, StoreClosed())
            raise
        if compaction is not None:
            self._compactions.popleft()
        if events:
            self._file.mark(events[-1].revision)
            self._marked.set()
        self._install(events)
        self._drop_until(self._map.log.overdue(events_max=SLICE_MIN + 2 * len(events)))
        self._settle(batch)
        if self._compactions:
            self._work.set()

    def _settle(self, writes: Sequence[_QueuedWrite], error: StoreError | None = None) -> None:
        """Resolves the writers' futures."""
        if error is not None:
            self._queue = []
            self._pending = {}
            self._last_revision = self._map.revision
        for write in writes:
            if error is None and self._pending.get(write.event.key) is write.event:
                del self._pending[write.event.key]
            if not write.done.done():
                write.done.set_result(None) if error is None else write.done.set_exception(error)
        finished, self._finished = self._finished, self._loop.create_future()
        finished.set_result(None)
