"""Deletes expired events, which would fill the store otherwise."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta
from typing import Final

from dralloc.kube.registry import EVENT
from dralloc.kube.timestamps import BadTimestamp, parse_timestamp
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import ApiError
from dralloc.server.documents.json_documents import Document
from dralloc.server.read.api_resources import prefix_of
from dralloc.server.read.background_task import BackgroundTask
from dralloc.server.read.record_lists import read_all
from dralloc.server.read.stored_form import read_document
from dralloc.server.store.errors import StoreClosed, StoreError
from dralloc.server.store.interface import Store
from dralloc.server.write.deleter import Deleter
from dralloc.server.write.deletion_rules import DeleteOptions

EVENT_LIFETIME: Final = timedelta(hours=1)
CHECK_INTERVAL_S: Final = 60.0

_logger = logging.getLogger(__name__)


class EventExpiry:
    """Deletes events an hour after they were last seen."""

    def __init__(self, store: Store, clock: Clock, deleter: Deleter) -> None:
        self._store = store
        self._clock = clock
        self._deleter = deleter
        self._task = BackgroundTask(self._run, name="expire events")

    def start(self) -> None:
        self._task.start()

    async def stop(self) -> None:
        await self._task.stop()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            try:
                await self._expire()
            except StoreClosed:
                return
            except (ApiError, StoreError) as error:
                _logger.warning("cannot delete expired events: %s", error)

    async def _expire(self) -> None:
        records, _ = await read_all(self._store, prefix_of(EVENT))
        now = self._clock.now()
        old = [record for record in records if now - last_seen(read_document(record.value)) > EVENT_LIFETIME]
        await self._deleter.delete_all(EVENT, old, DeleteOptions())


def last_seen(event: Document) -> datetime:
    """The time of the event's last occurrence."""
    times = [
        (event.get("series") or {}).get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event["metadata"]["creationTimestamp"],
    ]
    return max(_time(time) for time in times if time)


def _time(text: str) -> datetime:
    try:
        return parse_timestamp(text)
    except BadTimestamp:
        return parse_timestamp("1970-01-01T00:00:00Z")
