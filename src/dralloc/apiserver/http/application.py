"""The application: authenticates a request, reads its body, passes it to the API and sends the response."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Final, Protocol

from dralloc.access.users import ANONYMOUS, User
from dralloc.apiserver.http.authentication import Authenticator
from dralloc.apiserver.http.body_reader import BODY_BYTES_MAX, BodyReader, drain, too_large
from dralloc.apiserver.http.exchange import Exchange
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
from dralloc.apiserver.http.statuses import UNAUTHORIZED, status_of, status_response
from dralloc.primitives import errors

# Watches that one user may have open.
WATCHES_OF_USER_MAX: Final = 8192


class RequestHandler(Protocol):
    """The API behind the application (`dralloc.apiserver.server.ApiServer`)."""

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
        self._bodies = BodyReader()
        self._watches: Counter[str] = Counter()
        self.flow_control = FlowControl()
        server.metrics.include(self.flow_control.metrics)

    @property
    def metrics(self) -> ServerMetrics:
        return self._server.metrics

    def end_streams(self) -> None:
        """End every watch without an error, so that its client starts a new one."""
        self._server.end_streams()

    async def serve(self, exchange: Exchange) -> None:
        """Answer the request of an exchange."""
        method, path, headers, client = (
            exchange.method,
            exchange.path,
            dict(exchange.headers),
            exchange.connection.client,
        )
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
            try:
                user = await self._verified_user(authorization, exchange)
            except errors.TooManyRequests as error:
                return await _respond_early(exchange, self._server.refuse(request, error))
            except ClientGone as gone:
                return await exchange.respond(status_response(status_of(gone)))
            if user is None:
                return await exchange.respond(status_response(UNAUTHORIZED))
            request.user = user
        level = priority_level(method, path, exchange.query, user)
        flow = self.flow_control.flow_of(user, level, client, f"{method} {path}", exchange.connection)
        begin(flow)
        try:
            request.body = b"" if method == "GET" else await self._bodies.read(exchange, headers, user.name)
        except errors.ApiError as error:
            return await _respond_early(exchange, self._server.refuse(request, error))
        try:
            response = await self._respond(request, flow, exchange)
        finally:
            if request.body:
                self._bodies.release(user.name, len(request.body))
        if response.stream is None:
            return await exchange.respond(response)
        with self._counted(user):
            if response.push is not None:
                await response.stream.aclose()
                await _push_stream(exchange, response, response.push)
            else:
                await _send_stream(exchange, response, response.stream, flow)
        return None

    async def _verified_user(self, authorization: bytes, exchange: Exchange) -> User | None:
        """The user of a token that must be verified. Tokens that were not right before wait their turn, as anonymous requests do:
        anyone can send one, and to verify it takes longer than many requests.
        """
        if self._authenticator.has_proven(authorization):
            return await self._authenticator.verified_user(authorization)
        connection, request = exchange.connection, f"{exchange.method} {exchange.path}"
        flow = self.flow_control.flow_of(ANONYMOUS, PriorityLevel.CATCH_ALL, connection.client, request, connection)
        await flow.enter()
        return await flow.metered(self._authenticator.verified_user(authorization))

    async def _respond(self, request: HttpRequest, flow: RequestFlow, exchange: Exchange) -> HttpResponse:
        """The response to a complete request, when it is its turn."""
        try:
            if "watch" in request.query and self._watches[request.user.name] >= WATCHES_OF_USER_MAX:
                raise self.flow_control.reject(flow, "too-many-watches")
            await flow.enter()
        except errors.ApiError as error:
            return self._server.refuse(request, error)
        request.impersonation = impersonation_headers(exchange.headers)
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
    """Send a response before the request is complete, and close the connection when its client has stopped sending."""
    await exchange.respond_early(response)
    await drain(exchange)
    exchange.end()


async def _push_stream(exchange: Exchange, response: HttpResponse, push: Callable[[Sink], Awaitable[None]]) -> None:
    await exchange.begin(response)
    try:
        await push(exchange)
    except ClientGone:
        return
    finally:
        exchange.listen(on_writable=None, on_gone=None)
    exchange.end()


async def _send_stream(
    exchange: Exchange, response: HttpResponse, stream: AsyncGenerator[bytes, None], flow: RequestFlow
) -> None:
    """Send the stream until it ends or the client disconnects."""
    await exchange.begin(response)
    sending = asyncio.ensure_future(_send_pieces(exchange, stream, flow))

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
    if error is not None and not isinstance(error, ClientGone):
        raise error
    exchange.end()


async def _send_pieces(exchange: Exchange, stream: AsyncGenerator[bytes, None], flow: RequestFlow) -> None:
    async with aclosing(stream):
        while (piece := await flow.metered(anext(stream, None))) is not None:
            await flow.metered(exchange.send(piece))
            await flow.next_turn()
