"""Sends random requests to an API server. A failure is an answer of 500, no answer, or a server that is not healthy afterwards."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from tests.support.random_requests import BATCH, FuzzedRequest, make_request

# Longer than any request may take, even on a busy machine.
ANSWER_TIMEOUT_S: Final = 60.0
CONNECTIONS: Final = 8


@dataclass(slots=True)
class FuzzReport:
    answers: Counter[int] = field(default_factory=Counter)
    # Connections that the server closed without an answer; only bytes that are no HTTP may cause it.
    closed: int = 0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        codes = ", ".join(f"{count} × {code}" for code, count in sorted(self.answers.items()))
        return f"{sum(self.answers.values())} answers ({codes}), {self.closed} closed, {len(self.failures)} failures"


async def fuzz_server(
    port: int,
    seed: int,
    numbers: range,
    *,
    connections: int = CONNECTIONS,
    progress: Callable[[FuzzReport], None] = lambda _: None,
) -> FuzzReport:
    """Send the requests with these numbers to a server on plain http."""
    report, rest = FuzzReport(), iter(numbers)

    async def run() -> None:
        client = _Client(port)
        for number in rest:
            await _try(client, make_request(seed, number), report, f"seed {seed}, number {number}")
            if number % 10_000 == 9_999:
                progress(report)
        await client.close()

    await asyncio.gather(*(run() for _ in range(connections)))
    healthy = FuzzedRequest(-1, "GET", b"/readyz", (), b"")
    client = _Client(port)
    if await client.ask(healthy) != 200:
        report.failures.append("the server is not ready after the last request")
    await client.close()
    return report


async def _try(client: _Client, request: FuzzedRequest, report: FuzzReport, name: str) -> None:
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            code = await client.ask(request)
    except TimeoutError:
        report.failures.append(f"{name}: no answer within {ANSWER_TIMEOUT_S:.0f} s: {request}")
        await client.close()
        return
    except (OSError, asyncio.IncompleteReadError):
        await client.close()
        report.closed += 1
        if not request.raw:
            report.failures.append(f"{name}: the connection was closed without an answer: {request}")
        return
    report.answers[code] += 1
    if code == 500:
        report.failures.append(f"{name}: 500: {request}")


class _Client:
    """One connection, made again when it is needed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def close(self) -> None:
        if self._streams is not None:
            writer, self._streams = self._streams[1], None
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def ask(self, request: FuzzedRequest) -> int:
        """The status of the answer, after its body was read: 500 if a write of a batch got that. A watch is left after its head."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        reader, writer = self._streams
        writer.write(request.wire())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if head.startswith(b"http/1.1 100"):
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if request.method != "HEAD" and b"\r\ncontent-length: " in head:
            length = head.split(b"\r\ncontent-length: ", 1)[1].split(b"\r\n", 1)[0]
            if b'{"status":500,' in await reader.readexactly(int(length)) and request.target == BATCH.encode():
                return 500
        elif request.method != "HEAD" or b"chunked" in head:
            await self.close()
        if b"\r\nconnection: close" in head or request.raw:
            await self.close()
        return int(head.split(b" ", 2)[1])
