"""A network that loses exactly the requests and answers that a test selects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from enum import Enum, auto

from dralloc.client.transport import ClientRequest, ClientResponse, Stream, Transport, TransportError


class Loss(Enum):
    """What the network loses of one request."""

    NOTHING = auto()
    REQUEST = auto()
    ANSWER = auto()


class ScriptedTransport:
    """A transport that loses and delays the requests that a script selects.

    If the script returns a response, that is the answer, and the server does not get the request.
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
