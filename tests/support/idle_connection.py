"""A client's connection without a socket, for tests of what is written to it."""

from __future__ import annotations

from collections.abc import Callable

from dralloc.apiserver.http.exchange import Exchange
from dralloc.apiserver.http.request_parser import RequestHead


class IdleConnection:
    """Keeps what is written; its client always reads, and sends nothing."""

    is_paused = False

    def __init__(self, port: int = 0, *, is_gone: bool = False) -> None:
        self.is_gone = is_gone
        self.client: tuple[str, int] | None = ("127.0.0.1", port)
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


def version_request(connection: IdleConnection, token: str) -> Exchange:
    """`GET /version` with the token."""
    return Exchange(connection, RequestHead("GET", "/version", b"", [(b"authorization", f"Bearer {token}".encode())]))
