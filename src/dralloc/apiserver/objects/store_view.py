"""Keep something up to date with a part of the store: read it once, then take every change in order.

What the server derives from stored objects (charges against quotas, owners and their dependents, devices in
use) is kept this way. When the store cannot give the changes in between, everything is read again.
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
    """What is told about every record and change under a prefix."""

    def reset(self, records: Iterable[Record], revision: int) -> None:
        """Start over with exactly these records, which are what was stored at the revision."""

    def apply(self, event: StoreEvent) -> None:
        """Take the next change."""


class StoreView:
    """One follower, fed by a task of its own."""

    def __init__(self, store: Store, prefix: str, follower: DerivedIndex) -> None:
        self._store = store
        self._prefix = prefix
        self._follower = follower
        self._caught_up = asyncio.Event()
        self._watch: Watch | None = None
        self._task = asyncio.create_task(self._run(), name=f"follow {prefix}")

    async def ready(self) -> None:
        """Return when the follower has seen everything that the store has told of by now."""
        if not self._caught_up.is_set():
            await self._caught_up.wait()
        if self._watch is not None:
            try:
                await self._take(self._watch, timeout_s=0)
            except StoreError:
                # The task comes upon it, too, and starts over.
                return

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._follow()
            except StoreClosed:
                return
            except (Compacted, WatcherTooSlow):
                _logger.warning("fell behind the changes under %s: reading it again", self._prefix)
            except StoreUnavailable as error:
                _logger.warning("cannot follow %s: %s", self._prefix, error)
                await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        records, revision = await read_all(self._store, self._prefix)
        self._follower.reset(records, revision)
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
            self._follower.apply(event)


class KindIndex(ABC):
    """What the objects of one kind say, followed from the first time that somebody needs it."""

    def __init__(self, store: Store, kind: Kind) -> None:
        self._store = store
        self._kind = kind
        self._following: StoreView | None = None

    async def ready(self) -> None:
        if self._following is None:
            self._following = StoreView(self._store, prefix_of(self._kind), self)
        await self._following.ready()

    async def stop(self) -> None:
        if self._following is not None:
            await self._following.stop()

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
