"""A transport over another one, for tests that change what passes."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from dralloc.client.transport import ClientRequest, ClientResponse, Stream, Transport


class RelayTransport:
    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    async def send(self, request: ClientRequest) -> ClientResponse:
        return await self._inner.send(request)

    def stream(self, request: ClientRequest) -> AbstractAsyncContextManager[Stream]:
        return self._inner.stream(request)

    async def close(self) -> None:
        await self._inner.close()
