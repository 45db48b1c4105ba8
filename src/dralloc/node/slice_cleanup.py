"""Slices of drivers that are gone are removed, so that nobody is sent to devices that nothing serves.

A driver that stays away for half a minute has lost its slices of this node; a restart is quicker than that. Slices that belong
to no node are not ours to judge.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable

from dralloc.api.resource_v1 import ResourceSlice
from dralloc.client.api_calls import ApiCalls
from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import key_of
from dralloc.node.retry import until_done
from dralloc.node.timings import Timings
from dralloc.primitives.errors import Conflict, NotFound

_logger = logging.getLogger(__name__)


class SliceCleanup:
    """Removes the slices of one node: all of them when it starts, and those of drivers that stay away."""

    def __init__(self, calls: ApiCalls, node: str, timings: Timings) -> None:
        self._calls = calls
        self._node = node
        self._timings = timings
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def wipe_all(self) -> None:
        """Nothing is registered yet: what is published for this node is from an earlier life."""
        self._spawn(self._wipe(""))

    def connection_changed(self, driver: str, connected: bool) -> None:
        """The time of a driver that is away runs from the first moment on, whatever happens before it is back."""
        timer = self._timers.get(driver)
        if connected and timer is not None:
            timer.cancel()
            del self._timers[driver]
        elif not connected and timer is None:
            loop = asyncio.get_running_loop()
            self._timers[driver] = loop.call_later(self._timings.wipe_after_s, self._time_is_up, driver)

    async def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _time_is_up(self, driver: str) -> None:
        del self._timers[driver]
        _logger.warning("driver %s stays away: its slices of node %s are removed", driver, self._node)
        self._spawn(self._wipe(driver))

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wipe(self, driver: str) -> None:
        what = f"slices of node {self._node} are not removed yet"
        await until_done(what, lambda: self._wipe_once(driver), self._timings.wipe_again, despite_refusals=True)

    async def _wipe_once(self, driver: str) -> None:
        selector = f"spec.nodeName={self._node}" + (f",spec.driver={driver}" if driver else "")
        slices, _ = await self._calls.list_all(resource_for(ResourceSlice), field_selector=selector)
        for item in slices:
            meta = item.metadata
            try:
                # Only what was seen: a driver that is back may have written it anew meanwhile.
                await self._calls.delete(
                    resource_for(ResourceSlice), key_of(item), uid=meta.uid, resource_version=meta.resource_version
                )
            except (NotFound, Conflict):
                continue
