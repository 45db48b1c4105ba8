"""Bounds how many pods are written at the same time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class WriteSlots:
    """`when_free` is called when a slot becomes free for a new pod."""

    def __init__(self, slots_max: int, when_free: Callable[[], None]) -> None:
        self._free = slots_max
        self._when_free = when_free
        # Pods reclaiming a lent slot are served before new pods.
        self._reclaiming: deque[asyncio.Event] = deque()

    def __bool__(self) -> bool:
        return self._free > 0

    def take(self) -> None:
        self._free -= 1

    def give_back(self) -> None:
        if self._reclaiming:
            self._reclaiming.popleft().set()
            return
        self._free += 1
        self._when_free()

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        """Lends the caller's slot to other pods during a wait that may take minutes."""
        self.give_back()
        try:
            yield
        except Exception:
            await self._reclaim()
            raise
        # Not in `finally`: a cancelled caller must not wait for a slot.
        await self._reclaim()

    async def _reclaim(self) -> None:
        if self._free:
            self.take()
            return
        granted = asyncio.Event()
        self._reclaiming.append(granted)
        await granted.wait()
