"""The common part of the in-process stores: reads and watches from memory, writes decided in the event loop.

The names and tokens of fences are ignored: no other process can write to such a store.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from dralloc.server.store.errors import FutureRevision, StoreClosed
from dralloc.server.store.interface import Fence, Page, PageToken, Store, Watch
from dralloc.server.store.records import Record, StoreEvent
from dralloc.server.store.revisioned_map import ABSENT, ProposedWrite, RevisionedMap
from dralloc.server.store.watch_hub import WatchHub

COMPACTION_SLICE = 1000
"""Events that one step of compaction drops at most: too few for a noticeable pause."""


class LocalStore(Store):
    """Serves from a revisioned map; the subclass makes writes durable before they become visible."""

    def __init__(self, revisioned: RevisionedMap) -> None:
        self._map = revisioned
        self._hub = WatchHub(revisioned.log, revision=revisioned.revision)
        self._closed = False

    @abstractmethod
    async def _write(self, change: ProposedWrite) -> StoreEvent:
        """Carries out a change and returns once it is durable."""

    @abstractmethod
    async def _forget(self, revision: int) -> None:
        """Compacts up to a revision that is at most a slice away."""

    @property
    def newest_seen(self) -> int:
        return self._map.revision

    async def current_revision(self) -> int:
        self._check_open()
        return self._map.revision

    async def get(self, key: str) -> Record | None:
        self._check_open()
        return self._map.get(key)

    async def list_prefix(
        self, prefix: str, *, revision: int | None = None, limit: int | None = None, page: PageToken | None = None
    ) -> Page:
        self._check_open()
        return self._map.page(prefix, revision=revision, limit=limit, token=page)

    async def create(
        self,
        key: str,
        value: bytes,
        *,
        fences: Sequence[Fence] = (),  # noqa: ARG002
        unchanged: Sequence[Record] = (),
    ) -> Record:
        assert key.startswith("/"), "a key is a path"
        event = await self._write(ProposedWrite(key=key, value=value, expected_revision=ABSENT, unchanged=unchanged))
        assert event.record is not None, "a creation leaves a record"
        return event.record

    async def update(
        self,
        key: str,
        value: bytes,
        *,
        expected_revision: int,
        fences: Sequence[Fence] = (),  # noqa: ARG002
    ) -> Record:
        assert expected_revision != ABSENT, "an update replaces a record"
        event = await self._write(ProposedWrite(key=key, value=value, expected_revision=expected_revision))
        assert event.record is not None, "an update leaves a record"
        return event.record

    async def delete(self, key: str, *, expected_revision: int, fences: Sequence[Fence] = ()) -> int:  # noqa: ARG002
        assert expected_revision != ABSENT, "a deletion removes a record"
        event = await self._write(ProposedWrite(key=key, value=None, expected_revision=expected_revision))
        return event.revision

    async def watch(self, prefix: str, *, after_revision: int) -> Watch:
        self._check_open()
        if after_revision > self._map.revision:
            raise FutureRevision(after_revision, current=self._map.revision)
        return self._hub.subscribe(prefix, after_revision=after_revision)

    async def compact(self, revision: int) -> None:
        self._check_open()
        if revision > self._map.revision:
            raise FutureRevision(revision, current=self._map.revision)
        while self._map.log.compacted < revision:
            await self._forget(self._map.log.step_towards(revision, events_max=COMPACTION_SLICE))

    def _install(self, events: Sequence[StoreEvent]) -> None:
        """Makes events visible to readers, then to watches, so that a watcher can read what it was notified of."""
        self._map.apply(events)
        self._hub.publish(events, revision=self._map.revision)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed
