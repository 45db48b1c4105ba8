"""The ASGI application: authenticates a request, reads its body, passes it to the API and sends the response."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any, Final, Protocol

from dralloc.access.users import ANONYMOUS, User
from dralloc.apiserver.http.authentication import Authenticator
from dralloc.apiserver.http.body_reader import BODY_BYTES_MAX, BodyReader, Message, Receive, drain, too_large
from dralloc.apiserver.http.flow_control import (
    ClientGone,
    FlowControl,
    RequestFlow,
    begin,
)
from dralloc.apiserver.http.impersonation_headers import impersonation_headers
from dralloc.apiserver.http.messages import HttpRequest, HttpResponse, Sink, parse_query
from dralloc.apiserver.http.priority_levels import PriorityLevel, priority_level
from dralloc.apiserver.http.request_metrics import ServerMetrics
from dralloc.apiserver.http.site_guard import check_same_site
from dralloc.apiserver.http.static_pages import StaticPages
from dralloc.apiserver.http.statuses import status_of, status_response
from dralloc.primitives import errors

Scope = Message
Send = Callable[[Message], Awaitable[None]]
Tunnel = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

_CLOSE: Final = ((b"connection", b"close"),)

# Watches that one user may have open.
WATCHES_OF_USER_MAX: Final = 8192


# Answers depend on who asks, so no cache may keep them for others, and browsers must not guess their type.
_PROTECTION: Final = ((b"cache-control", b"no-cache, private"), (b"x-content-type-options", b"nosniff"))


class RequestHandler(Protocol):
    """The API behind the application (`dralloc.apiserver.server.ApiServer`)."""

    metrics: ServerMetrics

    async def handle(self, request: HttpRequest) -> HttpResponse: ...

    async def refuse(self, request: HttpRequest, error: errors.ApiError) -> HttpResponse: ...

    def refuse_unauthenticated(self, request: HttpRequest) -> HttpResponse: ...

    def end_streams(self) -> None: ...


class ClientConnection(Protocol):
    """A client's connection (`listener`), to which a response can be written without a task."""

    is_gone: bool

    @property
    def is_paused(self) -> bool: ...

    def push(self, piece: bytes) -> None: ...

    def listen(self, *, on_writable: Callable[[], None] | None, on_gone: Callable[[], None] | None) -> None: ...

    def take_over(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]: ...


class ApiApplication:
    """An ASGI application for one API server, and for static pages if there are any."""

    def __init__(self, server: RequestHandler, authenticator: Authenticator, pages: StaticPages | None = None) -> None:
        self._server = server
        self._authenticator = authenticator
        # Credentials prove that a request is meant for this server; without them, a browser may send one for another site.
        self._checks_site = not authenticator.needs_credential
        self._pages = pages
        self._bodies = BodyReader()
        self._watches: Counter[str] = Counter()
        self._tunnels: set[asyncio.Task[None]] = set()
        self.flow_control = FlowControl()
        server.metrics.include(self.flow_control.metrics)

    @property
    def metrics(self) -> ServerMetrics:
        return self._server.metrics

    def end_streams(self) -> None:
        """End every watch without an error, so that its client starts a new one, and every connection to a pod."""
        self._server.end_streams()
        for task in self._tunnels:
            task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "lifespan and websockets are switched off"
        method, path, headers = scope["method"], scope["path"], dict(scope["headers"])
        source_ip, _ = scope.get("client") or ("", 0)
        if self._checks_site:
            try:
                check_same_site(headers)
            except errors.Forbidden as error:
                refused = HttpRequest(method, path, {}, headers, b"", ANONYMOUS, source_ip=source_ip)
                return await _send_early(receive, send, await self._server.refuse(refused, error))
        if self._pages is not None and (page := self._pages.answer(method, path, headers)) is not None:
            return await _send_whole(send, page)
        certificate = scope.get("extensions", {}).get("user", {}).get("user")
        authorization = headers.get(b"authorization", b"")
        user = self._authenticator.user_of(authorization, certificate)
        query = parse_query(scope["query_string"])
        request = HttpRequest(method, path, query, headers, b"", user or ANONYMOUS, source_ip=source_ip)
        request.raw_query = scope["query_string"]
        connection = scope.get("extensions", {}).get("connection", {}).get("connection")
        if user is None:
            try:
                user = await self._verified_user(authorization, scope, connection)
            except errors.TooManyRequests as error:
                return await _send_early(receive, send, await self._server.refuse(request, error))
            except ClientGone as gone:
                return await _send_whole(send, status_response(status_of(gone)))
            if user is None:
                return await _send_whole(send, self._server.refuse_unauthenticated(request))
            request.user = user
        level = priority_level(method, path, scope["query_string"], user)
        flow = self.flow_control.flow_of(user, level, scope.get("client"), f"{method} {path}", connection)
        begin(flow)
        try:
            request.body = b"" if method == "GET" else await self._bodies.read(receive, headers, user.name)
        except errors.ApiError as error:
            return await _send_early(receive, send, await self._server.refuse(request, error))
        try:
            response = await self._respond(request, flow, scope, is_upgradable=connection is not None)
        finally:
            if request.body:
                self._bodies.release(user.name, len(request.body))
        if response.tunnel is not None and connection is not None:
            with self._counted(user):
                return await self._tunnel(response, response.tunnel, connection)
        if response.stream is None:
            # After a request for an upgrade, the parser expects no other request.
            return await _send_whole(send, response, *(_CLOSE if b"upgrade" in headers else ()))
        with self._counted(user):
            if response.push is not None and connection is not None:
                await response.stream.aclose()
                await _push_stream(send, response, response.push, connection)
            else:
                await _send_stream(receive, send, response, response.stream, flow)
        return None

    async def _verified_user(
        self, authorization: bytes, scope: Scope, connection: ClientConnection | None
    ) -> User | None:
        """The user of a token that must be verified. Tokens that were not right before wait their turn, as anonymous requests do:
        anyone can send one, and to verify it takes longer than many requests.
        """
        if self._authenticator.has_proven(authorization):
            return await self._authenticator.verified_user(authorization)
        request = f"{scope['method']} {scope['path']}"
        flow = self.flow_control.flow_of(ANONYMOUS, PriorityLevel.CATCH_ALL, scope.get("client"), request, connection)
        await flow.enter()
        return await flow.metered(self._authenticator.verified_user(authorization))

    async def _respond(
        self, request: HttpRequest, flow: RequestFlow, scope: Scope, *, is_upgradable: bool
    ) -> HttpResponse:
        """The response to a complete request, when it is its turn."""
        is_upgrade = b"upgrade" in request.headers
        try:
            if ("watch" in request.query or is_upgrade) and self._watches[request.user.name] >= WATCHES_OF_USER_MAX:
                raise self.flow_control.reject(flow, "too-many-watches")
            await flow.enter()
        except errors.ApiError as error:
            return await self._server.refuse(request, error)
        if is_upgrade and is_upgradable:
            request.upgrade = tuple(scope["headers"])
        request.impersonation = impersonation_headers(scope["headers"])
        try:
            return await flow.metered(self._server.handle(request))
        except ClientGone as gone:
            return status_response(status_of(gone))

    @contextmanager
    def _counted(self, user: User) -> Iterator[None]:
        """Counts a stream of the user inside the block."""
        self._watches[user.name] += 1
        try:
            yield
        finally:
            self._watches[user.name] -= 1
            if not self._watches[user.name]:
                del self._watches[user.name]

    async def _tunnel(self, response: HttpResponse, tunnel: Tunnel, connection: ClientConnection) -> None:
        """Confirm an upgrade, and leave the connection to its protocol until it or the server ends."""
        task = asyncio.create_task(_switch_protocols(response, tunnel, connection))
        self._tunnels.add(task)
        try:
            await asyncio.wait((task,))
        finally:
            self._tunnels.discard(task)
            task.cancel()
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    async def answer(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[bytes, bytes], body: bytes
    ) -> HttpResponse:
        """The response to a request of a client in this process."""
        authorization = headers.get(b"authorization", b"")
        user = self._authenticator.user_of(authorization) or await self._authenticator.verified_user(authorization)
        if user is None:
            return self._server.refuse_unauthenticated(HttpRequest(method, path, query, headers, b"", ANONYMOUS))
        return await self.answer_as(user, method, path, query, headers, body)

    def acting_as(self, user: User) -> UserApplication:
        """The application for a component of this process that is this user. It needs no credential."""
        return UserApplication(self, user)

    async def answer_as(
        self,
        user: User,
        method: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[bytes, bytes],
        body: bytes,
    ) -> HttpResponse:
        """The response to a request of this user."""
        request = HttpRequest(method, path, query, headers, body, user)
        if len(body) > BODY_BYTES_MAX:
            return await self._server.refuse(request, too_large())
        request.impersonation = impersonation_headers(headers.items())
        return await self._server.handle(request)


class UserApplication:
    """An application as one user reaches it from inside the process."""

    def __init__(self, application: ApiApplication, user: User) -> None:
        self._application = application
        self._user = user

    async def answer(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[bytes, bytes], body: bytes
    ) -> HttpResponse:
        return await self._application.answer_as(self._user, method, path, query, headers, body)


def _head(response: HttpResponse, *extra: tuple[bytes, bytes]) -> dict[str, Any]:
    headers = [(b"content-type", response.content_type.encode("latin-1")), *response.headers, *extra]
    # Pages have headers of their own.
    if not any(name == b"cache-control" for name, _ in response.headers):
        headers += _PROTECTION
    return {"type": "http.response.start", "status": response.status, "headers": headers}


async def _switch_protocols(response: HttpResponse, tunnel: Tunnel, connection: ClientConnection) -> None:
    """Confirm an upgrade, and leave the connection to its protocol."""
    reader, writer = connection.take_over()
    lines = [b"HTTP/1.1 101 Switching Protocols", *(b"%b: %b" % header for header in response.headers)]
    writer.write(b"\r\n".join([*lines, b"", b""]))
    await tunnel(reader, writer)


async def _send_whole(send: Send, response: HttpResponse, *extra: tuple[bytes, bytes]) -> None:
    await send(_head(response, (b"content-length", b"%d" % len(response.body)), *extra))
    await send({"type": "http.response.body", "body": response.body})


async def _send_early(receive: Receive, send: Send, response: HttpResponse) -> None:
    """Send a response before the request is complete, and close the connection when its client has stopped sending."""
    length = (b"content-length", b"%d" % len(response.body))
    await send(_head(response, length, *_CLOSE))
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    await drain(receive)
    await send({"type": "http.response.body", "body": b""})


class _ResponseSink:
    """The rest of a chunked response."""

    def __init__(self, connection: ClientConnection, send: Send) -> None:
        self._connection = connection
        self._send = send
        self.push = connection.push
        self.listen = connection.listen

    @property
    def is_paused(self) -> bool:
        return self._connection.is_paused

    async def send(self, piece: bytes) -> None:
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})


async def _push_stream(
    send: Send, response: HttpResponse, push: Callable[[Sink], Awaitable[None]], connection: ClientConnection
) -> None:
    # Headers are sent at once: without them, a watch without events looks like a server that hangs.
    await send(_head(response))
    try:
        await push(_ResponseSink(connection, send))
    finally:
        connection.listen(on_writable=None, on_gone=None)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_stream(
    receive: Receive, send: Send, response: HttpResponse, stream: AsyncGenerator[bytes, None], flow: RequestFlow
) -> None:
    """Send the stream until it ends or the client disconnects."""
    # Headers are sent at once: without them, a watch without events looks like a server that hangs.
    await send(_head(response))
    sending = asyncio.ensure_future(_send_pieces(send, stream, flow))
    leaving = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, leaving):
            task.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)
    error = None if sending.cancelled() else sending.exception()
    if isinstance(error, ClientGone):
        # Ends the response for the listener, too, which otherwise logs that it is incomplete.
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    elif error is not None:
        raise error


async def _send_pieces(send: Send, stream: AsyncGenerator[bytes, None], flow: RequestFlow) -> None:
    async with aclosing(stream):
        while (piece := await flow.metered(anext(stream, None))) is not None:
            await flow.metered(send({"type": "http.response.body", "body": piece, "more_body": True}))
            await flow.next_turn()
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
