"""A cluster that one task of an event loop starts, holds and stops, so that blocking callers can use it in between."""

from __future__ import annotations

import asyncio
from typing import Final

from dralloc.assembly.cluster import ClusterSettings, InProcessCluster, cluster_in_process
from dralloc.store.errors import Compacted, WatcherTooSlow
from dralloc.store.memory import MemoryStore

EVERYTHING: Final = "/"


class ClusterTask:
    """Call `start` and `stop` on the same loop."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self._store = MemoryStore()
        self._until_stopped = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> InProcessCluster:
        up: asyncio.Future[InProcessCluster] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(up))
        await asyncio.wait((self._task, up), return_when=asyncio.FIRST_COMPLETED)
        if not up.done():
            await self._task
        return up.result()

    async def stop(self) -> None:
        """Stop the cluster; raises ComponentDied if a component had died."""
        assert self._task is not None, "start() was called"
        self._until_stopped.set()
        await self._task

    async def _run(self, up: asyncio.Future[InProcessCluster]) -> None:
        async with self._store, cluster_in_process(self.settings, store=self._store) as cluster:
            up.set_result(cluster)
            await self._until_stopped.wait()

    async def revision(self) -> int:
        return await self._store.current_revision()

    async def has_changed_since(self, revision: int, timeout_s: float) -> bool:
        """True if any object changed after the revision, or changes before the timeout."""
        try:
            with await self._store.watch(EVERYTHING, after_revision=revision) as watch:
                return bool(await watch.next(limit=1, timeout_s=timeout_s))
        except (Compacted, WatcherTooSlow):
            return True
