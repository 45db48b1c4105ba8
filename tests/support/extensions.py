"""A server as its clients see it if it has no extensions, such as Kubernetes' own."""

from __future__ import annotations

from dralloc.client.api_calls import PATH
from dralloc.client.transport import ClientRequest, ClientResponse
from dralloc.kube.dralloc_v1 import EXTENSIONS_PATH
from tests.support.relay_transport import RelayTransport


class WithoutExtensions(RelayTransport):
    """A transport to a server whose extensions are not found."""

    async def send(self, request: ClientRequest) -> ClientResponse:
        if request.path == EXTENSIONS_PATH:
            return ClientResponse(status=404, body=b"404 page not found")
        return await self._inner.send(request)


class LaterRelease(WithoutExtensions):
    """A transport to such a server of a release whose objects may have members that are not known yet."""

    async def send(self, request: ClientRequest) -> ClientResponse:
        if request.path == PATH:
            return ClientResponse(status=200, body=b'{"major":"1","minor":"999"}')
        return await super().send(request)
