"""The transport without sockets: requests go directly to an API server in this process.

Otherwise it behaves like the network: the token is checked, bodies are bytes, a stream has back-pressure (the server
produces the next piece on demand), and closing it is a disconnect for the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import lru_cache
from typing import Protocol

from dralloc.client.transport import ClientRequest, ClientResponse, Stream

Headers = tuple[tuple[bytes, bytes], ...]


class ApplicationResponse(Protocol):
    """The response of an application: a body, or a stream."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Headers: ...

    @property
    def body(self) -> bytes: ...

    @property
    def stream(self) -> AsyncGenerator[bytes, None] | None: ...


class Application(Protocol):
    """An API server. Header names are lower case."""

    async def answer(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[bytes, bytes], body: bytes
    ) -> ApplicationResponse: ...


class InProcessTransport:
    """Calls the application directly. `token` is sent as over the network: calls inside the process have no special
    rights.
    """

    def __init__(self, application: Application, *, token: str | None = None) -> None:
        self._application = application
        self._token = token

    async def send(self, request: ClientRequest) -> ClientResponse:
        if request.method == "GET":
            # Yield, so that a polling caller cannot starve other tasks.
            await asyncio.sleep(0)
        answer = await self._ask(request)
        body = answer.body
        if answer.stream is not None:
            # A large list is streamed.
            async with aclosing(answer.stream) as stream:
                body = b"".join([piece async for piece in stream])
        return ClientResponse(status=answer.status, body=body, warnings=_warnings(answer.headers))

    @asynccontextmanager
    async def stream(self, request: ClientRequest) -> AsyncIterator[Stream]:
        answer = await self._ask(request)
        try:
            yield _Stream(answer)
        finally:
            if answer.stream is not None:
                await answer.stream.aclose()

    async def close(self) -> None:
        """No-op: nothing is held open between requests."""

    async def _ask(self, request: ClientRequest) -> ApplicationResponse:
        headers = _headers(self._token, tuple(request.headers.items()))
        return await self._application.answer(request.method, request.path, request.query, headers, request.body)


class _Stream:
    def __init__(self, answer: ApplicationResponse) -> None:
        self.status = answer.status
        self._answer = answer

    def pieces(self) -> AsyncIterator[bytes]:
        return self._answer.stream if self._answer.stream is not None else _only(self._answer.body)


async def _only(piece: bytes) -> AsyncIterator[bytes]:
    yield piece


# Requests repeat the same few headers.
@lru_cache(maxsize=256)
def _headers(token: str | None, stated: tuple[tuple[str, str], ...]) -> Mapping[bytes, bytes]:
    headers = {"accept": "application/json"} | {name.lower(): text for name, text in stated}
    if token:
        headers["authorization"] = f"Bearer {token}"
    return {name.encode("latin-1"): text.encode("latin-1") for name, text in headers.items()}


def _warnings(headers: Headers) -> tuple[str, ...]:
    if not headers:
        return ()
    texts = (value.decode("latin-1") for name, value in headers if name.lower() == b"warning")
    return tuple(text.partition(' "')[2].rstrip('"') for text in texts)
