"""Views of the store belong to the server, not to the request that first needed them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import islice
from random import Random
from typing import Any, cast

import grpc.aio
import pytest

from dralloc.server.read.store_view import StoreView
from dralloc.server.store.errors import StoreUnavailable
from dralloc.server.store.etcd import EtcdStore
from dralloc.server.store.etcd_api import EtcdAddress, EtcdApi
from dralloc.server.store.interface import HistoryLimits, Page, Store
from dralloc.server.store.memory import MemoryStore
from dralloc.server.store.records import Record, StoreEvent
from dralloc.testing.virtual_time import run_virtual
from tests.simulator.etcd_channel import EtcdChannel, EtcdHost
from tests.simulator.history import StoreHistory
from tests.simulator.network import Faults, Network
from tests.simulator.simulated_etcd import SimulatedEtcd
from tests.support.loop_steps import longest_step

PREFIX = "/registry/things/"
# More changes than a store keeps that is to keep a few.
HISTORY_MAX = 600


class Keys:
    """The keys in the order in which they became known."""

    def __init__(self) -> None:
        self.known: list[str] = []

    def learn(self, record: Record) -> None:
        self.known.append(record.key)

    def apply(self, event: StoreEvent) -> None:
        self.known.append(event.key)

    def replace(self, earlier: Keys, revision: int) -> None:
        pass


class SlowKeys(Keys):
    """Takes half a millisecond of the processor for each record that it starts with, and for each change."""

    def learn(self, record: Record) -> None:
        self._work()
        super().learn(record)

    def apply(self, event: StoreEvent) -> None:
        self._work()
        super().apply(event)

    def _work(self) -> None:
        end = time.thread_time() + 0.0005
        while time.thread_time() < end:
            pass


@asynccontextmanager
async def following(store: Store, make: Callable[[], Keys]) -> AsyncIterator[StoreView[Keys]]:
    view = StoreView(store, (PREFIX,), make)
    view.start()
    yield view
    await view.stop()


async def until_ready(view: StoreView[Keys]) -> AsyncIterator[Keys]:
    """The index that is shown in each step of the loop until it is up to date."""
    ready = asyncio.create_task(view.ready())
    while not ready.done():
        await asyncio.sleep(0)
        yield view.index


def test_the_first_records_are_learned_in_pieces() -> None:
    async def main() -> None:
        async with MemoryStore() as store, following(store, SlowKeys) as view:
            written = [f"{PREFIX}{number:03}" for number in range(200)]
            for key in written:
                await store.create(key, bytes(2000))
            with longest_step() as longest:
                assert {tuple(index.known) async for index in until_ready(view)} == {(), tuple(written)}
            assert longest.seconds < 0.05

    asyncio.run(main())


@pytest.mark.slow
def test_a_view_that_fell_behind_shows_one_state_until_it_has_learned_the_next() -> None:
    async def main() -> None:
        limits = HistoryLimits(events_max=20)
        async with MemoryStore(limits=limits) as store, following(store, SlowKeys) as view:
            await store.create(f"{PREFIX}first", b"")
            await view.ready()
            # More than the store keeps changes, in one step of the loop; and again while the view learns, in many steps.
            for number in range(HISTORY_MAX):
                await store.create(f"{PREFIX}{number:04}", bytes(2000))
            shown, later = set[tuple[str, ...]](), iter(range(HISTORY_MAX, 2 * HISTORY_MAX))
            with longest_step() as longest:
                async for index in until_ready(view):
                    shown.add(tuple(index.known))
                    for number in islice(later, 50):
                        await store.create(f"{PREFIX}{number:04}", bytes(2000))
            assert not set(later)
            await view.ready()
            assert min(shown, key=len) == (f"{PREFIX}first",)
            # Changes that it takes meanwhile are no reason to begin anew, and are applied before it shows anything.
            assert len(shown) <= 2
            assert set(view.index.known) == {
                f"{PREFIX}first",
                *(f"{PREFIX}{number:04}" for number in range(2 * HISTORY_MAX)),
            }
            assert longest.seconds < 0.05

    asyncio.run(main())


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
            view = StoreView(store, (PREFIX,), Keys)
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
