"""Which connections stay open when there are too many.

Connections are counted from the moment they are accepted, before the TLS handshake. Those that have not sent a complete request, and those that
wait for their client's next one, are closed before a new client is refused: the oldest first, because a well-behaved client sends its request
at once and can connect again. Connections with a request in progress stay. One address gets a part of the connections only, so that a client
of another address always gets one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import Final, Protocol

# A new connection has so long to send its request before it may be closed for another.
GRACE_S: Final = 1.0
# One of so many connections is left for other addresses. Many clients can share the address of a proxy, so it is a small part.
OTHER_ADDRESSES: Final = 16


class Closable(Protocol):
    def close_now(self) -> None:
        """Close without waiting for the peer."""
        ...


class ConnectionGate:
    """`report` gets the reason why a connection is closed or refused."""

    def __init__(self, *, connections_max: int, silent_max: int, report: Callable[[str], None]) -> None:
        self._connections_max = connections_max
        self._silent_max = silent_max
        self._report = report
        # In the order in which they became silent or idle.
        self._silent: dict[Closable, float] = {}
        self._idle: dict[Closable, None] = {}
        self._busy: set[Closable] = set()
        self._address_max = connections_max - connections_max // OTHER_ADDRESSES
        self._addresses: dict[Closable, str] = {}
        self._by_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._silent) + len(self._idle) + len(self._busy)

    def may_accept(self, now_s: float) -> bool:
        """False while too many connections are new; clients wait in the queue of the operating system."""
        return len(self._silent) < self._silent_max or next(iter(self._silent.values())) <= now_s - GRACE_S

    def admit(self, connection: Closable, now_s: float, address: str) -> bool:
        """Count a new connection from the address, and make room for it if there is none; False if it must be refused."""
        if self._by_address[address] >= self._address_max and not self._make_room_of(address):
            self._report("refused, their address has too many")
            return False
        if len(self) >= self._connections_max and not self.make_room():
            self._report("refused, all connections are in use")
            return False
        if len(self._silent) >= self._silent_max:
            self._close_oldest(self._silent, "closed before their first request")
        self._silent[connection] = now_s
        self._addresses[connection] = address
        self._by_address[address] += 1
        return True

    def start_request(self, connection: Closable) -> None:
        self._silent.pop(connection, None)
        self._idle.pop(connection, None)
        self._busy.add(connection)

    def end_request(self, connection: Closable) -> None:
        if connection in self._busy:
            self._busy.discard(connection)
            self._idle[connection] = None

    def close_silent(self) -> None:
        """Close the connections without a request, at the end of the server."""
        for connection in (*self._silent, *self._idle):
            connection.close_now()

    def leave(self, connection: Closable) -> None:
        self._silent.pop(connection, None)
        self._idle.pop(connection, None)
        self._busy.discard(connection)
        if (address := self._addresses.pop(connection, None)) is not None:
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def _make_room_of(self, address: str) -> bool:
        """As `make_room`, among the connections of one address: nearly all are."""
        waiting = chain(self._silent, self._idle)
        own = next((connection for connection in waiting if self._addresses.get(connection) == address), None)
        if own is None:
            return False
        self._report("closed for a newer one of their address")
        self.leave(own)
        own.close_now()
        return True

    def make_room(self) -> bool:
        """Close the connection that is missed the least; False if all are in use."""
        if self._silent:
            self._close_oldest(self._silent, "closed before their first request")
        elif self._idle:
            self._close_oldest(self._idle, "closed while idle")
        else:
            return False
        return True

    def _close_oldest(self, connections: dict[Closable, float] | dict[Closable, None], reason: str) -> None:
        oldest = next(iter(connections))
        del connections[oldest]
        self._report(reason)
        oldest.close_now()
