"""How far a watch has come, for writers that must see a certain revision before they continue."""

from __future__ import annotations

import asyncio
import heapq
from itertools import count


class WatchProgress:
    def __init__(self) -> None:
        self._revision = 0
        self._numbers = count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    def advance(self, resource_version: str) -> None:
        """Records that the watch has delivered this revision and therefore every earlier one."""
        if not resource_version.isdecimal() or int(resource_version) <= self._revision:
            return
        self._revision = int(resource_version)
        while self._waiting and self._waiting[0][0] <= self._revision:
            _, _, arrived = heapq.heappop(self._waiting)
            if not arrived.done():
                arrived.set_result(None)

    def has_reached(self, revision: int) -> bool:
        return revision <= self._revision

    async def reach(self, revision: int) -> None:
        """Returns when the watch has delivered the revision."""
        if self.has_reached(revision):
            return
        arrived = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (revision, next(self._numbers), arrived))
        await arrived
