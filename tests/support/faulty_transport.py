"""A transport with network faults for the tests of one component; the simulator has a network for many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from dralloc.client.transport import ClientRequest, ClientResponse, Stream, Transport, TransportError
from tests.simulator.network import Faults
from tests.support.relay_transport import RelayTransport


class FaultyTransport(RelayTransport):
    """A transport with faults. After a lost answer the server has made the change and the client does not know."""

    def __init__(self, inner: Transport, random: Random, faults: Faults) -> None:
        super().__init__(inner)
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
        """Wait until every late request has arrived."""
        while self._late:
            await asyncio.gather(*self._late, return_exceptions=True)

    @asynccontextmanager
    async def stream(self, request: ClientRequest) -> AsyncIterator[Stream]:
        if self._random.random() < self.faults.lose_request:
            raise TransportError(f"lost: {request.method} {request.path}")
        async with self._inner.stream(request) as stream:
            yield _BreakingStream(stream, self._random, self.faults)


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
                # Cut within a line, which is the hard case for readers.
                yield piece[: self._random.randrange(len(piece))]
                raise TransportError("the stream broke")
            yield piece
