"""How many connections clients may have: all together, and from one address, so that a client of another address always gets one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final

# One of so many connections is left for other addresses. Many clients can share the address of a proxy, so it is a small part.
OTHER_ADDRESSES: Final = 16


class ConnectionGate:
    """The open connections. They count from the moment they are accepted, before the TLS handshake."""

    def __init__(self, connections_max: int) -> None:
        self._connections_max = connections_max
        self._address_max = connections_max - connections_max // OTHER_ADDRESSES
        self._addresses: dict[Hashable, str] = {}
        self._by_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._addresses)

    def admit(self, connection: Hashable, address: str) -> str:
        """Count a new connection from the address; if it must be refused instead, the reason."""
        if len(self) >= self._connections_max:
            return "all connections are in use"
        if self._by_address[address] >= self._address_max:
            return "its address has too many"
        self._addresses[connection] = address
        self._by_address[address] += 1
        return ""

    def leave(self, connection: Hashable) -> None:
        if (address := self._addresses.pop(connection, None)) is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]
