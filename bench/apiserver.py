"""Throughput of the API server over HTTP on loopback, with the SQLite store: each write is durable when acknowledged.

The server and the load generator are separate processes, so both cores of a small machine count.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from bench.measurement import Figure, benchmark
from tests.support.server_process import ServerProcess, server_process

CONNECTIONS = 32
CREATES = 20_000
GETS = 80_000
WATCHERS = 500
EVENTS = 5_000
STORED = 100_000
PAGE = 500
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


@benchmark("apiserver")
def measure_apiserver() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        with server_process(Path(directory), "--insecure-http") as server:
            yield Figure("first start until ready", time.perf_counter() - started, "s", target=1.0)
            yield from asyncio.run(measure(server))
        started = time.perf_counter()
        with server_process(Path(directory), "--insecure-http"):
            yield Figure(f"start with {STORED:,} claims until ready", time.perf_counter() - started, "s", target=1.0)


async def measure(server: ServerProcess) -> list[Figure]:
    port = int(server.url.rsplit(":", 1)[1])
    creates = await rate(port, (create(f"c-{number:06}") for number in range(CREATES)))
    gets = await rate(port, (request("GET", f"{CLAIMS}/c-{number % CREATES:06}") for number in range(GETS)))
    watched = await watch_all(port)
    await rate(port, (create(f"more-{number:06}") for number in range(STORED - CREATES - EVENTS)))
    started = time.perf_counter()
    assert await count_in_pages(port) == STORED, "every claim is listed once"
    listed = time.perf_counter() - started
    return [
        Figure("durable creates of claims", creates, "1/s", 2_000, more_is_better=True),
        Figure(f"gets from {CONNECTIONS} connections", gets, "1/s", 8_000, more_is_better=True),
        Figure(f"{EVENTS:,} events to {WATCHERS} watchers, in order", watched, "deliveries/s"),
        Figure(f"{STORED:,} claims in pages of {PAGE}", listed, "s"),
        Figure("peak memory of the server", most_memory_mb(server), "MB", target=400),
    ]


def most_memory_mb(server: ServerProcess) -> float:
    for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"no VmHWM on {os.uname().sysname}")


# --- requests -----------------------------------------------------------------------------------------------


def request(method: str, path: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def create(name: str) -> bytes:
    exactly = {
        "deviceClassName": "gpu.example.com",
        "selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}],
        "capacity": {"requests": {"memory": "10Gi"}},
    }
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "labels": {"app": "bench"}},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }
    return request("POST", CLAIMS, json.dumps(claim).encode())


async def rate(port: int, requests: Iterator[bytes]) -> float:
    """Returns answers per second, with sequential requests on each connection."""
    loop = asyncio.get_running_loop()
    clients = [LoadClient(requests, loop.create_future()) for _ in range(CONNECTIONS)]
    started = time.perf_counter()
    for client in clients:
        await loop.create_connection(lambda client=client: client, "127.0.0.1", port)  # type: ignore[misc]
    await asyncio.gather(*(client.done for client in clients))
    return sum(client.answers for client in clients) / (time.perf_counter() - started)


class LoadClient(asyncio.Protocol):
    """Sends the next request as soon as an answer is complete. Parses as little as possible, because it shares the
    server's cores.
    """

    def __init__(self, requests: Iterator[bytes], done: asyncio.Future[None]) -> None:
        self.done = done
        self.answers = 0
        self._requests = requests
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        mark = self._buffer.find(b"content-length: ", 0, end)
        length = int(self._buffer[mark + 16 : self._buffer.find(b"\r\n", mark)])
        if len(self._buffer) < end + 4 + length:
            return
        if self._buffer[9:10] != b"2":
            self.done.set_exception(RuntimeError(self._buffer.decode()))
            self._transport.close()
            return
        self.answers += 1
        self._buffer = b""
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or RuntimeError("the server closed the connection"))

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is not None:
            self._transport.write(request)
            return
        self.done.set_result(None)
        self._transport.close()


# --- watches and pages --------------------------------------------------------------------------------------


async def watch_all(port: int) -> float:
    """Returns deliveries per second, from the first write to the last delivery. Every watcher must see every event, in
    order.
    """
    revision = (await get(port, f"{CLAIMS}?limit=1"))["metadata"]["resourceVersion"]
    ready = [asyncio.Event() for _ in range(WATCHERS)]
    watching = [asyncio.create_task(see(port, revision, event)) for event in ready]
    await asyncio.gather(*(event.wait() for event in ready))
    started = time.perf_counter()
    await rate(port, (create(f"watched-{number:06}") for number in range(EVENTS)))
    orders = await asyncio.gather(*watching)
    elapsed = time.perf_counter() - started
    assert all(order == orders[0] for order in orders), "all see the same order"
    assert sorted(orders[0]) == [f"watched-{number:06}" for number in range(EVENTS)], "all see everything"
    return WATCHERS * EVENTS / elapsed


async def see(port: int, revision: str, ready: asyncio.Event) -> list[str]:
    return [name async for name in watched_names(port, revision, ready)]


async def watched_names(port: int, revision: str, ready: asyncio.Event) -> AsyncIterator[str]:
    """Yields names in the order in which one watcher receives them."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(request("GET", f"{CLAIMS}?watch=1&resourceVersion={revision}"))
    await reader.readuntil(b"\r\n\r\n")
    ready.set()
    seen, pending = 0, b""
    while seen < EVENTS:
        size = int(await reader.readline(), 16)
        pending += (await reader.readexactly(size + 2))[:-2]
        *lines, pending = pending.split(b"\n")
        for line in lines:
            mark = line.index(b'"name":"') + 8
            yield line[mark : line.index(b'"', mark)].decode()
        seen += len(lines)
    writer.close()


async def count_in_pages(port: int) -> int:
    count, token = 0, ""
    while True:
        page = await get(port, f"{CLAIMS}?limit={PAGE}&continue={token}")
        count += len(page["items"])
        token = page["metadata"].get("continue", "")
        if not token:
            return count


async def get(port: int, path: str) -> Any:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    writer.write(request("GET", path))
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0])
    body = await reader.readexactly(length)
    writer.close()
    return json.loads(body)
