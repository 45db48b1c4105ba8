"""A network that loses things: the fault injection of tests and simulations, repeatable by its seed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto
from random import Random

from dralloc.client.transport import ClientRequest, ClientResponse, Stream, Transport, TransportError


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How likely it is that a request never arrives, that its answer is lost, that a piece of a stream is its last,
    that a request is slow, and that its client gives it up although it arrives in the end.
    """

    lose_request: float = 0.0
    lose_answer: float = 0.0
    break_stream: float = 0.0
    slow: float = 0.0
    late: float = 0.0
    # How long slow and late requests take at most.
    delay_max_s: float = 20.0


class FaultyTransport:
    """Another transport, with losses. A lost answer is the worst: the server did it, and the client does not know."""

    def __init__(self, inner: Transport, random: Random, faults: Faults) -> None:
        self._inner = inner
        self._random = random
        self.faults = faults
        self._late: set[asyncio.Task[None]] = set()

    async def send(self, request: ClientRequest) -> ClientResponse:
        if self._random.random() < self.faults.lose_request:
            raise TransportError(f"lost: {request.method} {request.path}")
        if self._random.random() < self.faults.late:
            arriving = asyncio.ensure_future(self._arrive(request))
            self._late.add(arriving)
            arriving.add_done_callback(self._late.discard)
            raise TransportError(f"no answer in time: {request.method} {request.path}")
        if self._random.random() < self.faults.slow:
            await self._delay()
        response = await self._inner.send(request)
        if self._random.random() < self.faults.lose_answer:
            raise TransportError(f"lost the answer to {request.method} {request.path}")
        return response

    async def _arrive(self, request: ClientRequest) -> None:
        await self._delay()
        await self._inner.send(request)

    async def _delay(self) -> None:
        await asyncio.sleep(self._random.uniform(0, self.faults.delay_max_s))

    async def all_arrived(self) -> None:
        """Return when no late request is under way any more."""
        while self._late:
            await asyncio.gather(*self._late, return_exceptions=True)

    @asynccontextmanager
    async def stream(self, request: ClientRequest) -> AsyncIterator[Stream]:
        if self._random.random() < self.faults.lose_request:
            raise TransportError(f"lost: {request.method} {request.path}")
        async with self._inner.stream(request) as stream:
            yield _BreakingStream(stream, self._random, self.faults)

    async def close(self) -> None:
        await self._inner.close()


class Loss(Enum):
    """What becomes of one request."""

    NOTHING = auto()
    REQUEST = auto()
    ANSWER = auto()


class ScriptedTransport:
    """Another transport that loses, and delays, exactly what a script says: for the one moment that a test is about.

    Where the script has a response, that is the answer, and the request does not arrive.
    """

    def __init__(
        self,
        inner: Transport,
        script: Callable[[ClientRequest], Loss | ClientResponse],
        delay_s: Callable[[ClientRequest], float] = lambda _: 0.0,
    ) -> None:
        self._inner = inner
        self._script = script
        self._delay_s = delay_s

    async def send(self, request: ClientRequest) -> ClientResponse:
        loss = self._script(request)
        if wait_s := self._delay_s(request):
            await asyncio.sleep(wait_s)
        if isinstance(loss, ClientResponse):
            return loss
        if loss is Loss.REQUEST:
            raise TransportError(f"lost: {request.method} {request.path}")
        response = await self._inner.send(request)
        if loss is Loss.ANSWER:
            raise TransportError(f"lost the answer to {request.method} {request.path}")
        return response

    def stream(self, request: ClientRequest) -> AbstractAsyncContextManager[Stream]:
        return self._inner.stream(request)

    async def close(self) -> None:
        await self._inner.close()


class _BreakingStream:
    def __init__(self, inner: Stream, random: Random, faults: Faults) -> None:
        self._inner = inner
        self._random = random
        self._faults = faults

    @property
    def status(self) -> int:
        return self._inner.status

    async def pieces(self) -> AsyncIterator[bytes]:
        async for piece in self._inner.pieces():
            if self._random.random() < self._faults.break_stream:
                # What is cut off in the middle of a line is the hard case.
                yield piece[: self._random.randrange(len(piece))]
                raise TransportError("the stream broke")
            yield piece
