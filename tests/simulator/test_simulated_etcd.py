"""The simulated etcd answers as the real one, wherever the store depends on it: both run the same requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, cast

import grpc.aio
import pytest

from dralloc.server.store.errors import Compacted, FutureRevision, KeyExists, RevisionConflict, StoreError
from dralloc.server.store.etcd import EtcdStore
from dralloc.server.store.etcd_api import EtcdAddress, EtcdApi
from dralloc.server.store.interface import Store
from dralloc.server.store.store_url import open_store
from dralloc.testing.virtual_time import run_virtual
from tests.simulator.etcd_channel import EtcdChannel, EtcdHost
from tests.simulator.history import StoreHistory
from tests.simulator.network import Faults, Network
from tests.simulator.recorded_store import RecordedStore
from tests.simulator.simulated_etcd import SimulatedEtcd
from tests.support.etcd_server import EtcdServer

Scenario = Callable[[Store], Awaitable[list[Any]]]


async def outcome(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except (Compacted, FutureRevision, KeyExists, RevisionConflict) as error:
        return type(error).__name__


async def writes(store: Store) -> list[Any]:
    first = await store.create("/registry/a/x", b"1")
    second = await store.update("/registry/a/x", b"2", expected_revision=first.revision)
    told = [
        await outcome(store.create("/registry/a/x", b"3")),
        await outcome(store.update("/registry/a/x", b"3", expected_revision=first.revision)),
        await outcome(store.delete("/registry/a/x", expected_revision=first.revision)),
        await outcome(store.update("/registry/a/y", b"3", expected_revision=first.revision)),
    ]
    deleted = await store.delete("/registry/a/x", expected_revision=second.revision)
    again = await store.create("/registry/a/x", b"4")
    return [*told, second.revision - first.revision, deleted - first.revision, again.revision - first.revision]


async def lists(store: Store) -> list[Any]:
    revisions = [(await store.create(f"/registry/a/{number}", b"")).revision for number in range(5)]
    start = revisions[0]
    await store.delete("/registry/a/3", expected_revision=revisions[3])
    old = await store.list_prefix("/registry/a/", revision=revisions[4])
    page = await store.list_prefix("/registry/a/", limit=2)
    rest = await store.list_prefix("/registry/a/", limit=2, page=page.next)
    now = await store.current_revision()
    future = await outcome(store.list_prefix("/registry/a/", revision=now + 10))
    await store.compact(revisions[4])
    past = await outcome(store.list_prefix("/registry/a/", revision=revisions[2]))
    kept = await store.list_prefix("/registry/a/", revision=revisions[4])
    return [
        *([record.key for record in found.records] for found in (old, page, rest, kept)),
        page.remaining,
        page.revision - start,
        rest.revision - start,
        future,
        past,
    ]


async def watches(store: Store) -> list[Any]:
    start = await store.current_revision()
    record = await store.create("/registry/a/x", b"1")
    told: list[Any] = []
    with await store.watch("/registry/a/", after_revision=start) as watch:
        record = await store.update("/registry/a/x", b"2", expected_revision=record.revision)
        await store.create("/registry/b/x", b"1")
        deleted = await store.delete("/registry/a/x", expected_revision=record.revision)
        while len(told) < 3:
            for event in await watch.next():
                value = event.record.value if event.record else None
                previous = event.previous.value if event.previous else None
                told.append((event.revision - start, event.key, value, previous))
    await store.create("/registry/a/y", b"")
    await store.compact(deleted)
    told.append(await outcome(_first(store, start)))
    told.append(await _first(store, deleted))
    return told


async def _first(store: Store, after: int) -> list[str]:
    with await store.watch("/registry/a/", after_revision=after) as watch:
        return [event.key for event in await watch.next()]


async def opened(host: EtcdHost) -> EtcdStore:
    channel = EtcdChannel(Network(Random(0), Faults()), "server", host)
    return await EtcdStore.open_with(
        EtcdApi(EtcdAddress(endpoints=("simulated:1",)), cast("grpc.aio.Channel", channel))
    )


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [writes, lists, watches])
def test_the_store_gets_the_same_answers(scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> None:
    async def on_real(url: str) -> list[Any]:
        async with asyncio.timeout(60), await open_store(url) as store:
            return await scenario(store)

    async def on_simulated() -> list[Any]:
        async with await opened(EtcdHost(SimulatedEtcd(StoreHistory()))) as store:
            return await scenario(store)

    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        real = asyncio.run(on_real(server.url("/root")))
    assert run_virtual(on_simulated()) == real


def test_watches_end_in_the_order_in_which_they_began() -> None:
    """Otherwise a seed does not decide which client goes on first."""

    async def run() -> list[int]:
        host = EtcdHost(SimulatedEtcd(StoreHistory()))
        async with await opened(host) as before:
            old = await before.create("/registry/pods/a", b"")
            await before.create("/registry/pods/b", b"")
        store, ended = await opened(host), list[int]()
        for number in range(50):
            # Older than the store's feed.
            watch = await store.watch("/registry/", after_revision=old.revision)
            await watch.next()
            watch.on_change(partial(ended.append, number))
        await store.close()
        return ended

    assert run_virtual(run()) == list(range(50))


@pytest.mark.slow
def test_watches_that_begin_while_etcd_is_restored_miss_nothing() -> None:
    random = Random(0)
    history = StoreHistory()
    etcd = SimulatedEtcd(history)
    host = EtcdHost(etcd)
    network = Network(random, Faults())

    async def opened(name: str) -> RecordedStore:
        api = EtcdApi(EtcdAddress(endpoints=("simulated:1",)), cast("grpc.aio.Channel", channel(name)))
        return RecordedStore(await EtcdStore.open_with(api), history)

    def channel(name: str) -> EtcdChannel:
        return EtcdChannel(network, name, host)

    async def write(store: Store) -> None:
        with suppress(StoreError):
            for _ in range(100):
                await asyncio.sleep(random.random() / 200)
                await store.create(f"/registry/pods/default/{etcd.revision}", b"")

    async def follow(store: Store) -> None:
        with suppress(StoreError):
            await asyncio.sleep(random.random() / 3)
            start = await store.list_prefix("/registry/pods/")
            with await store.watch("/registry/pods/", after_revision=start.revision) as watch:
                while await watch.next(timeout_s=5):
                    pass

    async def run() -> None:
        stores = [await opened("server-0"), await opened("server-1")]
        snapshot = etcd.snapshot()
        for restores in range(1, 20):
            etcd.restore(snapshot, bump=restores * 1000)
            await asyncio.gather(write(stores[0]), *(follow(stores[number % 2]) for number in range(100)))
        for store in stores:
            await store.close()

    run_virtual(run())
    assert not history.violations
