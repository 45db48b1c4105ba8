"""The release of Kubernetes that a server is of: up to the newest one that this version models, all members of its objects are known."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from dralloc.client.transport import ClientRequest, Transport, TransportError
from dralloc.primitives.decoders import UNREADABLE

MAJOR: Final = "1"
MINOR_MAX: Final = 37
PATH: Final = "/version"


class _Version(Struct):
    # The minor version of a provider's build has a plus sign.
    major: str = ""
    minor: str = ""


_ANSWER: Final = msgspec.json.Decoder(_Version)


class ServerRelease:
    """The release of one server, asked for when it is needed first. A server is not known until it has answered."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._is_known: bool | None = None

    async def is_known(self) -> bool:
        """True if its objects have no members that this version does not have."""
        if self._is_known is None:
            self._is_known = await self._ask()
        return self._is_known or False

    async def _ask(self) -> bool | None:
        try:
            response = await self._transport.send(ClientRequest(method="GET", path=PATH))
        except TransportError:
            return None
        if response.status != 200:
            # Whether it may be asked does not change; whether it can answer does.
            return None if response.status == 429 or response.status >= 500 else False
        try:
            version = _ANSWER.decode(response.body)
        except UNREADABLE:
            return False
        minor = version.minor.removesuffix("+")
        return version.major == MAJOR and minor.isdecimal() and len(minor) < 4 and int(minor) <= MINOR_MAX
