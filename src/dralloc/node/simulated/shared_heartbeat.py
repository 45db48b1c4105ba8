"""The heartbeat of many simulated nodes: one lease for all nodes of a process.

They live and die together, so one write shows that all of them are alive, where nodes of their own would need five hundred writes a second
for 5,000 nodes. An annotation of each node names the lease; the node lifecycle controller follows it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator
from typing import Final

from dralloc.client.api_calls import ApiCalls
from dralloc.client.informer import Informer
from dralloc.client.known_resources import resource_for
from dralloc.client.reflector import Reflector
from dralloc.client.transport import TransportError
from dralloc.client.work_queue import WorkQueue, work
from dralloc.kube.core_v1 import Node
from dralloc.node.heartbeat import NodeHeartbeat, is_contradicted, renew_lease
from dralloc.node.timings import Timings
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import ApiError

_logger = logging.getLogger(__name__)

# Concurrent requests to the API server.
CONCURRENT_REQUESTS: Final = 64


class SharedHeartbeat:
    """`heartbeat_of` returns the heartbeat of one node, which writes its status."""

    def __init__(
        self,
        calls: ApiCalls,
        lease: str,
        clock: Clock,
        timings: Timings,
        heartbeat_of: Callable[[str], NodeHeartbeat],
    ) -> None:
        self._calls = calls
        self.lease = lease
        self._clock = clock
        self._timings = timings
        self._heartbeat_of = heartbeat_of
        self._contradicted: WorkQueue[str] = WorkQueue(timings.connect_backoff)

    async def run(self) -> None:
        """Renew the lease until cancelled. Failures are logged; the next beat tries again."""
        while True:
            try:
                await renew_lease(self._calls, self.lease, self._clock.now(), self._timings)
            except (ApiError, TransportError) as error:
                _logger.warning("cannot renew lease %s of the simulated nodes: %s", self.lease, error)
            await asyncio.sleep(self._timings.heartbeat_s)

    async def watch_nodes(self, label_selector: str, names: Container[str], *, since: int) -> None:
        """Contradict a controller that marks one of these nodes as not ready: as long as this runs, all are.

        Raises HistoryChanged in a group, also if a backup was restored after the revision.
        """
        nodes: Informer[Node] = Informer()

        def changed(_: Node | None, after: Node | None) -> None:
            if after is not None and after.metadata.name in names:
                self.node_changed(after)

        nodes.subscribe(changed)
        async with asyncio.TaskGroup() as tasks:
            reflector = Reflector(self._calls, resource_for(Node), nodes, label_selector=label_selector, since=since)
            tasks.create_task(reflector.run())
            tasks.create_task(self.contradict())

    def node_changed(self, node: Node) -> None:
        if is_contradicted(node):
            self._contradicted.add(node.metadata.name)

    async def contradict(self) -> None:
        """Write the status of nodes that were marked, until cancelled."""
        workers = (work(self._contradicted, self._show_ready, _log_failure) for _ in range(CONCURRENT_REQUESTS))
        await asyncio.gather(*workers)

    async def _show_ready(self, name: str) -> None:
        await self._heartbeat_of(name).show_ready()


def _log_failure(name: str, error: Exception) -> None:
    _logger.warning("cannot write the status of node %s: %s", name, error)


async def run_concurrently(work: Iterable[Awaitable[None]]) -> None:
    """Do all the work with bounded concurrency; the first failure ends it."""
    waiting: Iterator[Awaitable[None]] = iter(work)

    async def worker() -> None:
        for each in waiting:
            await each

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(CONCURRENT_REQUESTS):
                tasks.create_task(worker())
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
