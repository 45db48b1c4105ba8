"""SQLite on a simulated disk, as the storage of one API server that is killed, loses its power and finds a damaged disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Final

from dralloc.server.store.backup import backup_pieces, read_backup, restore_sqlite
from dralloc.server.store.errors import CorruptStore
from dralloc.server.store.interface import Store
from dralloc.server.store.records import StoreEvent
from dralloc.server.store.sqlite import SqliteStore
from dralloc.testing.virtual_time import VirtualClock
from tests.simulator.history import StoredVersion, StoreHistory
from tests.simulator.recorded_store import RecordedStore
from tests.simulator.simulated_disk import DATABASE, LOG, SimulatedDisk
from tests.simulator.store_backends import SHORT_HISTORY, StoreBackend, record

DAMAGE_PROBABILITY: Final = 0.4
POWER_LOSS_PROBABILITY: Final = 0.5

# More were never under way when a server was killed.
WRITES_MAX: Final = 10_000


class SqliteBackend(StoreBackend):
    """The disk and its operator, who puts the files back if a server refuses damaged ones."""

    def __init__(self, history: StoreHistory, random: Random) -> None:
        self._history = history
        self._random = random
        self._disk = SimulatedDisk(Random(random.random()))
        self._back_up: dict[Path, bytes] | list[bytes] | None = None
        self._store: SqliteStore | None = None
        self._restored = False
        # The files before they were damaged.
        self._undamaged: dict[Path, bytes] | None = None
        history.revision = 1

    async def open(self, server: str) -> Store:
        try:
            store = await _ObservedSqliteStore.open(
                DATABASE,
                limits=SHORT_HISTORY,
                disk=self._disk,
                accept_lost_writes=self._restored,
                clock=VirtualClock(asyncio.get_running_loop()),
            )
        except CorruptStore as error:
            if self._undamaged is None:
                self._history.violations.append(f"the store refuses files that nothing damaged: {error}")
            else:
                self._disk.load(self._undamaged)
                self._undamaged = None
            raise
        self._undamaged = None
        await self._compare(store)
        store.history = self._history
        self._store = store
        return RecordedStore(store, self._history)

    @property
    def needs_restart(self) -> bool:
        return self._disk.fails_to_sync

    @property
    def is_disturbed(self) -> bool:
        return self._disk.fails_to_sync or self._disk.is_full

    def on_killed(self) -> None:
        self._store = None
        power_loss = self._random.random() < POWER_LOSS_PROBABILITY
        self._disk.crash(power_loss=power_loss)
        if not power_loss and self._random.random() < DAMAGE_PROBABILITY:
            image = self._disk.image()
            if self._disk.damage_log():
                self._undamaged = image

    def faults(self) -> Sequence[tuple[str, Callable[[], str]]]:
        return (("fill", self._fill), ("fsync", self._fail_to_sync))

    async def back_up(self) -> bool:
        """Copy the files, or use `dralloc backup` if the server runs."""
        if self._store is None or self._random.random() < 0.3:
            self._back_up = self._disk.image()
        else:
            self._back_up = [piece async for piece in backup_pieces(self._store)]
        return True

    @property
    def has_back_up(self) -> bool:
        return self._back_up is not None

    def restore(self) -> None:
        assert self._back_up is not None, "a back-up was taken"
        self._disk.is_full = False
        if isinstance(self._back_up, list):
            header, records = read_backup(b"".join(self._back_up).splitlines())
            clock = VirtualClock(asyncio.get_running_loop())
            restore_sqlite(DATABASE, header, records, clock=clock, disk=self._disk)
            self._undamaged, self._restored = None, True
            return
        # The mark is not part of copied files: it knows what the store had acknowledged.
        mark = {path: content for path, content in self._disk.image().items() if path not in (DATABASE, LOG)}
        self._disk.load({**self._back_up, **mark})
        self._undamaged, self._restored = None, True

    def files(self) -> Iterable[bytes]:
        return self._disk.image().values()

    def heal(self) -> None:
        self._disk.is_full = False

    async def close(self) -> None:
        self._disk.close()

    async def _compare(self, store: SqliteStore) -> None:
        """What a server finds when it starts is what was acknowledged, and perhaps writes that were under way."""
        history = self._history
        revision = await store.current_revision()
        is_restored, self._restored = self._restored, False
        # Copied files are those that the store had, unless something was written since.
        if is_restored and revision > history.revision + WRITES_MAX:
            records = (await store.list_prefix("/")).records
            history.restore({record.key: StoredVersion(record.revision, record.value) for record in records}, revision)
            return
        if revision < history.revision:
            history.violations.append(f"the store is back at revision {revision}; {history.revision} was acknowledged")
            return
        if revision > history.revision:
            with await store.watch("/", after_revision=history.revision) as watch:
                record(history, await watch.next(limit=revision, timeout_s=0))
        found = {
            record.key: StoredVersion(record.revision, record.value)
            for record in (await store.list_prefix("/")).records
        }
        if found != history.state:
            different = sorted({key for key, _ in found.items() ^ history.state.items()})
            history.violations.append(f"after a restart the store is wrong about {', '.join(different[:3])}")

    def _fill(self) -> str:
        seconds = self._random.uniform(1, 30)
        self._disk.is_full = True
        asyncio.get_running_loop().call_later(seconds, self._free)
        return f"filled the disk for {seconds:.0f} s"

    def _free(self) -> None:
        self._disk.is_full = False

    def _fail_to_sync(self) -> str:
        self._disk.fails_to_sync = True
        return "the disk fails to sync until the server is started again"


class _ObservedSqliteStore(SqliteStore):
    history: StoreHistory

    def _install(self, events: Sequence[StoreEvent]) -> None:
        record(self.history, events)
        super()._install(events)
