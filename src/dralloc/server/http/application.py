"""The application: authenticates a request, reads its body, passes it to the API and sends the response."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Final, Protocol

from dralloc.primitives import errors
from dralloc.primitives.errors import ApiError, BadRequest, ErrorDetails, RequestEntityTooLarge, TooManyRequests
from dralloc.server.access.users import ANONYMOUS, User
from dralloc.server.http.authentication import Authenticator, impersonation_headers
from dralloc.server.http.exchange import Exchange
from dralloc.server.http.messages import HttpRequest, HttpResponse, Sink, parse_query
from dralloc.server.http.request_metrics import ServerMetrics
from dralloc.server.http.site_guard import check_same_site
from dralloc.server.http.static_pages import StaticPages
from dralloc.server.http.statuses import UNAUTHORIZED, status_response


class RequestHandler(Protocol):
    """The API behind the application (`dralloc.server.server.ApiServer`)."""

    metrics: ServerMetrics

    async def handle(self, request: HttpRequest) -> HttpResponse: ...

    def refuse(self, request: HttpRequest, error: errors.ApiError) -> HttpResponse: ...

    def end_streams(self) -> None: ...


class ApiApplication:
    """The application of one API server, and of static pages if there are any."""

    def __init__(self, server: RequestHandler, authenticator: Authenticator, pages: StaticPages | None = None) -> None:
        self._server = server
        self._authenticator = authenticator
        # Credentials prove that a request is meant for this server; without them, a browser may send one for another site.
        self._checks_site = not authenticator.needs_credential
        self._pages = pages
        self._limits = RequestLimits()

    @property
    def metrics(self) -> ServerMetrics:
        return self._server.metrics

    def end_streams(self) -> None:
        """End every watch without an error, so that its client starts a new one."""
        self._server.end_streams()

    async def serve(self, exchange: Exchange) -> None:
        """Answer the request of an exchange."""
        method, path, headers = exchange.method, exchange.path, dict(exchange.headers)
        if self._checks_site:
            try:
                check_same_site(headers)
            except errors.Forbidden as error:
                refused = HttpRequest(method, path, {}, headers, b"", ANONYMOUS)
                return await _respond_early(exchange, self._server.refuse(refused, error))
        if self._pages is not None and (page := self._pages.answer(method, path, headers)) is not None:
            return await exchange.respond(page)
        authorization = headers.get(b"authorization", b"")
        user = self._authenticator.user_of(authorization, exchange.user)
        query = parse_query(exchange.query)
        request = HttpRequest(method, path, query, headers, b"", user or ANONYMOUS)
        if user is None:
            user = await self._authenticator.verified_user(authorization)
            if user is None:
                return await exchange.respond(status_response(UNAUTHORIZED))
            request.user = user
        try:
            self._limits.enter(path, user.name)
        except errors.TooManyRequests as error:
            return await _respond_early(exchange, self._server.refuse(request, error))
        try:
            try:
                request.body = b"" if method == "GET" else await read_body(exchange, headers)
            except errors.ApiError as error:
                return await _respond_early(exchange, self._server.refuse(request, error))
            request.impersonation = impersonation_headers(exchange.headers)
            response = await self._server.handle(request)
        finally:
            self._limits.leave(user.name)
        if response.stream is None:
            return await exchange.respond(response)
        if response.push is not None:
            await response.stream.aclose()
            return await _push_stream(exchange, response, response.push)
        return await _send_stream(exchange, response, response.stream)

    async def answer(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[bytes, bytes], body: bytes
    ) -> HttpResponse:
        """The response to a request of a client in this process."""
        authorization = headers.get(b"authorization", b"")
        user = self._authenticator.user_of(authorization) or await self._authenticator.verified_user(authorization)
        if user is None:
            return status_response(UNAUTHORIZED)
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
            return self._server.refuse(request, too_large())
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


async def _respond_early(exchange: Exchange, response: HttpResponse) -> None:
    """Send a response, perhaps before the request is complete; then close the connection when its client has stopped sending."""
    if exchange.has_arrived:
        return await exchange.respond(response)
    await exchange.respond_early(response)
    await drain(exchange)
    exchange.end()
    return None


async def _push_stream(exchange: Exchange, response: HttpResponse, push: Callable[[Sink], Awaitable[None]]) -> None:
    await exchange.begin(response)
    try:
        await push(exchange)
    finally:
        exchange.listen(on_writable=None, on_gone=None)
    exchange.end()


async def _send_stream(exchange: Exchange, response: HttpResponse, stream: AsyncGenerator[bytes, None]) -> None:
    """Send the stream until it ends or the client disconnects."""
    await exchange.begin(response)
    sending = asyncio.ensure_future(_send_pieces(exchange, stream))

    def stop() -> None:
        sending.cancel()

    exchange.listen(on_writable=None, on_gone=stop)
    try:
        await asyncio.wait((sending,))
    finally:
        exchange.listen(on_writable=None, on_gone=None)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    error = None if sending.cancelled() else sending.exception()
    if error is not None:
        raise error
    exchange.end()


async def _send_pieces(exchange: Exchange, stream: AsyncGenerator[bytes, None]) -> None:
    async with aclosing(stream):
        async for piece in stream:
            await exchange.send(piece)
            # Between the pieces of a long list, other requests are answered.
            await asyncio.sleep(0)


# --- Request limits -------------------------------------------------------------------------------------------------
# How many requests are answered at once, of all clients and of one user. Beyond that a request gets 429 with Retry-
# After.
#
# The limit for one user leaves the scheduler, the controllers and the nodes their part, whatever one user sends. A
# request counts from its head until its response is made: watches and the sending of long lists do not count.


# As many as a server of Kubernetes answers at once: 400 that read and 200 that write.
REQUESTS_OF_USER_MAX: Final = 600
REQUESTS_MAX: Final = 4 * REQUESTS_OF_USER_MAX
# What a client is told to wait.
RETRY_AFTER_S: Final = 1

# A supervisor would end a busy server that does not answer these.
_UNLIMITED: Final = frozenset({"/healthz", "/livez", "/readyz"})


class RequestLimits:
    """The requests in flight, by user."""

    def __init__(self) -> None:
        self._of_user: Counter[str] = Counter()
        self._all = 0

    def enter(self, path: str, user: str) -> None:
        """Count a request until `leave`; raises `TooManyRequests`, and does not count it then."""
        is_full = self._all >= REQUESTS_MAX or self._of_user[user] >= REQUESTS_OF_USER_MAX
        if is_full and path.rstrip("/") not in _UNLIMITED:
            raise TooManyRequests(
                "too many requests, please try again later", details=ErrorDetails(retry_after_s=RETRY_AFTER_S)
            )
        self._all += 1
        self._of_user[user] += 1

    def leave(self, user: str) -> None:
        self._all -= 1
        self._of_user[user] -= 1
        if not self._of_user[user]:
            del self._of_user[user]


# --- Body reader ----------------------------------------------------------------------------------------------------
# Reads request bodies, and bounds their size and the time for them.


class Body(Protocol):
    """A body that arrives (`exchange`)."""

    @property
    def has_arrived(self) -> bool:
        """True when nothing is left to wait for."""
        ...

    def receive(self) -> Awaitable[tuple[bytes, bool]]:
        """The next piece, and whether more may follow. Raises `BadRequest` if the client leaves before."""
        ...


# The limit of Kubernetes.
BODY_BYTES_MAX: Final = 3 * 1024 * 1024
BODY_TIME_MAX_S: Final = 60.0
# What is read and dropped after an early answer: a connection that is closed while its client sends is reset, and the answer lost.
DRAINED_BYTES_MAX: Final = 64 * 1024 * 1024
DRAIN_TIME_MAX_S: Final = 5.0


async def read_body(body: Body, headers: Mapping[bytes, bytes]) -> bytes:
    """All of the body; raises `RequestEntityTooLarge`, or `BadRequest` if it does not arrive."""
    if int(headers.get(b"content-length", b"0")) > BODY_BYTES_MAX:
        raise too_large()
    if body.has_arrived:
        piece, _ = await body.receive()
        if len(piece) > BODY_BYTES_MAX:
            raise too_large()
        return piece
    try:
        async with asyncio.timeout(BODY_TIME_MAX_S):
            pieces, size, more = list[bytes](), 0, True
            while more:
                piece, more = await body.receive()
                pieces.append(piece)
                size += len(piece)
                if size > BODY_BYTES_MAX:
                    raise too_large()
            return b"".join(pieces)
    except TimeoutError:
        raise BadRequest(f"the request body did not arrive within {BODY_TIME_MAX_S:.0f} seconds") from None


async def drain(body: Body) -> None:
    """Read and drop the rest of a body, within limits."""
    left, more = DRAINED_BYTES_MAX, True
    with suppress(TimeoutError, ApiError):
        async with asyncio.timeout(DRAIN_TIME_MAX_S):
            while left > 0 and more:
                piece, more = await body.receive()
                left -= len(piece)


def too_large() -> RequestEntityTooLarge:
    return RequestEntityTooLarge(f"Request entity too large: limit is {BODY_BYTES_MAX}")
