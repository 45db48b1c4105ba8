"""A network that loses exactly the requests and answers that a test selects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto

from dralloc.client.transport import ClientRequest, ClientResponse, Transport, TransportError
from dralloc.kube.codec import encode
from dralloc.server.http.url_paths import ResourcePath, parse_path
from tests.support.relay_transport import RelayTransport


class Loss(Enum):
    """What the network loses of one request."""

    NOTHING = auto()
    REQUEST = auto()
    ANSWER = auto()


class ScriptedTransport(RelayTransport):
    """A transport that loses and delays the requests that a script selects.

    If the script returns a response, that is the answer, and the server does not get the request.
    """

    def __init__(
        self,
        inner: Transport,
        script: Callable[[ClientRequest], Loss | ClientResponse],
        delay_s: Callable[[ClientRequest], float] = lambda _: 0.0,
    ) -> None:
        super().__init__(inner)
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


class LosesFirst:
    """Loses the first requests to a path."""

    def __init__(self, path: str, count: int) -> None:
        self._path = path
        self._left = count

    def __call__(self, request: ClientRequest) -> Loss:
        if not self._left or not request.path.endswith(self._path):
            return Loss.NOTHING
        self._left -= 1
        return Loss.REQUEST


class LosesFirstAnswers:
    """Drops the first answer of each kind of write, so that the writer has to check the result."""

    def __init__(self) -> None:
        self._seen: set[object] = set()

    def __call__(self, request: ClientRequest) -> Loss:
        path = parse_path(request.path)
        kind = (request.method, path.resource, path.subresource) if isinstance(path, ResourcePath) else ()
        if request.method == "GET" or kind in self._seen:
            return Loss.NOTHING
        self._seen.add(kind)
        return Loss.ANSWER


def failure(reason: str, code: int) -> ClientResponse:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "code": code,
        "message": "no",
    }
    return ClientResponse(status=code, body=encode(status))
