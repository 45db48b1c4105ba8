"""How many pods a second get a node: from the first create to the last bind, against any Kubernetes API.

The load is made here: pods and their claims are created as fast as the server takes them, and a watch sees them bound.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dralloc.api.core_v1 import Pod
from dralloc.assembly.workloads import NAMESPACE, Document, Workload
from dralloc.client.calls import Calls
from dralloc.client.informer import Informer
from dralloc.client.reflector import Reflector
from dralloc.client.resources import resource_for, resource_of
from dralloc.primitives.errors import AlreadyExists

CREATORS: Final = 16


@dataclass(frozen=True, slots=True)
class Throughput:
    """`pods` got a node within `seconds`, counted from the first create."""

    pods: int
    seconds: float
    creating_s: float

    @property
    def pods_per_s(self) -> float:
        return self.pods / self.seconds


class TooSlow(Exception):
    """Not all pods got a node in time; says how many did."""


async def set_up(calls: Calls, workload: Workload, nodes: int) -> None:
    """Create everything but the pods; what is there already stays."""
    await _create_all(calls, workload.cluster(nodes))


async def measure(
    calls: Calls, workload: Workload, *, pods: int, scheduler_name: str = "dralloc", timeout_s: float = 600.0
) -> Throughput:
    """Create the pods, and wait until every one has a node."""
    bound = _Bound(pods)
    informer: Informer[Pod] = Informer()
    informer.subscribe(bound.changed)
    watching = asyncio.ensure_future(Reflector(calls, resource_for(Pod), informer).run())
    try:
        await informer.synced.wait()
        started = time.perf_counter()
        await _create_all(calls, (item for number in range(pods) for item in workload.pod(number, scheduler_name)))
        created = time.perf_counter()
        async with asyncio.timeout(timeout_s):
            await bound.all.wait()
        return Throughput(pods, time.perf_counter() - started, created - started)
    except TimeoutError:
        raise TooSlow(f"{bound.count} of {pods} pods got a node within {timeout_s:.0f} s") from None
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


class _Bound:
    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self.count = 0
        self.all = asyncio.Event()

    def changed(self, before: Pod | None, after: Pod | None) -> None:
        is_bound = after is not None and bool(after.spec.node_name)
        was_bound = before is not None and bool(before.spec.node_name)
        self.count += is_bound - was_bound
        if self.count >= self._wanted:
            self.all.set()


async def _create_all(calls: Calls, documents: Iterable[Document]) -> None:
    """Several at a time, in order: an object is begun only after those before it were begun."""
    waiting = iter(documents)

    async def create() -> None:
        for document in waiting:
            resource = resource_of(document)
            try:
                await calls.create(resource, document, namespace=NAMESPACE if resource.namespaced else "")
            except AlreadyExists:
                continue

    async with asyncio.TaskGroup() as tasks:
        for _ in range(CREATORS):
            tasks.create_task(create())
