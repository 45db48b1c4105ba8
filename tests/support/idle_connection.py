"""A client's connection without a socket, for tests of what is written to it."""

from __future__ import annotations

from collections.abc import Callable

from dralloc.server.http.exchange import Exchange


class IdleConnection:
    """Keeps what is written; its client always reads, and sends nothing."""

    is_paused = False

    def __init__(self) -> None:
        self.is_gone = False
        self.written = b""

    async def writable(self) -> None:
        """The client reads."""

    def write(self, piece: bytes) -> None:
        self.written += piece

    def pause_reading(self) -> None:
        """Nothing is read."""

    def resume_reading(self) -> None:
        """Nothing is read."""

    def listen(self, *, on_writable: Callable[[], None] | None, on_gone: Callable[[], None] | None) -> None:
        """Nothing changes."""

    def end_exchange(self, exchange: Exchange) -> None:
        """There is no other request."""

    def close(self) -> None:
        """There is nothing to close."""
