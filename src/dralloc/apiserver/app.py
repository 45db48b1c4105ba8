"""The ASGI face of the API: authenticate, read the body, hand the request over, send the answer.

No framework: this is all that lies between a connection and the API.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import aclosing
from typing import Any, Final

from dralloc.apiserver.authentication import OPEN_PATHS, Authenticator
from dralloc.apiserver.http import Request, Response, parse_query
from dralloc.apiserver.server import ApiServer
from dralloc.apiserver.statuses import REQUEST_TOO_LARGE, UNAUTHORIZED, status_response

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# As in Kubernetes: larger objects do not fit into etcd either.
BODY_BYTES_MAX: Final = 3 * 1024 * 1024
BODY_TIME_MAX_S: Final = 60.0


class ApiApplication:
    """An ASGI application for one API server."""

    def __init__(self, server: ApiServer, authenticator: Authenticator) -> None:
        self._server = server
        self._authenticator = authenticator

    def end_streams(self) -> None:
        """End every watch, cleanly: readers see the end of the stream and come back elsewhere or later."""
        self._server.end_streams()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "lifespan and websockets are switched off"
        headers = dict(scope["headers"])
        request = Request(scope["method"], scope["path"], parse_query(scope["query_string"]), headers)
        certificate = scope.get("extensions", {}).get("user", {}).get("user")
        user = self._authenticator.user_of(headers.get(b"authorization", b""), certificate)
        if user is not None:
            request.user = user
        elif request.path.rstrip("/") not in OPEN_PATHS or b"authorization" in headers:
            return await _send_whole(send, status_response(UNAUTHORIZED))
        if request.method != "GET":
            body = await _read_body(receive)
            if body is None:
                return await _send_whole(send, status_response(REQUEST_TOO_LARGE), close=True)
            request.body = body
        response = await self._server.handle(request)
        if response.stream is None:
            return await _send_whole(send, response)
        return await _send_stream(receive, send, response, response.stream)


async def _read_body(receive: Receive) -> bytes | None:
    """The whole body, or `None` when it is larger than we take or does not arrive in time."""
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        return body if len(body) <= BODY_BYTES_MAX else None
    pieces, size = [body], len(body)
    try:
        async with asyncio.timeout(BODY_TIME_MAX_S):
            while message.get("more_body", False) and size <= BODY_BYTES_MAX:
                message = await receive()
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
    except TimeoutError:
        return None
    return b"".join(pieces) if size <= BODY_BYTES_MAX else None


def _head(response: Response, *extra: tuple[bytes, bytes]) -> dict[str, Any]:
    headers = [(b"content-type", response.content_type.encode("latin-1")), *response.headers, *extra]
    return {"type": "http.response.start", "status": response.status, "headers": headers}


async def _send_whole(send: Send, response: Response, *, close: bool = False) -> None:
    length = (b"content-length", b"%d" % len(response.body))
    await send(_head(response, length, (b"connection", b"close")) if close else _head(response, length))
    await send({"type": "http.response.body", "body": response.body})


async def _send_stream(receive: Receive, send: Send, response: Response, stream: AsyncGenerator[bytes, None]) -> None:
    """Send piece after piece until the stream ends or the reader goes away."""
    # Headers leave before the first piece: to a client, a silent watch without them looks hung.
    await send(_head(response))
    sending = asyncio.ensure_future(_send_pieces(send, stream))
    leaving = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, leaving):
            task.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)
    if not sending.cancelled() and (error := sending.exception()) is not None:
        raise error


async def _send_pieces(send: Send, stream: AsyncGenerator[bytes, None]) -> None:
    async with aclosing(stream):
        async for piece in stream:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
