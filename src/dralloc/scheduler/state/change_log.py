"""A bounded log of changes that affect placement, from which cached verdicts learn what is stale."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

from msgspec import Struct

from dralloc.devices.identity import PoolId

ENTRIES_MAX: Final = 20_000


class NodeChanged(Struct, frozen=True, gc=False):
    """The node's properties, its pods or the devices it can use changed."""

    name: str


class PoolTaken(Struct, frozen=True, gc=False):
    """Devices of the pool were allocated. A claim that did not fit before still does not fit."""

    pool_id: PoolId


class PoolFreed(Struct, frozen=True, gc=False):
    """Devices of the pool were deallocated."""

    pool_id: PoolId


class EverythingChanged(Struct, frozen=True, gc=False):
    """Devices changed that any node may be able to use."""


Change = NodeChanged | PoolTaken | PoolFreed | EverythingChanged


class ChangeLog:
    """The most recent changes, numbered. A reader remembers the number of the first entry that it has not read."""

    def __init__(self) -> None:
        self._first = 0
        self._changes: deque[Change] = deque()

    @property
    def next(self) -> int:
        return self._first + len(self._changes)

    def add(self, change: Change) -> None:
        self._changes.append(change)
        if len(self._changes) > ENTRIES_MAX:
            self._changes.popleft()
            self._first += 1

    def since(self, number: int) -> Iterator[Change] | None:
        """Yields the changes from `number` on, newest first; None if some of them were dropped from the log."""
        if number < self._first:
            return None
        return islice(reversed(self._changes), self.next - number)
