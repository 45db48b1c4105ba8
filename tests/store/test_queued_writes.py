"""A write that is decided on a record of another key waits until it is known whether a queued change of that is stored."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from dralloc.server.store.errors import FenceMoved, StoreFull
from dralloc.server.store.records import Record
from dralloc.server.store.sqlite import SqliteStore
from dralloc.testing.virtual_time import run_virtual
from tests.simulator.simulated_disk import DATABASE, SimulatedDisk

# More than the log has room for.
LARGE = bytes(2_000_000)


async def queue_update(store: SqliteStore, record: Record, value: bytes) -> asyncio.Task[Record]:
    """Returns when the write is queued."""
    task = asyncio.create_task(store.update(record.key, value, expected_revision=record.revision))
    await asyncio.sleep(0)
    assert not task.done()
    return task


def test_a_key_is_created_when_it_is_known_whether_what_it_was_decided_on_changes() -> None:
    async def scenario() -> None:
        disk = SimulatedDisk(Random(1))
        async with await SqliteStore.open(DATABASE, disk=disk) as store:
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
        disk.close()

    run_virtual(scenario())
