"""The ASGI application: authenticates a request, reads its body, passes it to the API and sends the response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import aclosing, nullcontext
from typing import Any, Final, Protocol

from dralloc.apiserver.http.authentication import Authenticator
from dralloc.apiserver.http.impersonation_headers import impersonation_headers
from dralloc.apiserver.http.messages import HttpRequest, HttpResponse, parse_query
from dralloc.apiserver.http.request_metrics import ServerMetrics
from dralloc.apiserver.http.site_guard import check_same_site
from dralloc.apiserver.http.static_pages import StaticPages
from dralloc.apiserver.http.statuses import UNAUTHORIZED, status_of, status_response
from dralloc.primitives import errors

Message = MutableMapping[str, Any]
Scope = Message
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

# The limit of Kubernetes.
BODY_BYTES_MAX: Final = 3 * 1024 * 1024
BODY_TIME_MAX_S: Final = 60.0
# Bounds the memory for bodies that are still arriving, of all clients together.
BODIES_BYTES_MAX: Final = 256 * 1024 * 1024

_SOON: Final = errors.ErrorDetails(retry_after_s=1)


class RequestHandler(Protocol):
    """The API behind the application (`dralloc.apiserver.server.ApiServer`)."""

    metrics: ServerMetrics

    async def handle(self, request: HttpRequest) -> HttpResponse: ...

    def end_streams(self) -> None: ...


class ApiApplication:
    """An ASGI application for one API server, and for static pages if there are any."""

    def __init__(self, server: RequestHandler, authenticator: Authenticator, pages: StaticPages | None = None) -> None:
        self._server = server
        self._authenticator = authenticator
        # Credentials prove that a request is meant for this server; without them, a browser may send one for another site.
        self._checks_site = not authenticator.needs_credential
        self._pages = pages
        self._bodies = _Bodies()

    @property
    def metrics(self) -> ServerMetrics:
        return self._server.metrics

    def end_streams(self) -> None:
        """End every watch without an error, so that its client starts a new one."""
        self._server.end_streams()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "lifespan and websockets are switched off"
        method, path, headers = scope["method"], scope["path"], dict(scope["headers"])
        if self._checks_site:
            try:
                check_same_site(headers)
            except errors.Forbidden as error:
                return await _send_whole(send, status_response(status_of(error)), close=True)
        if self._pages is not None and (page := self._pages.answer(method, path, headers)) is not None:
            return await _send_whole(send, page)
        certificate = scope.get("extensions", {}).get("user", {}).get("user")
        user = await self._authenticator.identify(headers.get(b"authorization", b""), certificate)
        if user is None:
            return await _send_whole(send, status_response(UNAUTHORIZED))
        try:
            body = await self._bodies.read(receive) if method != "GET" else b""
        except errors.ApiError as error:
            return await _send_whole(send, status_response(status_of(error)), close=True)
        query = parse_query(scope["query_string"])
        source_ip, _ = scope.get("client") or ("", 0)
        request = HttpRequest(method, path, query, headers, body, user, source_ip=source_ip)
        request.impersonation = impersonation_headers(scope["headers"])
        response = await self._server.handle(request)
        if response.stream is None:
            return await _send_whole(send, response)
        return await _send_stream(receive, send, response, response.stream)

    async def answer(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[bytes, bytes], body: bytes
    ) -> HttpResponse:
        """The response to a request of a client in this process."""
        user = await self._authenticator.identify(headers.get(b"authorization", b""))
        if user is None:
            return status_response(UNAUTHORIZED)
        if len(body) > BODY_BYTES_MAX:
            return status_response(status_of(_too_large()))
        request = HttpRequest(method, path, query, headers, body, user)
        request.impersonation = impersonation_headers(headers.items())
        return await self._server.handle(request)


class _Bodies:
    """Reads request bodies; bounds the size of each and of all together."""

    def __init__(self) -> None:
        self._held = 0

    async def read(self, receive: Receive) -> bytes:
        first = await receive()
        try:
            # Most bodies arrive in one piece and need no timer.
            async with asyncio.timeout(BODY_TIME_MAX_S) if first.get("more_body") else nullcontext():
                return await self._read_pieces(receive, first)
        except TimeoutError:
            raise errors.BadRequest(f"the request body did not arrive within {BODY_TIME_MAX_S:.0f} seconds") from None

    async def _read_pieces(self, receive: Receive, message: Message) -> bytes:
        pieces: list[bytes] = []
        size = 0
        try:
            while True:
                if message["type"] == "http.disconnect":
                    raise errors.BadRequest("the client disconnected before the end of the body")
                piece = message.get("body", b"")
                pieces.append(piece)
                size += len(piece)
                self._held += len(piece)
                if size > BODY_BYTES_MAX:
                    raise _too_large()
                if self._held > BODIES_BYTES_MAX:
                    raise errors.TooManyRequests(
                        "too many large requests at once, please try again later", details=_SOON
                    )
                if not message.get("more_body", False):
                    return b"".join(pieces)
                message = await receive()
        finally:
            self._held -= size


def _too_large() -> errors.RequestEntityTooLarge:
    return errors.RequestEntityTooLarge(f"Request entity too large: limit is {BODY_BYTES_MAX}")


def _head(response: HttpResponse, *extra: tuple[bytes, bytes]) -> dict[str, Any]:
    headers = [(b"content-type", response.content_type.encode("latin-1")), *response.headers, *extra]
    return {"type": "http.response.start", "status": response.status, "headers": headers}


async def _send_whole(send: Send, response: HttpResponse, *, close: bool = False) -> None:
    length = (b"content-length", b"%d" % len(response.body))
    await send(_head(response, length, (b"connection", b"close")) if close else _head(response, length))
    await send({"type": "http.response.body", "body": response.body})


async def _send_stream(
    receive: Receive, send: Send, response: HttpResponse, stream: AsyncGenerator[bytes, None]
) -> None:
    """Send the stream until it ends or the client disconnects."""
    # Headers are sent at once: without them, a watch without events looks like a server that hangs.
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
