"""A server as its clients see it if it has no extensions, such as Kubernetes' own."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from dralloc.api.dralloc_v1 import EXTENSIONS_PATH
from dralloc.client.transport import ClientRequest, ClientResponse, Stream, Transport


class WithoutExtensions:
    """A transport to a server whose extensions are not found."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    async def send(self, request: ClientRequest) -> ClientResponse:
        if request.path == EXTENSIONS_PATH:
            return ClientResponse(status=404, body=b"404 page not found")
        return await self._inner.send(request)

    def stream(self, request: ClientRequest) -> AbstractAsyncContextManager[Stream]:
        return self._inner.stream(request)

    async def close(self) -> None:
        await self._inner.close()
