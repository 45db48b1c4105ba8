"""The store in memory: the reference model for tests, and the store of simulations."""

from __future__ import annotations

import asyncio

from dralloc.server.store.errors import FenceMoved
from dralloc.server.store.event_log import SLICE_MIN
from dralloc.server.store.interface import HistoryLimits
from dralloc.server.store.local_store import LocalStore
from dralloc.server.store.records import StoreEvent
from dralloc.server.store.revisioned_map import ProposedWrite, RevisionedMap, decide


class MemoryStore(LocalStore):
    """Holds everything in memory; nothing survives the process."""

    def __init__(self, *, limits: HistoryLimits | None = None) -> None:
        super().__init__(RevisionedMap(limits=limits or HistoryLimits()))

    async def close(self) -> None:
        self._closed = True
        self._hub.close()

    async def _write(self, change: ProposedWrite) -> StoreEvent:
        self._check_open()
        if any(self._map.get(record.key) is not record for record in change.unchanged):
            raise FenceMoved(change.key)
        event = decide(change, current=self._map.get(change.key), revision=self._map.revision + 1)
        self._install((event,))
        self._drop_until(self._map.log.overdue(events_max=2 * SLICE_MIN))
        return event

    async def settle(self, fence: str, token: bytes) -> int:  # noqa: ARG002
        return self._map.revision

    async def _forget(self, revision: int) -> None:
        self._drop_until(revision)
        await asyncio.sleep(0)

    def _drop_until(self, revision: int) -> None:
        if revision > self._map.log.compacted:
            self._map.compact(revision)
            self._hub.forget(revision)
