"""Measures how many pods a scheduler binds per second, from the first create to the last bind, on any Kubernetes API.

Pods and their claims are created as fast as the server accepts them, and a watch counts the bound ones.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from dralloc.api.pod_v1 import Pod
from dralloc.assembly.benchmark_workloads import BenchmarkWorkload, Document
from dralloc.client.api_calls import ApiCalls
from dralloc.client.informer import Informer
from dralloc.client.known_resources import resource_for, resource_of
from dralloc.client.reflector import Reflector
from dralloc.client.typed_resource import ObjectKey
from dralloc.primitives.errors import AlreadyExists, NotFound

CONCURRENT_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Throughput:
    """`pods` were bound within `seconds` after the first create."""

    pods: int
    seconds: float
    creating_s: float

    @property
    def pods_per_s(self) -> float:
        return self.pods / self.seconds


class TooSlow(Exception):
    """Not all pods were bound in time; the message says how many were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    nodes: int = 500
    pods: int = 4000
    scheduler_name: str = "dralloc"
    timeout_s: float = 600.0


async def measure(calls: ApiCalls, workload: BenchmarkWorkload, scale: Scale) -> Throughput:
    """Create nodes, devices and pods, and wait until every pod is bound."""
    await create_all(calls, workload.cluster(scale.nodes))
    bound = _Bound(scale.pods)
    informer: Informer[Pod] = Informer()
    informer.subscribe(bound.changed)
    watching = asyncio.ensure_future(Reflector(calls, resource_for(Pod), informer).run())
    try:
        await informer.synced.wait()
        started = time.perf_counter()
        await create_all(calls, _pod_documents(workload, scale))
        created = time.perf_counter()
        async with asyncio.timeout(scale.timeout_s):
            await bound.all.wait()
        return Throughput(scale.pods, time.perf_counter() - started, created - started)
    except TimeoutError:
        raise TooSlow(f"{bound.count} of {scale.pods} pods were bound within {scale.timeout_s:.0f} s") from None
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def clean_up(calls: ApiCalls, workload: BenchmarkWorkload, scale: Scale) -> None:
    """Delete everything that `measure` created."""
    documents = list(_pod_documents(workload, scale))
    # Claims after their pods; claims from templates are deleted with them.
    await _delete_all(calls, (item for item in documents if item["kind"] == "Pod"))
    await _delete_all(calls, (item for item in documents if item["kind"] != "Pod"))
    await _delete_all(calls, workload.cluster(scale.nodes))


def _pod_documents(workload: BenchmarkWorkload, scale: Scale) -> Iterator[Document]:
    for number in range(scale.pods):
        yield from workload.pod(number, scale.scheduler_name)


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


async def create_all(calls: ApiCalls, documents: Iterable[Document]) -> None:
    async def create(document: Document) -> None:
        with suppress(AlreadyExists):
            await calls.create(resource_of(document), document)

    await _for_all(documents, create)


async def _delete_all(calls: ApiCalls, documents: Iterable[Document]) -> None:
    async def delete(document: Document) -> None:
        metadata = document["metadata"]
        key = ObjectKey(metadata.get("namespace", ""), metadata["name"])
        with suppress(NotFound):
            await calls.delete(resource_of(document), key, grace_period_s=0)

    await _for_all(documents, delete)


async def _for_all(documents: Iterable[Document], act: Callable[[Document], Awaitable[None]]) -> None:
    """Process several documents at a time, started in order."""
    waiting = iter(documents)

    async def work() -> None:
        for document in waiting:
            await act(document)

    workers = [asyncio.ensure_future(work()) for _ in range(CONCURRENT_MAX)]
    try:
        # Raises the first error only: if one request is refused, the others are, too.
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
