"""Measures how many pods a scheduler binds per second, from the first create to the last bind, on any Kubernetes API.

Pods and their claims are created as fast as the server accepts them, and a watch counts the bound ones. The load takes as little processor
time as it can, because it shares the machine with what is measured: requests are printed before the clock starts, and of answers and pods
only that is read which is counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from msgspec import field

from dralloc.client.api_calls import JSON, ApiCalls
from dralloc.client.informer import Informer
from dralloc.client.known_resources import resource_for, resource_of
from dralloc.client.reflector import Reflector
from dralloc.client.status_errors import send_request
from dralloc.client.transport import Transport
from dralloc.client.typed_resource import ObjectKey
from dralloc.kube.codec import encode
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.wire import Wire
from dralloc.primitives.errors import AlreadyExists, NotFound
from dralloc.testing.benchmark_workloads import BenchmarkWorkload, Document

CONCURRENT_MAX: Final = 64

Item = TypeVar("Item")


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


class _Place(Wire):
    node_name: str = ""


class _PlacedPod(ApiObject):
    """What is counted of a pod."""

    spec: _Place = field(default_factory=_Place)


_PODS: Final = replace(resource_for(Pod), type=_PlacedPod)


async def measure(transport: Transport, workload: BenchmarkWorkload, scale: Scale) -> Throughput:
    """Create nodes, devices and pods, and wait until every pod is bound."""
    # Without a field manager, like most programs.
    calls = ApiCalls(transport, field_manager="")
    await create_all(calls, workload.cluster(scale.nodes))
    bound = _Bound(scale.pods)
    informer: Informer[_PlacedPod] = Informer()
    informer.subscribe(bound.changed)
    watching = asyncio.ensure_future(Reflector(calls, _PODS, informer).run())
    printed = [(_path(document), encode(document)) for document in _pod_documents(workload, scale)]
    try:
        await informer.synced.wait()
        started = time.perf_counter()
        await _post_all(transport, printed)
        created = time.perf_counter()
        async with asyncio.timeout(scale.timeout_s):
            await bound.all.wait()
        return Throughput(scale.pods, time.perf_counter() - started, created - started)
    except TimeoutError:
        raise TooSlow(f"{bound.count} of {scale.pods} pods were bound within {scale.timeout_s:.0f} s") from None
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def clean_up(transport: Transport, workload: BenchmarkWorkload, scale: Scale) -> None:
    """Delete everything that `measure` created."""
    calls = ApiCalls(transport, field_manager="")
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

    def changed(self, before: _PlacedPod | None, after: _PlacedPod | None) -> None:
        is_bound = after is not None and bool(after.spec.node_name)
        was_bound = before is not None and bool(before.spec.node_name)
        self.count += is_bound - was_bound
        if self.count >= self._wanted:
            self.all.set()


def _path(document: Document) -> str:
    return resource_of(document).path(namespace=document["metadata"].get("namespace"))


async def _post_all(transport: Transport, printed: Iterable[tuple[str, bytes]]) -> None:
    async def post(request: tuple[str, bytes]) -> None:
        path, body = request
        with suppress(AlreadyExists):
            await send_request(transport, "POST", path, body=body, headers=JSON)

    await _for_all(printed, post)


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


async def _for_all(items: Iterable[Item], act: Callable[[Item], Awaitable[None]]) -> None:
    """Process several items at a time, started in order."""
    waiting = iter(items)

    async def work() -> None:
        for item in waiting:
            await act(item)

    workers = [asyncio.ensure_future(work()) for _ in range(CONCURRENT_MAX)]
    try:
        # Raises the first error only: if one request is refused, the others are, too.
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
