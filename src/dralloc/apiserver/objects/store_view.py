"""Store views: keep an index that is derived from a part of the store (quota usage, dependents, devices in use) up to date.

A view reads the records once, then applies every change in order. If it falls behind the store's history, it starts over.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final, Protocol

from dralloc.api.registry import Kind
from dralloc.apiserver.objects.api_resources import prefix_of
from dralloc.apiserver.objects.record_lists import read_all
from dralloc.store.errors import Compacted, StoreClosed, StoreError, StoreUnavailable, WatcherTooSlow
from dralloc.store.interface import Store, Watch
from dralloc.store.records import Record, StoreEvent

RETRY_S: Final = 1.0

_logger = logging.getLogger(__name__)


class DerivedIndex(Protocol):
    """An index over the records under a prefix."""

    def reset(self, records: Iterable[Record], revision: int) -> None:
        """Start over with exactly these records, as stored at the revision."""

    def apply(self, event: StoreEvent) -> None:
        """Apply the next change."""


class StoreView:
    """Feeds one index from a task of its own."""

    def __init__(self, store: Store, prefix: str, index: DerivedIndex) -> None:
        self._store = store
        self._prefix = prefix
        self._index = index
        self._caught_up = asyncio.Event()
        self._watch: Watch | None = None
        self._task = asyncio.create_task(self._run(), name=f"view of {prefix}")

    async def ready(self) -> None:
        """Wait until the index has every change that the store has delivered by now."""
        if not self._caught_up.is_set():
            await self._caught_up.wait()
        if self._watch is not None:
            try:
                await self._take(self._watch, timeout_s=0)
            except StoreError:
                # The task meets the same error and starts over.
                return

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._read_and_watch()
            except StoreClosed:
                return
            except (Compacted, WatcherTooSlow):
                _logger.warning("the view of %s fell behind: reading it again", self._prefix)
            except StoreUnavailable as error:
                _logger.warning("cannot update the view of %s: %s", self._prefix, error)
                await asyncio.sleep(RETRY_S)

    async def _read_and_watch(self) -> None:
        records, revision = await read_all(self._store, self._prefix)
        self._index.reset(records, revision)
        self._caught_up.set()
        with await self._store.watch(self._prefix, after_revision=revision) as watch:
            self._watch = watch
            try:
                while True:
                    await self._take(watch)
            finally:
                self._watch = None

    async def _take(self, watch: Watch, timeout_s: float | None = None) -> None:
        for event in await watch.next(timeout_s=timeout_s):
            self._index.apply(event)


class KindIndex(ABC):
    """An index over the objects of one kind, whose view starts on first use."""

    def __init__(self, store: Store, kind: Kind) -> None:
        self._store = store
        self._kind = kind
        self._view: StoreView | None = None

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
            self._learn(record.key, record)

    def apply(self, event: StoreEvent) -> None:
        self._learn(event.key, event.record)

    @abstractmethod
    def _forget_all(self) -> None: ...

    @abstractmethod
    def _learn(self, key: str, record: Record | None) -> None: ...
