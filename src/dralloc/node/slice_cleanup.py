"""Deletes the slices of disconnected drivers, so that no pods are scheduled to devices without a driver.

The slices of this node are deleted after the driver was disconnected for half a minute; a restart takes less. Slices that belong to
no node are kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable

from dralloc.api.resource_v1 import ResourceSlice
from dralloc.client.api_calls import ApiCalls
from dralloc.client.known_resources import resource_for
from dralloc.node.retry import retry_until_done
from dralloc.node.timings import Timings
from dralloc.primitives.errors import Conflict, NotFound

_logger = logging.getLogger(__name__)


class SliceCleanup:
    """Deletes the slices of one node: all of them when the agent starts, and those of drivers that stay disconnected."""

    def __init__(self, calls: ApiCalls, node: str, timings: Timings) -> None:
        self._calls = calls
        self._node = node
        self._timings = timings
        self._connected: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def delete_all(self) -> None:
        """Delete all slices of the node that are left from an earlier run: no driver is registered yet."""
        self._spawn(self._delete(""))

    def connection_changed(self, driver: str, connected: bool) -> None:
        """Start the timer of a driver that disconnects; only a connection stops it."""
        (self._connected.add if connected else self._connected.discard)(driver)
        timer = self._timers.get(driver)
        if connected and timer is not None:
            timer.cancel()
            del self._timers[driver]
        elif not connected and timer is None:
            loop = asyncio.get_running_loop()
            self._timers[driver] = loop.call_later(self._timings.slice_cleanup_delay_s, self._timed_out, driver)

    async def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _timed_out(self, driver: str) -> None:
        del self._timers[driver]
        _logger.warning("driver %s stays disconnected: deleting its slices of node %s", driver, self._node)
        self._spawn(self._delete(driver))

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _delete(self, driver: str) -> None:
        what = f"cannot delete the slices of node {self._node}"
        await retry_until_done(
            what, lambda: self._delete_once(driver), self._timings.slice_cleanup_backoff, despite_refusals=True
        )

    async def _delete_once(self, driver: str) -> None:
        selector = f"spec.nodeName={self._node}" + (f",spec.driver={driver}" if driver else "")
        slices, _ = await self._calls.list_all(resource_for(ResourceSlice), field_selector=selector)
        for item in slices:
            if item.spec.driver in self._connected:
                # It has connected since, and keeps its slices right itself.
                continue
            try:
                # Only the listed version: a driver that is back may have written the slice again.
                await self._calls.delete_unchanged(resource_for(ResourceSlice), item)
            except (NotFound, Conflict):
                continue
