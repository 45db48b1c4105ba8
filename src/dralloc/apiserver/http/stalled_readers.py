"""Bounds the responses that clients have not read, of all clients together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class StalledReaders:
    """The clients that do not read their responses, and the bytes that wait for them."""

    def __init__(self, bytes_max: int, report: Callable[[str], None]) -> None:
        self._bytes_max = bytes_max
        self._report = report
        self._waiting: dict[asyncio.Transport, int] = {}
        self._total = 0

    def add(self, transport: asyncio.Transport) -> None:
        self._waiting[transport] = transport.get_write_buffer_size()
        self._total += self._waiting[transport]
        while self._total > self._bytes_max:
            oldest = next(iter(self._waiting))
            self.remove(oldest)
            self._report("closed, the client did not read its responses")
            oldest.abort()

    def remove(self, transport: asyncio.Transport) -> None:
        self._total -= self._waiting.pop(transport, 0)
