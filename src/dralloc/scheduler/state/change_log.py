"""A log of what has changed for placing pods, so that whoever remembers verdicts knows which of them are out of date."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

from msgspec import Struct

from dralloc.devices.identity import PoolId

KEPT_MAX: Final = 20_000


class NodeChanged(Struct, frozen=True, gc=False):
    """What the node offers, what is on it, or which devices it sees."""

    name: str


class PoolTaken(Struct, frozen=True, gc=False):
    """Devices of the pool were given out: what did not fit still does not."""

    pool_id: PoolId


class PoolFreed(Struct, frozen=True, gc=False):
    """Devices of the pool were given back."""

    pool_id: PoolId


class EverythingChanged(Struct, frozen=True, gc=False):
    """Devices that any node may see."""


Change = NodeChanged | PoolTaken | PoolFreed | EverythingChanged


class ChangeLog:
    """The last changes, numbered. Readers keep the number of the next one."""

    def __init__(self) -> None:
        self._first = 0
        self._changes: deque[Change] = deque()

    @property
    def next(self) -> int:
        return self._first + len(self._changes)

    def add(self, change: Change) -> None:
        self._changes.append(change)
        if len(self._changes) > KEPT_MAX:
            self._changes.popleft()
            self._first += 1

    def since(self, number: int) -> Iterator[Change] | None:
        """The changes from this one on; None where they are not all known any more."""
        if number < self._first:
            return None
        return islice(reversed(self._changes), self.next - number)
