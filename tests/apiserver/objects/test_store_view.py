"""Views of the store belong to the server, not to the request that first needed them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from dralloc.access.users import ADMINISTRATOR
from dralloc.apiserver.http.flow_control import FlowControl, begin
from dralloc.apiserver.http.priority_levels import PriorityLevel
from dralloc.apiserver.objects.record_lists import RECORDS_PER_READ
from dralloc.apiserver.objects.store_view import StoreView
from dralloc.store.memory import MemoryStore
from dralloc.store.records import Record, StoreEvent

PREFIX = "/registry/things/"


class Keys:
    def __init__(self) -> None:
        self.known: set[str] = set()

    def reset(self, records: Iterable[Record], revision: int) -> None:
        self.known = {record.key for record in records}

    def apply(self, event: StoreEvent) -> None:
        self.known.add(event.key)


class Connection:
    is_gone = False


def test_a_view_goes_on_without_the_client_whose_request_started_it() -> None:
    async def main() -> None:
        async with MemoryStore() as store:
            # More than are read at once, so that other tasks run in between.
            for number in range(RECORDS_PER_READ + 1):
                await store.create(f"{PREFIX}{number}", b"{}")
            connection, keys = Connection(), Keys()
            begin(FlowControl().flow_of(ADMINISTRATOR, PriorityLevel.SYSTEM, None, connection=connection))
            view = StoreView(store, PREFIX, keys)
            connection.is_gone = True
            await view.ready()
            await store.create(f"{PREFIX}later", b"{}")
            await view.ready()
            assert len(keys.known) == RECORDS_PER_READ + 2
            await view.stop()

    asyncio.run(main())
