"""Clients' requests over the simulated network to one of the API servers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Final, Protocol

from dralloc.client.transport import ClientRequest, ClientResponse, Stream, TransportError
from dralloc.server.http.messages import HttpResponse
from dralloc.testing.virtual_time import SimulatedProcess
from tests.simulator.network import Faults, Network, NoAnswer

# A client gives up after this time; a paused server may still do the work later.
REQUEST_TIMEOUT_S: Final = 30.0
PIECES_MAX: Final = 8


class ServerHost(Protocol):
    """An API server that requests can reach."""

    process: SimulatedProcess

    async def answer(self, request: ClientRequest) -> HttpResponse: ...


class NetworkTransport:
    """The connection of one client. After a failure it turns to another server."""

    def __init__(
        self,
        network: Network,
        name: str,
        hosts: Sequence[ServerHost],
        random: Random,
        *,
        is_reliable: bool = False,
        without_duplicates: bool = False,
    ) -> None:
        self._network = network
        self._name = name
        self._hosts = hosts
        self._random = random
        self._is_reliable = is_reliable
        self._without_duplicates = without_duplicates
        self._host = random.choice(hosts)

    @property
    def faults(self) -> Faults:
        if self._is_reliable:
            return Faults()
        faults = self._network.faults_between(self._name, self._host.process.name)
        return replace(faults, duplicate=0.0) if self._without_duplicates else faults

    async def send(self, request: ClientRequest) -> ClientResponse:
        host = self._host

        async def work() -> ClientResponse:
            answer = await host.answer(request)
            # A large list is streamed.
            body = answer.body if answer.stream is None else b"".join([piece async for piece in answer.stream])
            return ClientResponse(status=answer.status, body=body)

        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return await self._network.call(self._name, host.process, work, self.faults)
        except (NoAnswer, TimeoutError) as error:
            self._host = self._random.choice(self._hosts)
            raise TransportError(f"{request.method} {request.path}: {error}") from error

    @asynccontextmanager
    async def stream(self, request: ClientRequest) -> AsyncIterator[Stream]:
        host, process = self._host, self._host.process
        pieces = _Pipe()

        async def work() -> tuple[HttpResponse, asyncio.Task[None]]:
            answer = await host.answer(request)
            return answer, process.start(_pump(answer, pieces))

        try:
            # Late and doubled watches are of no use to a client.
            faults = Faults(lose_request=self.faults.lose_request, slow=self.faults.slow, delay_max_s=5.0)
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                answer, pump = await self._network.call(self._name, process, work, faults)
        except (NoAnswer, TimeoutError) as error:
            self._host = self._random.choice(self._hosts)
            raise TransportError(f"{request.method} {request.path}: {error}") from error
        try:
            yield _NetworkStream(self, process.name, answer.status, pieces, pump)
        finally:
            pump.cancel()

    async def cross(self, server: str) -> None:
        await self._network.pass_piece(server, self._name, self.faults)

    def cut_within(self, piece: bytes) -> bytes:
        return piece[: self._random.randrange(len(piece))]

    async def close(self) -> None:
        """No-op: nothing is held open between requests."""


async def _pump(answer: HttpResponse, pieces: _Pipe) -> None:
    if answer.stream is None:
        await pieces.put(answer.body)
    else:
        try:
            async for piece in answer.stream:
                await pieces.put(piece)
        finally:
            await answer.stream.aclose()


class _Pipe:
    """What is on its way from a server to a client; still arrives if the server ends."""

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._ended = False

    async def put(self, piece: bytes) -> None:
        while len(self._pieces) >= PIECES_MAX:
            await self._change()
        self._pieces.append(piece)
        self._changed.set()

    async def get(self) -> bytes | None:
        while not self._pieces:
            if self._ended:
                return None
            await self._change()
        self._changed.set()
        return self._pieces.popleft()

    def end(self) -> None:
        self._ended = True
        self._changed.set()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


class _NetworkStream:
    def __init__(
        self,
        transport: NetworkTransport,
        server: str,
        status: int,
        pieces: _Pipe,
        pump: asyncio.Task[None],
    ) -> None:
        self.status = status
        self._transport = transport
        self._server = server
        self._pieces = pieces
        self._pump = pump
        pump.add_done_callback(lambda _: pieces.end())

    async def pieces(self) -> AsyncIterator[bytes]:
        while (piece := await self._pieces.get()) is not None:
            try:
                await self._transport.cross(self._server)
            except NoAnswer as error:
                # Cut within a line, which is the hard case for readers.
                yield self._transport.cut_within(piece)
                raise TransportError(str(error)) from error
            yield piece
        if self._pump.done() and (self._pump.cancelled() or self._pump.exception()):
            raise TransportError("the server disconnected")
