"""The SQLite store on the simulated disk: what was acknowledged survives, and the disk really loses what was not synced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random

import pytest

from dralloc.server.store import sqlite_file
from dralloc.server.store.errors import LostWrites, StoreError, StoreFull, StoreUnavailable
from dralloc.server.store.sqlite import SqliteStore
from dralloc.testing.virtual_time import run_virtual
from tests.simulator.simulated_disk import DATABASE, LOG, SimulatedDisk

SEEDS = range(20)


@pytest.fixture
def disks() -> Iterator[Callable[[int], SimulatedDisk]]:
    made: list[SimulatedDisk] = []

    def make(seed: int) -> SimulatedDisk:
        made.append(SimulatedDisk(Random(seed)))
        return made[-1]

    yield make
    for disk in made:
        disk.close()


async def crash(store: SqliteStore, disk: SimulatedDisk, *, power_loss: bool) -> None:
    disk.crash(power_loss=power_loss)
    await store.close()


async def write_some(store: SqliteStore, count: int, prefix: str = "/a/") -> None:
    for number in range(count):
        await store.create(f"{prefix}{number}", bytes(300))


async def keys_after_restart(disk: SimulatedDisk) -> int:
    async with await SqliteStore.open(DATABASE, disk=disk) as store:
        return len((await store.list_prefix("/")).records)


def test_acknowledged_writes_survive_a_power_loss_at_any_moment(disks: Callable[[int], SimulatedDisk]) -> None:
    async def run(disk: SimulatedDisk, writes: int) -> int:
        store = await SqliteStore.open(DATABASE, disk=disk)
        await write_some(store, writes)
        await crash(store, disk, power_loss=True)
        return await keys_after_restart(disk)

    for seed in SEEDS:
        assert run_virtual(run(disks(seed), seed)) == seed


def test_without_syncs_a_power_loss_is_noticed(disks: Callable[[int], SimulatedDisk]) -> None:
    async def run(disk: SimulatedDisk) -> int | str:
        store = await SqliteStore.open(DATABASE, disk=disk, synchronous="OFF")
        await write_some(store, 50)
        await crash(store, disk, power_loss=True)
        try:
            return await keys_after_restart(disk)
        except StoreError as error:
            return type(error).__name__

    outcomes = {run_virtual(run(disks(seed))) for seed in SEEDS}
    assert "LostWrites" in outcomes


def test_writes_behind_one_that_was_not_synced_survive(disks: Callable[[int], SimulatedDisk]) -> None:
    async def run(disk: SimulatedDisk) -> int:
        store = await SqliteStore.open(DATABASE, disk=disk)
        await write_some(store, 5)
        disk.fails_to_sync = True
        with pytest.raises(StoreError):
            await write_some(store, 1, "/unsynced/")
        await crash(store, disk, power_loss=False)
        store = await SqliteStore.open(DATABASE, disk=disk)
        await write_some(store, 5, "/b/")
        await crash(store, disk, power_loss=True)
        return await keys_after_restart(disk)

    for seed in SEEDS:
        # The write that was not acknowledged may have happened.
        assert run_virtual(run(disks(seed))) in (10, 11)


@pytest.mark.parametrize("ending", ["killed", "closed", "killed, disk full"])
def test_what_a_server_served_after_a_failed_sync_survives(disks: Callable[[int], SimulatedDisk], ending: str) -> None:
    async def run(disk: SimulatedDisk) -> tuple[int, int]:
        store = await SqliteStore.open(DATABASE, disk=disk)
        await write_some(store, 5)
        disk.fails_to_sync = True
        with pytest.raises(StoreError):
            await write_some(store, 1, "/unsynced/")
        if ending == "closed":
            await store.close()
            disk.fails_to_sync = False
        else:
            await crash(store, disk, power_loss=False)
        disk.is_full = "full" in ending
        store = await SqliteStore.open(DATABASE, disk=disk)
        served = len((await store.list_prefix("/")).records)
        disk.is_full, disk.fails_to_sync = False, True
        with pytest.raises(StoreError):
            await write_some(store, 1, "/also-unsynced/")
        await crash(store, disk, power_loss=True)
        return served, await keys_after_restart(disk)

    for seed in SEEDS:
        served, kept = run_virtual(run(disks(seed)))
        assert kept >= served


def test_a_server_that_cannot_sync_its_log_at_the_start_serves_nothing(disks: Callable[[int], SimulatedDisk]) -> None:
    async def run(disk: SimulatedDisk) -> None:
        store = await SqliteStore.open(DATABASE, disk=disk)
        await write_some(store, 5)
        await crash(store, disk, power_loss=False)
        disk.fails_to_sync = True
        with pytest.raises(StoreUnavailable):
            await SqliteStore.open(DATABASE, disk=disk)

    run_virtual(run(disks(0)))


def test_a_full_disk_refuses_writes_until_it_has_room(disks: Callable[[int], SimulatedDisk]) -> None:
    async def run(disk: SimulatedDisk) -> int:
        async with await SqliteStore.open(DATABASE, disk=disk) as store:
            await write_some(store, 5)
            disk.is_full = True
            with pytest.raises(StoreFull):
                await write_some(store, 50, "/b/")
            disk.is_full = False
            await write_some(store, 5, "/c/")
        return await keys_after_restart(disk)

    assert run_virtual(run(disks(0))) >= 10


def test_a_commit_succeeds_if_there_is_no_room_for_the_checkpoint_after_it(
    disks: Callable[[int], SimulatedDisk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`store/test_sqlite_faults.py` has the same on a real disk."""
    monkeypatch.setattr(sqlite_file, "WAL_PAGES_MAX", 30)

    async def run(disk: SimulatedDisk) -> int:
        store = await SqliteStore.open(DATABASE, disk=disk)
        disk.extend(LOG, 1 << 20)
        disk.is_full = True
        await write_some(store, 60)
        disk.is_full = False
        await write_some(store, 10, "/b/")
        await crash(store, disk, power_loss=True)
        return await keys_after_restart(disk)

    assert run_virtual(run(disks(0))) == 70


def test_a_damaged_log_is_refused_or_was_not_needed(disks: Callable[[int], SimulatedDisk]) -> None:
    async def run(disk: SimulatedDisk) -> bool:
        store = await SqliteStore.open(DATABASE, disk=disk)
        await write_some(store, 20)
        await crash(store, disk, power_loss=False)
        assert disk.damage_log()
        try:
            assert await keys_after_restart(disk) == 20
        except LostWrites:
            return True
        return False

    refused = [run_virtual(run(disks(seed))) for seed in SEEDS]
    assert any(refused)


def test_a_log_that_was_extended_loses_nothing(
    disks: Callable[[int], SimulatedDisk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is extended while nothing is written, and then commits do not make it longer."""
    monkeypatch.setattr(sqlite_file, "BYTES_MIN", 16 * 1024)
    monkeypatch.setattr(sqlite_file, "STEP_BYTES", 256 * 1024)

    async def run(disk: SimulatedDisk, *, power_loss: bool) -> int:
        store = await SqliteStore.open(DATABASE, disk=disk)
        await write_some(store, 5)
        grown = disk.size(LOG)
        await asyncio.sleep(1)
        extended = disk.size(LOG)
        await write_some(store, 10, "/b/")
        assert 16 * 1024 < grown < extended == disk.size(LOG)
        await crash(store, disk, power_loss=power_loss)
        return await keys_after_restart(disk)

    for seed in SEEDS:
        assert run_virtual(run(disks(seed), power_loss=seed % 2 == 0)) == 15


def test_a_log_without_room_on_a_full_disk_loses_nothing(disks: Callable[[int], SimulatedDisk]) -> None:
    async def run(disk: SimulatedDisk) -> int:
        store = await SqliteStore.open(DATABASE, disk=disk)
        await write_some(store, 5)
        disk.is_full = True
        store._file.make_log_room()
        disk.is_full = False
        await write_some(store, 10, "/b/")
        await crash(store, disk, power_loss=True)
        return await keys_after_restart(disk)

    for seed in SEEDS:
        assert run_virtual(run(disks(seed))) == 15


def test_nothing_is_acknowledged_after_a_sync_of_more_room_has_failed(disks: Callable[[int], SimulatedDisk]) -> None:
    """SQLite writes a part of its last page after its own sync, and later pages count on it."""

    async def run(disk: SimulatedDisk) -> int:
        store = await SqliteStore.open(DATABASE, disk=disk)
        await write_some(store, 5)
        disk.fails_to_sync = True
        store._file.make_log_room()
        disk.fails_to_sync = False
        with pytest.raises(StoreUnavailable):
            await write_some(store, 1, "/b/")
        await crash(store, disk, power_loss=True)
        return await keys_after_restart(disk)

    for seed in SEEDS:
        assert run_virtual(run(disks(seed))) == 5


class DyingDisk(SimulatedDisk):
    """Loses its power at the n-th access."""

    left = 0

    def check(self, opened_at: int) -> None:
        self.left -= 1
        if self.left == 0:
            self.crash(power_loss=True)
        super().check(opened_at)


def test_what_was_acknowledged_survives_a_power_loss_between_any_two_accesses_of_many_checkpoints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sqlite_file, "WAL_PAGES_MAX", 8)

    async def run(disk: DyingDisk, seed: int) -> tuple[int, int]:
        disk.left, written = 0, 0
        store = await SqliteStore.open(DATABASE, disk=disk)
        await write_some(store, 20)
        disk.left = 1 + Random(seed).randrange(700)
        with suppress(StoreError):
            for written in range(60):
                await store.create(f"/b/{written}", bytes(300))
        disk.left = 0
        await crash(store, disk, power_loss=True)
        return 20 + written, await keys_after_restart(disk)

    died = 0
    for seed in range(150):
        disk = DyingDisk(Random(seed))
        written, kept = run_virtual(run(disk, seed))
        disk.close()
        died += written < 79
        # A write that was not acknowledged may have happened.
        assert kept in (written, written + 1)
    assert died > 100
