"""A cluster with controllers on a store that a backup replaces while they run, in virtual time. They are started again then."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from msgspec.structs import replace

from dralloc.client.in_process_transport import InProcessTransport
from dralloc.controllers.controller_set import WITHOUT_NODES
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.new_history import HISTORY_GAP
from dralloc.server.http.application import ApiApplication
from dralloc.server.store.interface import HistoryLimits, Store
from dralloc.server.store.local_store import LocalStore
from dralloc.server.store.memory import MemoryStore
from dralloc.server.store.records import Record
from dralloc.server.store.revisioned_map import RevisionedMap
from dralloc.testing.components import Components
from tests.support.api_server import TOKEN, api_application
from tests.support.controlled_cluster import ControlledCluster
from tests.support.relay_transport import RelayTransport


class RestoredStore(MemoryStore):
    """Goes on with the records of a backup, all of them above the revisions that were given out before."""

    def __init__(self, backup: Sequence[Record], revision: int) -> None:
        records = [replace(record, revision=number) for number, record in enumerate(backup, revision)]
        newest = revision + len(records)
        LocalStore.__init__(self, RevisionedMap(limits=HistoryLimits(), records=records, compacted=newest))


class RestorableServer(RelayTransport):
    """A transport to an API server; a restore replaces the server and its store."""

    def __init__(self, running: AsyncExitStack, application: ApiApplication, store: Store, gates: FeatureGates) -> None:
        super().__init__(InProcessTransport(application, token=TOKEN))
        self._running = running
        self._store = store
        self._gates = gates

    async def back_up(self) -> Sequence[Record]:
        return (await self._store.list_prefix("/")).records

    async def expire_watches(self) -> None:
        """Others write so much while no client is connected that all watches expire."""
        await self.restore(await self.back_up(), gap=200_000)

    async def restore(self, backup: Sequence[Record], *, gap: int = HISTORY_GAP) -> None:
        revision = await self._store.current_revision()
        await self._store.close()
        await self._running.aclose()
        self._store = RestoredStore(backup, revision + gap)
        application = await self._running.enter_async_context(api_application(store=self._store, gates=self._gates))
        self._inner = InProcessTransport(application, token=TOKEN)


@asynccontextmanager
async def restorable_cluster(
    *, only: Sequence[str] = WITHOUT_NODES, gates: FeatureGates | None = None
) -> AsyncIterator[tuple[ControlledCluster, RestorableServer]]:
    """A cluster with controllers that run inside the block, and its server."""
    gates, store = gates or FeatureGates.defaults(), MemoryStore()
    async with AsyncExitStack() as running:
        application = await running.enter_async_context(api_application(store=store, gates=gates))
        server = RestorableServer(running, application, store, gates)
        cluster = ControlledCluster(server, only=only, gates=gates)
        cluster.components = Components(starts_again=True)
        async with cluster.components:
            cluster.start()
            yield cluster, server
