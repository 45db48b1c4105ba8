"""The transport without sockets: requests go to an ASGI application in this process, with the behaviour of the network.

A stream has back-pressure (the server waits while nobody reads), and closing it is a disconnect for the server.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlencode

from dralloc.client.transport import Request, Response, Stream, TransportError

Message = MutableMapping[str, Any]
AsgiApplication = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]

PIECES_WAITING_MAX: Final = 64


class InProcessTransport:
    """Calls the application directly. `token` is sent as over the network: being inside gives no rights."""

    def __init__(self, application: AsgiApplication, *, token: str | None = None) -> None:
        self._application = application
        self._token = token

    async def send(self, request: Request) -> Response:
        exchange = _Exchange(request, self._token)
        pieces: list[bytes] = []
        exchange.on_piece = pieces.append
        await self._application(exchange.scope, exchange.receive, exchange.send)
        return Response(status=exchange.answered_status(request), body=b"".join(pieces), warnings=exchange.warnings)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        exchange = _Exchange(request, self._token)
        task = asyncio.ensure_future(self._application(exchange.scope, exchange.receive, exchange.send))
        task.add_done_callback(lambda _: exchange.end())
        try:
            await exchange.started.wait()
            exchange.answered_status(request)
            yield exchange
        finally:
            exchange.disconnected.set()
            task.cancel()
            # Not by awaiting the task itself: if we are cancelled meanwhile, that must not be taken for its end.
            await asyncio.wait((task,))
            if not task.cancelled():
                task.result()

    async def close(self) -> None:
        """Nothing is held open between requests."""


class _Exchange:
    """One request and its answer, as the application sees them. It is also the stream that the caller reads."""

    def __init__(self, request: Request, token: str | None) -> None:
        self.scope = _scope(request, token)
        self.started = asyncio.Event()
        self.disconnected = asyncio.Event()
        self.warnings: tuple[str, ...] = ()
        self.on_piece: Callable[[bytes], None] | None = None
        self._status: int | None = None
        self._body: bytes | None = request.body
        self._waiting: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._ended = False

    @property
    def status(self) -> int:
        assert self._status is not None, "the answer has not begun"
        return self._status

    def answered_status(self, request: Request) -> int:
        if self._status is None:
            raise TransportError(f"no answer to {request.method} {request.path}")
        return self._status

    async def receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self.warnings = tuple(
                value.decode("latin-1").partition(' "')[2].rstrip('"')
                for name, value in message.get("headers", ())
                if name.lower() == b"warning"
            )
            self.started.set()
        elif message["type"] == "http.response.body" and (body := message.get("body")):
            if self.on_piece is not None:
                self.on_piece(body)
            else:
                await self._enqueue(body)

    async def _enqueue(self, piece: bytes) -> None:
        while len(self._waiting) >= PIECES_WAITING_MAX:
            self._room.clear()
            await self._room.wait()
        self._waiting.append(piece)
        self._arrived.set()

    def end(self) -> None:
        """The application returned: what it sent is all there is."""
        self._ended = True
        self.started.set()
        self._arrived.set()

    async def pieces(self) -> AsyncIterator[bytes]:
        while True:
            while self._waiting:
                piece = self._waiting.popleft()
                self._room.set()
                yield piece
            if self._ended:
                return
            self._arrived.clear()
            await self._arrived.wait()


def _scope(request: Request, token: str | None) -> Message:
    headers = {"accept": "application/json", **{name.lower(): value for name, value in request.headers.items()}}
    if token:
        headers["authorization"] = f"Bearer {token}"
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": request.path,
        "raw_path": request.path.encode(),
        "query_string": urlencode(request.query).encode(),
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
        "client": None,
        "server": None,
    }
