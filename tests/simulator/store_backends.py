"""What API servers of a simulation store their objects in: memory, SQLite on a simulated disk, or a simulated etcd.

The real code of the store runs in the process of its server. What survives that process is here, with the faults that can happen to
it and the operators' back-ups.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Final, cast

import grpc.aio

from dralloc.server.store.etcd import EtcdStore
from dralloc.server.store.etcd_api import EtcdAddress, EtcdApi
from dralloc.server.store.interface import HistoryLimits, Store
from dralloc.server.store.memory import MemoryStore
from dralloc.server.store.records import StoreEvent
from dralloc.testing.virtual_time import VirtualClock
from tests.simulator.etcd_channel import EtcdChannel, EtcdHost
from tests.simulator.history import StoreHistory
from tests.simulator.network import Network
from tests.simulator.recorded_store import RecordedStore
from tests.simulator.simulated_etcd import EtcdSnapshot, SimulatedEtcd

# So short that a watch that was interrupted finds its revision compacted.
SHORT_HISTORY: Final = HistoryLimits(events_max=50)
# Some operators raise etcd's own revision.
BUMP: Final = 1_000
ETCD: Final = EtcdAddress(endpoints=("simulated:2379",))


class StoreBackend(ABC):
    """The storage behind the servers of one cluster."""

    # How many servers can use it at the same time.
    servers_max = 1
    # Servers can go on while it is restored.
    restores_under_servers = False

    @abstractmethod
    async def open(self, server: str) -> Store:
        """The store of a server that starts; runs in its process. Raises StoreError."""

    async def release(self, store: Store) -> None:
        """A server was stopped in good order."""
        await store.close()

    @property
    def needs_restart(self) -> bool:
        """True if servers cannot go on until they are started again."""
        return False

    @property
    def is_disturbed(self) -> bool:
        """True if servers may wait for it at the moment."""
        return self.needs_restart

    def on_killed(self) -> None:  # noqa: B027
        """The server's process was killed."""

    def faults(self) -> Sequence[tuple[str, Callable[[], str]]]:
        """What can happen to the storage itself, each with the line to log."""
        return ()

    async def back_up(self) -> bool:
        """Take a back-up; False if that is not possible."""
        return False

    @property
    def has_back_up(self) -> bool:
        return False

    def restore(self) -> None:
        """Replace everything by the last back-up. Servers run meanwhile only if `restores_under_servers`."""
        raise AssertionError("there is no back-up")

    def files(self) -> Iterable[bytes]:
        """What it has on its disk, down to the bytes: differences there may show in the changes much later."""
        return ()

    def heal(self) -> None:  # noqa: B027
        """End all faults."""

    async def close(self) -> None:  # noqa: B027
        """The end of the simulation."""


class MemoryBackend(StoreBackend):
    """A store that outlives its servers."""

    def __init__(self, history: StoreHistory) -> None:
        self._store = _ObservedMemoryStore(history)
        self._history = history
        history.revision = 1

    async def open(self, server: str) -> Store:
        return RecordedStore(self._store, self._history)

    async def release(self, store: Store) -> None:
        """It stays open for the next server."""

    async def close(self) -> None:
        await self._store.close()


class _ObservedMemoryStore(MemoryStore):
    def __init__(self, history: StoreHistory) -> None:
        super().__init__(limits=SHORT_HISTORY)
        self._history = history

    def _install(self, events: Sequence[StoreEvent]) -> None:
        record(self._history, events)
        super()._install(events)


def record(history: StoreHistory, events: Sequence[StoreEvent]) -> None:
    """Add committed events to the history."""
    for event in events:
        history.append(event.revision, event.key, event.record.value if event.record else None)


class EtcdBackend(StoreBackend):
    """One etcd for several servers, each with a link of its own."""

    servers_max = 2
    restores_under_servers = True

    def __init__(self, history: StoreHistory, network: Network, random: Random) -> None:
        self._history = history
        self._network = network
        self._random = random
        self._host = EtcdHost(SimulatedEtcd(history))
        self._background = asyncio.ensure_future(self._host.etcd.notify_progress())
        self._snapshot: EtcdSnapshot | None = None

    async def open(self, server: str) -> Store:
        channel = EtcdChannel(self._network, server, self._host)
        api = EtcdApi(ETCD, cast("grpc.aio.Channel", channel))
        clock = VirtualClock(asyncio.get_running_loop())
        return RecordedStore(await EtcdStore.open_with(api, limits=SHORT_HISTORY, clock=clock), self._history)

    def faults(self) -> Sequence[tuple[str, Callable[[], str]]]:
        return (("compact", self._compact), ("break", self._break_streams), ("cut", self._cut), ("pause", self._pause))

    async def back_up(self) -> bool:
        self._snapshot = self._host.etcd.snapshot()
        return True

    @property
    def has_back_up(self) -> bool:
        return self._snapshot is not None

    def restore(self) -> None:
        assert self._snapshot is not None, "a back-up was taken"
        self._host.etcd.restore(self._snapshot, bump=self._random.choice((0, BUMP)))

    @property
    def is_disturbed(self) -> bool:
        host = self._host.process
        links = (f"server-{number}" for number in range(self.servers_max))
        return host.paused or any(self._network.is_cut(server, host.name) for server in links)

    async def close(self) -> None:
        self._background.cancel()
        await asyncio.gather(self._background, return_exceptions=True)
        await self._host.process.kill()

    def heal(self) -> None:
        self._host.process.resume()

    def _compact(self) -> str:
        etcd = self._host.etcd
        etcd.compact_to(max(1, etcd.revision - self._random.randrange(20)))
        return "another user compacted etcd"

    def _break_streams(self) -> str:
        self._host.etcd.break_streams()
        return "the streams of etcd broke"

    def _cut(self) -> str:
        server, seconds = f"server-{self._random.randrange(2)}", self._random.uniform(1, 30)
        self._network.cut(server, self._host.process.name, seconds)
        return f"cut {server} from etcd for {seconds:.0f} s"

    def _pause(self) -> str:
        seconds = self._random.uniform(1, 10)
        self._host.process.pause()
        asyncio.get_running_loop().call_later(seconds, self._host.process.resume)
        return f"paused etcd for {seconds:.0f} s"
