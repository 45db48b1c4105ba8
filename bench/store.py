"""Speed of the stores for durable writes, lists and watches, and the cost of a hundred thousand objects."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from bench.measurement import Figure, benchmark
from dralloc.server.store.interface import Store, Watch
from dralloc.server.store.memory import MemoryStore
from dralloc.server.store.store_url import open_store
from tests.support.etcd_server import EtcdServer

VALUE = os.urandom(1500)
PREFIX = "/registry/resource.k8s.io/resourceclaims/"
OBJECTS = 100_000
PAGE = 500
WATCHES = 500
EVENTS = 5_000


@benchmark("store")
def measure_stores() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "store.db"
        yield from asyncio.run(measure_writes(str(path), in_flight=1, count=2_000, name="SQLite, one writer"))
        yield from asyncio.run(
            measure_writes(str(path), in_flight=64, count=OBJECTS - 2_000, name="SQLite", target=10_000)
        )
        yield from measure_size(path)
        with EtcdServer(Path(directory) / "etcd", arguments=["--unsafe-no-fsync=false"]) as server:
            yield from asyncio.run(measure_writes(f"etcd://{server.endpoint}", in_flight=64, count=10_000, name="etcd"))
    yield from asyncio.run(measure_fan_out())


async def measure_writes(
    url: str, *, in_flight: int, count: int, name: str, target: float | None = None
) -> list[Figure]:
    async with await open_store(url) as store:
        first = await store.current_revision()
        start = time.perf_counter()
        await write(store, first, count, in_flight)
        rate = count / (time.perf_counter() - start)
    return [Figure(f"{name}: durable creates, {in_flight} in flight", rate, "1/s", target, more_is_better=True)]


async def write(store: Store, first: int, count: int, in_flight: int) -> None:
    numbers = iter(range(first, first + count))

    async def create() -> None:
        for number in numbers:
            await store.create(f"{PREFIX}namespace-{number % 100}/claim-{number}", VALUE)

    await asyncio.gather(*(create() for _ in range(in_flight)))


def measure_size(path: Path) -> Iterator[Figure]:
    """Opens and lists a large store in a process of its own, so that its peak memory is that of the store."""
    program = [sys.executable, "-m", "bench.store", str(path)]
    answer = subprocess.run(program, capture_output=True, text=True, check=True).stdout.split()
    ready_s, list_s, memory_mb = map(float, answer)
    yield Figure(f"SQLite: ready with {OBJECTS:,} objects", ready_s, "s", 1.0)
    yield Figure(f"SQLite: {OBJECTS:,} objects in pages of {PAGE}", list_s * 1000, "ms")
    yield Figure(f"SQLite: peak memory with {OBJECTS:,} objects of 1.5 KB", memory_mb, "MB", 400)


async def open_and_list(path: str) -> None:
    start = time.perf_counter()
    async with await open_store(path) as store:
        ready_s = time.perf_counter() - start
        start = time.perf_counter()
        count = sum([size async for size in page_sizes(store)])
        list_s = time.perf_counter() - start
    assert count == OBJECTS, f"{count} objects"
    print(ready_s, list_s, peak_memory_mb())


async def page_sizes(store: Store) -> AsyncIterator[int]:
    page = await store.list_prefix(PREFIX, limit=PAGE)
    while True:
        yield len(page.records)
        if page.next is None:
            return
        page = await store.list_prefix(PREFIX, limit=PAGE, page=page.next)


def peak_memory_mb() -> float:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


async def measure_fan_out() -> list[Figure]:
    """Many watches of one prefix; each checks that it sees every event once and in order."""
    async with MemoryStore() as store:
        after = await store.current_revision()
        watches = [await store.watch(PREFIX, after_revision=after) for _ in range(WATCHES)]
        start = time.perf_counter()
        await asyncio.gather(write(store, 0, EVENTS, 64), *(see_all(watch, after) for watch in watches))
        rate = WATCHES * EVENTS / (time.perf_counter() - start)
    return [Figure(f"{EVENTS:,} events to {WATCHES} watches", rate, "deliveries/s", 100_000, more_is_better=True)]


async def see_all(watch: Watch, after: int) -> None:
    with watch:
        while after < 1 + EVENTS:
            for event in await watch.next():
                assert event.revision == after + 1, "in order, each once"
                after = event.revision


if __name__ == "__main__":
    asyncio.run(open_and_list(sys.argv[1]))
