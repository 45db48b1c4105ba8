"""A cluster from its start to its end, on a loop that others run: one task holds it, and ends it when told to."""

from __future__ import annotations

import asyncio
from typing import Final

from dralloc.assembly.cluster import ClusterSettings, InProcessCluster, cluster_in_process
from dralloc.store.errors import Compacted, WatcherTooSlow
from dralloc.store.memory import MemoryStore

EVERYTHING: Final = "/"


class ClusterTask:
    """`start` it, use it, `stop` it; all of that on the same loop."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self._store = MemoryStore()
        self._until_stopped = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> InProcessCluster:
        up: asyncio.Future[InProcessCluster] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(up))
        await asyncio.wait((self._task, up), return_when=asyncio.FIRST_COMPLETED)
        if not up.done():
            await self._task
        return up.result()

    async def stop(self) -> None:
        """Raises what a component died of, if one did."""
        assert self._task is not None, "it was started"
        self._until_stopped.set()
        await self._task

    async def _live(self, up: asyncio.Future[InProcessCluster]) -> None:
        async with self._store, cluster_in_process(self.settings, store=self._store) as cluster:
            up.set_result(cluster)
            await self._until_stopped.wait()

    async def revision(self) -> int:
        return await self._store.current_revision()

    async def has_changed_since(self, revision: int, timeout_s: float) -> bool:
        """Whether any object changes, or has changed, after the revision and before the time is up."""
        try:
            with await self._store.watch(EVERYTHING, after_revision=revision) as watch:
                return bool(await watch.next(limit=1, timeout_s=timeout_s))
        except (Compacted, WatcherTooSlow):
            return True
