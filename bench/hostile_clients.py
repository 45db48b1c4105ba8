"""How long a well-behaved client waits while another one floods, sends the most expensive requests, or never reads.

What one such request takes of the event loop, whatever else the machine does, is measured by `loop_steps`.

The server runs with TLS as users run it; both clients have a token of their own. Attackers are processes of their own:

    python -m bench.hostile_clients ATTACK PORT TOKEN CA
"""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.expensive_requests import CLAIMS, REQUESTS, TENANT, claim, request, stored
from bench.measurement import Figure, benchmark
from tests.support.server_process import ServerProcess, server_process

SECONDS = 5.0
PAUSE_S = 0.01
TARGET_MS = 100.0
STORED = 3_000
WATCHES = 3_900
WRITES = 20
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@benchmark("hostile_clients")
def measure_hostile_clients(names: tuple[str, ...] = ()) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        tokens = Path(directory) / "tokens.csv"
        tokens.write_text(f'good,good,1,"system:masters"\nbad,bad,2,"system:masters"\n{TENANT},{TENANT},3\n')
        with server_process(Path(directory) / "data", "--token-file", str(tokens)) as server:
            site = Site(server, Path(directory) / "data" / "tls" / "ca.crt")
            asyncio.run(site.fill())
            yield from asyncio.run(site.measure_watches()) if not names or "watches" in names else []
            yield Figure("GET p99, no other client", asyncio.run(site.p99_ms()), "ms", TARGET_MS)
            for name in names or (*REQUESTS, *CONNECTIONS):
                if name in REQUESTS or name in CONNECTIONS:
                    with site.attacked(name):
                        yield Figure(
                            f"GET p99, while another client: {name}", asyncio.run(site.p99_ms()), "ms", TARGET_MS
                        )


class Site:
    def __init__(self, server: ServerProcess, authority: Path) -> None:
        self.port = int(server.url.rsplit(":", 1)[1])
        self.authority = authority

    async def fill(self) -> None:
        streams = await connect(self.port, self.authority)
        for number in range(STORED):
            assert await ask(streams, request("POST", CLAIMS, "bad", claim(f"c-{number:05}"))) == 201
        for path, document in stored():
            assert await ask(streams, request("POST", path, "bad", json.dumps(document).encode())) == 201
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
    def attacked(self, name: str) -> Iterator[None]:
        """Another client does this inside the block."""
        command = [sys.executable, "-m", "bench.hostile_clients", name, str(self.port), "bad", str(self.authority)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attacker:
            assert attacker.stdout is not None
            try:
                assert attacker.stdout.readline() == "attacking\n"
                yield
            finally:
                attacker.kill()

    async def measure_watches(self) -> list[Figure]:
        with self.attacked("watches"):
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


async def connect(port: int, authority: Path, *, tls: bool = True) -> Streams:
    context = ssl.create_default_context(cafile=str(authority)) if tls else None
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
    content = make()

    async def run() -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                streams = await connect(port, authority)
                while True:
                    await ask(streams, content if len(content) > 2000 else make())

    await asyncio.gather(*(run() for _ in range(connections)))


async def stay_silent(port: int, authority: Path) -> None:
    """Connections without a handshake, opened again when the server closes them."""

    async def run() -> None:
        while True:
            with suppress(OSError):
                reader, writer = await connect(port, authority, tls=False)
                while await reader.read(1000):
                    pass
                writer.close()
            await asyncio.sleep(0.1)

    await asyncio.gather(*(run() for _ in range(1500)))


async def never_read(port: int, authority: Path) -> None:
    async def run() -> None:
        while True:
            with suppress(OSError):
                _, writer = await connect(port, authority)
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                writer.write(request("GET", CLAIMS, "bad") * 20)
                await asyncio.sleep(30)
                writer.close()

    await asyncio.gather(*(run() for _ in range(100)))


async def pipeline(port: int, authority: Path) -> None:
    async def run() -> None:
        while True:
            with suppress(OSError):
                reader, writer = await connect(port, authority)
                writer.write(b"GET /version HTTP/1.1\r\n\r\n" * 20_000)
                while await reader.read(1 << 16):
                    pass
                writer.close()

    await asyncio.gather(*(run() for _ in range(10)))


async def send_tiny_chunks(port: int, authority: Path) -> None:
    head = request("POST", CLAIMS, "bad").replace(b"content-length: 0", b"transfer-encoding: chunked")

    async def run() -> None:
        while True:
            with suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await connect(port, authority)
                writer.write(head + b"1\r\n \r\n" * 400_000 + b"0\r\n\r\n")
                await reader.readuntil(b"\r\n\r\n")
                writer.close()

    await asyncio.gather(*(run() for _ in range(8)))


async def watch(port: int, authority: Path) -> None:
    """Many watches of one collection, which are read."""
    ready = 0
    opening = asyncio.Semaphore(256)
    context = ssl.create_default_context(cafile=str(authority))

    async def run() -> None:
        nonlocal ready
        async with opening:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writer.write(request("GET", f"{CLAIMS}?watch=1&resourceVersion={revision}", "bad"))
            await reader.readuntil(b"\r\n\r\n")
        ready += 1
        if ready == WATCHES:
            announce()
        while await reader.read(1 << 16):
            pass

    streams = await connect(port, authority)
    streams[1].write(request("GET", f"{CLAIMS}?limit=1", "bad"))
    head = await streams[0].readuntil(b"\r\n\r\n")
    length = int(head.split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0])
    revision = json.loads(await streams[0].readexactly(length))["metadata"]["resourceVersion"]
    await asyncio.gather(*(run() for _ in range(WATCHES)))


CONNECTIONS: dict[str, Callable[[int, Path], Awaitable[None]]] = {
    "1,500 connections without a handshake": stay_silent,
    "never reads": never_read,
    "pipelines requests": pipeline,
    "bodies in chunks of one byte": send_tiny_chunks,
}


def announce() -> None:
    sys.stdout.write("attacking\n")
    sys.stdout.flush()


def attack(name: str, port: int, authority: Path) -> None:
    if name == "watches":
        asyncio.run(watch(port, authority))
        return
    announce()
    if name in CONNECTIONS:
        asyncio.run(CONNECTIONS[name](port, authority))  # type: ignore[arg-type]
    else:
        few = name not in ("gets", "writes", "lists")
        asyncio.run(repeat(port, authority, REQUESTS[name], 4 if few else 128))


if __name__ == "__main__":
    attack(sys.argv[1], int(sys.argv[2]), Path(sys.argv[4]))
