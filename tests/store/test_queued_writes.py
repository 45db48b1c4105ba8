"""Writes that are decided on records that are queued and not stored yet: they are stored after them, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import NamedTuple

import pytest

from dralloc.store.errors import FenceMoved, StoreFull
from dralloc.store.interface import Fence
from dralloc.store.records import Record
from dralloc.store.sqlite import SqliteStore
from dralloc.testing.virtual_time import run_virtual
from tests.simulator.simulated_disk import DATABASE, SimulatedDisk

# More than the log has room for.
LARGE = bytes(2_000_000)


class OpenStore(NamedTuple):
    store: SqliteStore
    disk: SimulatedDisk


Scenario = Callable[[OpenStore], Awaitable[None]]


def on_a_simulated_disk(scenario: Scenario) -> Callable[[], None]:
    def test() -> None:
        async def run() -> None:
            disk = SimulatedDisk(Random(1))
            try:
                async with await SqliteStore.open(DATABASE, disk=disk) as store:
                    await scenario(OpenStore(store, disk))
            finally:
                disk.close()

        run_virtual(run())

    return test


def following(record: Record) -> tuple[Fence, ...]:
    return (Fence(name="f", token=b"t", queued=(record,)),)


async def queue_update(store: SqliteStore, record: Record, value: bytes) -> asyncio.Task[Record]:
    """Returns when the write is queued."""
    return (await queue_numbered(store, record, value))[0]


async def queue_numbered(store: SqliteStore, record: Record, value: bytes) -> tuple[asyncio.Task[Record], int]:
    """Returns when the write is queued, with the number of the queue."""
    queued: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    write = store.update(record.key, value, expected_revision=record.revision, on_queued=queued.set_result)
    task = asyncio.create_task(write)
    number = await queued
    assert not task.done()
    return task, number


@on_a_simulated_disk
async def test_a_queued_record_is_shown_to_writers_only(opened: OpenStore) -> None:
    store = opened.store
    before = await store.create("/a", b"1")
    assert await store.get_queued("/a") == before
    assert await store.get_queued("/b") is None
    write = await queue_update(store, before, b"2")
    assert await store.get("/a") == before
    shown = await store.get_queued("/a")
    assert shown == await write == await store.get("/a") == await store.get_queued("/a")


@on_a_simulated_disk
async def test_a_write_that_follows_a_queued_one_is_stored_by_the_same_commit(opened: OpenStore) -> None:
    store = opened.store
    first, second = await store.create("/a", b"1"), await store.create("/b", b"1")
    watch = await store.watch("/", after_revision=second.revision)
    write = await queue_update(store, first, b"2")
    shown = await store.get_queued("/a")
    assert shown is not None
    await store.update("/b", b"2", expected_revision=second.revision, fences=following(shown))
    assert write.done()
    assert [event.key for event in watch.take()] == ["/a", "/b"]


@on_a_simulated_disk
async def test_what_was_decided_on_a_record_that_was_not_stored_is_not_stored(opened: OpenStore) -> None:
    """Also if it is queued only after the first write has failed, and although another write has taken its revision since."""
    store, disk = opened
    first, second = await store.create("/a", b"1"), await store.create("/b", b"1")
    disk.is_full = True
    write = await queue_update(store, first, LARGE)
    shown = await store.get_queued("/a")
    assert shown is not None
    early = store.update("/b", b"2", expected_revision=second.revision, fences=following(shown))
    outcomes = await asyncio.gather(write, early, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreFull, StoreFull]
    disk.is_full = False
    again = await store.update("/a", b"2", expected_revision=first.revision)
    assert again.revision == shown.revision
    with pytest.raises(FenceMoved):
        await store.update("/b", b"2", expected_revision=second.revision, fences=following(shown))
    assert await store.get("/b") == second
    await store.update("/b", b"2", expected_revision=second.revision, fences=following(again))


@on_a_simulated_disk
async def test_a_write_that_waits_for_another_is_decided_again_if_what_it_follows_was_not_stored(
    opened: OpenStore,
) -> None:
    """It waits, because its key has another revision in the queue, which is not stored either."""
    store, disk = opened
    first, second = await store.create("/a", b"1"), await store.create("/b", b"1")
    disk.is_full = True
    one = await queue_update(store, first, LARGE)
    other = await queue_update(store, second, LARGE)
    shown = await store.get_queued("/a")
    assert shown is not None
    waiting = store.update("/b", b"2", expected_revision=second.revision, fences=following(shown))
    outcomes = await asyncio.gather(one, other, waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreFull, StoreFull, FenceMoved]


@on_a_simulated_disk
async def test_a_write_that_follows_a_queue_is_stored_after_what_is_in_it(opened: OpenStore) -> None:
    """Also if the records have changed again since."""
    store = opened.store
    first, second = await store.create("/a", b"1"), await store.create("/b", b"1")
    write, number = await queue_numbered(store, first, b"2")
    early = await store.update("/b", b"2", expected_revision=second.revision, follows={number})
    assert write.done()
    await store.update("/a", b"3", expected_revision=(await write).revision)
    await store.update("/b", b"3", expected_revision=early.revision, follows={number})


@on_a_simulated_disk
async def test_a_write_that_follows_a_lost_queue_is_not_stored(opened: OpenStore) -> None:
    store, disk = opened
    first, second = await store.create("/a", b"1"), await store.create("/b", b"1")
    disk.is_full = True
    write, number = await queue_numbered(store, first, LARGE)
    assert [type(each) for each in await asyncio.gather(write, return_exceptions=True)] == [StoreFull]
    disk.is_full = False
    with pytest.raises(FenceMoved):
        await store.update("/b", b"2", expected_revision=second.revision, follows={number})
    assert await store.get("/b") == second


@on_a_simulated_disk
async def test_a_key_is_created_when_it_is_known_whether_what_it_was_decided_on_changes(opened: OpenStore) -> None:
    store, disk = opened
    first = await store.create("/a", b"1")
    disk.is_full = True
    fails = await queue_update(store, first, LARGE)
    fails.add_done_callback(lambda _: setattr(disk, "is_full", False))
    await store.create("/b", b"", unchanged=(first,))
    assert isinstance(fails.exception(), StoreFull)
    succeeds = await queue_update(store, first, b"2")
    with pytest.raises(FenceMoved):
        await store.create("/c", b"", unchanged=(first,))
    assert await store.get("/a") == await succeeds
