"""How long a client waits while another one sends all it can, lists thousands of objects, or has thousands of watches.

The server runs with TLS as users run it; both clients have a token of their own. The busy client is a process of its own:

    python -m bench.busy_clients WHAT PORT CA
"""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.measurement import Figure, benchmark
from tests.support.server_process import ServerProcess, server_process

SECONDS = 5.0
PAUSE_S = 0.01
TARGET_MS = 100.0
STORED = 3_000
WATCHES = 3_900
WRITES = 20
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def request(method: str, target: str, token: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "host: localhost", f"authorization: Bearer {token}", *headers]
    if not any(header.startswith("content-type") for header in headers):
        lines.append("content-type: application/json")
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


def claim(name: str) -> bytes:
    exactly = {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    return json.dumps({"metadata": {"name": name, "labels": {"app": "x"}}, "spec": spec}).encode()


def write() -> bytes:
    body = json.dumps({"metadata": {"labels": {"a": str(time.time_ns())}}}).encode()
    return request("PATCH", f"{CLAIMS}/c-00001", "busy", body, "content-type: application/merge-patch+json")


# What the busy client sends, and on how many connections.
REQUESTS: dict[str, tuple[Callable[[], bytes], int]] = {
    "gets": (lambda: request("GET", f"{CLAIMS}/c-00001", "busy"), 128),
    "writes": (write, 128),
    "lists": (lambda: request("GET", CLAIMS, "busy"), 16),
    "lists as tables": (
        lambda: request("GET", CLAIMS, "busy", b"", "accept: application/json;as=Table;v=v1;g=meta.k8s.io"),
        4,
    ),
    "lists as protobuf": (
        lambda: request("GET", CLAIMS, "busy", b"", "accept: application/vnd.kubernetes.protobuf"),
        4,
    ),
    "lists in another version": (lambda: request("GET", CLAIMS.replace("/v1/", "/v1beta1/"), "busy"), 4),
}


@benchmark("busy_clients")
def measure_busy_clients() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        tokens = Path(directory) / "tokens.csv"
        tokens.write_text('good,good,1,"system:masters"\nbusy,busy,2,"system:masters"\n')
        with server_process(Path(directory) / "data", "--token-file", str(tokens)) as server:
            site = Site(server, Path(directory) / "data" / "tls" / "ca.crt")
            asyncio.run(site.fill())
            yield from asyncio.run(site.measure_watches())
            yield Figure("GET p99, no other client", asyncio.run(site.p99_ms()), "ms", TARGET_MS)
            for name in REQUESTS:
                with site.kept_busy(name):
                    yield Figure(f"GET p99, while another client: {name}", asyncio.run(site.p99_ms()), "ms", TARGET_MS)


class Site:
    def __init__(self, server: ServerProcess, authority: Path) -> None:
        self.port = int(server.url.rsplit(":", 1)[1])
        self.authority = authority

    async def fill(self) -> None:
        streams = await connect(self.port, self.authority)
        for number in range(STORED):
            assert await ask(streams, request("POST", CLAIMS, "busy", claim(f"c-{number:05}"))) == 201
        streams[1].close()

    async def p99_ms(self) -> float:
        """The 99th percentile of a client that sends one request after the other."""
        streams = await connect(self.port, self.authority)
        taken: list[float] = []
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end:
            started = time.perf_counter()
            assert await ask(streams, request("GET", f"{CLAIMS}/c-00007", "good")) == 200
            taken.append(time.perf_counter() - started)
            await asyncio.sleep(PAUSE_S)
        streams[1].close()
        return sorted(taken)[int(len(taken) * 0.99)] * 1000

    @contextmanager
    def kept_busy(self, name: str) -> Iterator[None]:
        """Another client does this inside the block."""
        command = [sys.executable, "-m", "bench.busy_clients", name, str(self.port), str(self.authority)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None
            try:
                assert client.stdout.readline() == "busy\n"
                yield
            finally:
                client.kill()

    async def measure_watches(self) -> list[Figure]:
        with self.kept_busy("watches"):
            streams = await connect(self.port, self.authority)
            started = time.perf_counter()
            for number in range(WRITES):
                assert await ask(streams, request("POST", CLAIMS, "good", claim(f"w-{number}"))) == 201
            written = time.perf_counter() - started
            p99_ms = await self.p99_ms()
            streams[1].close()
        return [
            Figure(f"{WRITES} writes with {WATCHES:,} watches", written, "s", 1.0),
            Figure(f"GET p99 with {WATCHES:,} watches", p99_ms, "ms", TARGET_MS),
        ]


async def connect(port: int, authority: Path) -> Streams:
    context = ssl.create_default_context(cafile=str(authority))
    return await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=1 << 26)


async def ask(streams: Streams, content: bytes) -> int:
    reader, writer = streams
    writer.write(content)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"content-length: " in head:
        await reader.readexactly(int(head.split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0]))
    else:
        while size := int(await reader.readline(), 16):
            await reader.readexactly(size + 2)
        await reader.readline()
    return int(head.split(b" ", 2)[1])


async def repeat(port: int, authority: Path, make: Callable[[], bytes], connections: int) -> None:
    async def run() -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                streams = await connect(port, authority)
                while True:
                    await ask(streams, make())

    await asyncio.gather(*(run() for _ in range(connections)))


async def watch(port: int, authority: Path) -> None:
    """Many watches of one collection, which are read."""
    ready = 0
    opening = asyncio.Semaphore(256)
    context = ssl.create_default_context(cafile=str(authority))

    async def run() -> None:
        nonlocal ready
        async with opening:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writer.write(request("GET", f"{CLAIMS}?watch=1&resourceVersion={revision}", "busy"))
            await reader.readuntil(b"\r\n\r\n")
        ready += 1
        if ready == WATCHES:
            announce()
        while await reader.read(1 << 16):
            pass

    streams = await connect(port, authority)
    streams[1].write(request("GET", f"{CLAIMS}?limit=1", "busy"))
    head = await streams[0].readuntil(b"\r\n\r\n")
    length = int(head.split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0])
    revision = json.loads(await streams[0].readexactly(length))["metadata"]["resourceVersion"]
    await asyncio.gather(*(run() for _ in range(WATCHES)))


def announce() -> None:
    sys.stdout.write("busy\n")
    sys.stdout.flush()


def be_busy(name: str, port: int, authority: Path) -> None:
    if name == "watches":
        asyncio.run(watch(port, authority))
        return
    announce()
    asyncio.run(repeat(port, authority, *REQUESTS[name]))


if __name__ == "__main__":
    be_busy(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
