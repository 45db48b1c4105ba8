"""Extensions of a dralloc server that save requests. Other servers have none, and clients do without."""

from __future__ import annotations

from typing import Final

import msgspec

from dralloc.client.transport import ClientRequest, Transport, TransportError
from dralloc.kube.dralloc_v1 import EXTENSIONS_PATH, Extensions
from dralloc.primitives.decoders import UNREADABLE

_ANSWER: Final = msgspec.json.Decoder(Extensions)


class ServerExtensions:
    """The extensions of one server, asked for when they are needed first, and again until there was an answer."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._known: frozenset[str] | None = None

    async def has(self, name: str) -> bool:
        if self._known is None:
            self._known = await self._ask()
        return self._known is not None and name in self._known

    def is_known_to_lack(self, name: str) -> bool:
        return self._known is not None and name not in self._known

    async def _ask(self) -> frozenset[str] | None:
        """None if the server did not answer, or cannot at the moment."""
        try:
            response = await self._transport.send(ClientRequest(method="GET", path=EXTENSIONS_PATH))
        except TransportError:
            return None
        if response.status == 200:
            try:
                return _ANSWER.decode(response.body).extensions
            except UNREADABLE:
                # Some other program's answer, such as a page for everything that it does not know.
                return frozenset()
        return None if response.status == 429 or response.status >= 500 else frozenset()
