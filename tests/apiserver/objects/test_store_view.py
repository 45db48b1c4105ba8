"""Views of the store belong to the server, not to the request that first needed them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from random import Random
from typing import Any, cast

import grpc.aio

from dralloc.access.users import ADMINISTRATOR
from dralloc.apiserver.http.flow_control import SIZE_INLINE_MAX, FlowControl, begin
from dralloc.apiserver.http.priority_levels import PriorityLevel
from dralloc.apiserver.objects.record_lists import RECORDS_PER_READ
from dralloc.apiserver.objects.store_view import RecordReader, StoreView
from dralloc.simulator.etcd_channel import EtcdChannel, EtcdHost
from dralloc.simulator.history import StoreHistory
from dralloc.simulator.network import Faults, Network
from dralloc.simulator.simulated_etcd import SimulatedEtcd
from dralloc.simulator.virtual_time import run_virtual
from dralloc.store.errors import StoreUnavailable
from dralloc.store.etcd import EtcdStore
from dralloc.store.etcd_api import EtcdAddress, EtcdApi
from dralloc.store.interface import Page
from dralloc.store.memory import MemoryStore
from dralloc.store.records import Record, StoreEvent

PREFIX = "/registry/things/"


class Keys:
    """The keys in the order in which they became known, and those whose records were read in a thread."""

    def __init__(self) -> None:
        self.known: list[str] = []
        self.ahead: list[str] = []

    def reset(self, records: Iterable[Record], revision: int) -> None:
        self.known = [record.key for record in records]

    def learn(self, record: Record) -> None:
        self.known.append(record.key)

    def apply(self, event: StoreEvent) -> None:
        self.known.append(event.key)

    def read_ahead(self, record: Record) -> None:
        assert threading.current_thread() is not threading.main_thread()
        self.ahead.append(record.key)


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
            assert not keys.ahead
            await view.stop()

    asyncio.run(main())


class SlowKeys(Keys):
    """Takes a millisecond of the processor for each record that it starts with."""

    def reset(self, records: Iterable[Record], revision: int) -> None:
        super().reset((), revision)
        for record in records:
            self.learn(record)

    def learn(self, record: Record) -> None:
        end = time.thread_time() + 0.001
        while time.thread_time() < end:
            pass
        super().learn(record)


def test_the_first_records_are_learned_in_pieces() -> None:
    async def main() -> None:
        control, keys = FlowControl(), SlowKeys()
        async with MemoryStore() as store:
            written = [f"{PREFIX}{number:03}" for number in range(100)]
            for key in written:
                await store.create(key, bytes(SIZE_INLINE_MAX + 1 if key.endswith("50") else 10))
            with control.starting_server():
                view = StoreView(store, PREFIX, keys)
            ready = asyncio.create_task(view.ready())
            steps: list[int] = []
            while not ready.done():
                before = len(keys.known)
                await asyncio.sleep(0)
                steps.append(len(keys.known) - before)
                assert not view.revision or len(keys.known) == len(written)
            assert keys.known == written
            assert keys.ahead == [f"{PREFIX}050"]
            assert max(steps) <= 10
            await view.stop()
        control.close()

    asyncio.run(main())


def test_large_records_are_read_in_a_thread_and_applied_in_order() -> None:
    async def main() -> None:
        control, keys = FlowControl(), Keys()
        async with MemoryStore() as store:
            with control.starting_server():
                view = StoreView(store, PREFIX, keys)
            await view.ready()
            written = [f"{PREFIX}{number}" for number in range(9)]
            for number, key in enumerate(written):
                record = await store.create(key, bytes(SIZE_INLINE_MAX + 1 if number % 3 == 1 else 10))
            await view.ready()
            assert view.revision == record.revision
            assert keys.known == written
            assert keys.ahead == written[1::3]
            # What is being read when the view ends is not applied any more.
            await store.create(f"{PREFIX}last", bytes(SIZE_INLINE_MAX + 1))
            await view.stop()
            assert keys.known == written
        control.close()

    asyncio.run(main())


def test_what_was_read_ahead_is_read_once() -> None:
    read: list[int] = []

    def size(record: Record) -> int:
        read.append(record.revision)
        return len(record.value)

    reader = RecordReader(size)
    first, second = (Record(key="/a", value=bytes(revision), revision=revision) for revision in (1, 2))
    reader.read_ahead(first)
    assert (reader(first), reader(first), reader(second)) == (1, 1, 2)
    assert read == [1, 1, 2]
    # A record that was read ahead and not needed is no answer for another one.
    reader.read_ahead(first)
    assert reader(second) == 2


class Overtaken(EtcdStore):
    """Another server writes to another part of etcd between each list and the watch after it."""

    other: EtcdStore

    async def list_prefix(self, prefix: str, **more: Any) -> Page:
        page = await super().list_prefix(prefix, **more)
        await written_by(self.other, str(page.revision))
        return page


async def written_by(store: EtcdStore, name: str) -> Record:
    while True:
        # After a restore, the first write is refused.
        with suppress(StoreUnavailable):
            return await store.create(f"/registry/others/{name}", b"{}")


def test_a_view_is_ready_soon_although_its_watch_begins_before_the_feed_that_all_share() -> None:
    """A restored etcd has a new feed, which begins with the first watch."""

    async def main() -> None:
        host, network = EtcdHost(SimulatedEtcd(StoreHistory())), Network(Random(1), Faults())

        def api(name: str) -> EtcdApi:
            channel = cast("grpc.aio.Channel", EtcdChannel(network, name, host))
            return EtcdApi(EtcdAddress(endpoints=("simulated:1",)), channel)

        async with await EtcdStore.open_with(api("b")) as other, await Overtaken.open_with(api("a")) as store:
            store.other = other
            view = StoreView(store, PREFIX, Keys())
            await view.ready()
            host.etcd.restore(host.etcd.snapshot())
            await asyncio.sleep(5)
            written = await written_by(other, "last")
            await store.current_revision()
            async with asyncio.timeout(5):
                await view.ready()
            assert view.revision >= written.revision
            await view.stop()

    run_virtual(main())
