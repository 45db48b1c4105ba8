"""A bounded log of changes that affect placement, from which cached verdicts learn what is stale.

Most changes concern one node. `LastChanges` keeps the last change of each, so that a reader that comes rarely gets every node
once, however often the node changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from itertools import islice
from typing import Final, Generic, TypeVar

from msgspec import Struct

from dralloc.devices.identity import PoolId

# --- Numbered log ---------------------------------------------------------------------------------------------------
# A log whose entries are numbered. A reader remembers the number of the first entry that it has not read.


Entry = TypeVar("Entry")


class NumberedLog(Generic[Entry]):
    """Keeps at most `entries_max` entries; None keeps all until `drop_before`."""

    def __init__(self, entries_max: int | None = None) -> None:
        self._entries: deque[Entry] = deque(maxlen=entries_max)
        # The number of the next entry.
        self.next = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry) -> None:
        self._entries.append(entry)
        self.next += 1

    def since(self, number: int) -> Iterator[Entry] | None:
        """The entries from `number` on, newest first; None if some of them were dropped."""
        if number < self.next - len(self._entries):
            return None
        return islice(reversed(self._entries), self.next - number)

    def drop_before(self, number: int) -> None:
        for _ in range(self.next - len(self._entries), min(number, self.next)):
            self._entries.popleft()
        self.next = max(self.next, number)


ENTRIES_MAX: Final = 20_000

K = TypeVar("K", bound=Hashable)


class NodeChanged(Struct, frozen=True, gc=False):
    """The node's properties, its pods or the devices it can use changed."""

    name: str


class NodeLoaded(Struct, frozen=True, gc=False):
    """A pod was placed on the node. A pod that did not fit before still does not fit."""

    name: str


class PoolTaken(Struct, frozen=True, gc=False):
    """Devices of the pool were allocated. A claim that did not fit before still does not fit.

    `node` is the only node that can see the pool; empty if others may.
    """

    pool_id: PoolId
    node: str = ""


class PoolFreed(Struct, frozen=True, gc=False):
    """Devices of the pool were deallocated. `node` is as for `PoolTaken`."""

    pool_id: PoolId
    node: str = ""


class EverythingChanged(Struct, frozen=True, gc=False):
    """Devices changed that any node may be able to use."""


Change = NodeChanged | NodeLoaded | PoolTaken | PoolFreed | EverythingChanged


class LastChanges(Generic[K]):
    """What changed, with the number of its last change, in the order of these numbers."""

    def __init__(self) -> None:
        self._last: dict[K, int] = {}
        # Changes before this number may be forgotten.
        self.first = 0
        self._newest = -1

    def add(self, key: K, number: int) -> None:
        self._last.pop(key, None)
        self._last[key] = self._newest = number
        if len(self._last) > ENTRIES_MAX:
            self.first = self._last.pop(next(iter(self._last))) + 1

    def since(self, number: int) -> Iterator[K]:
        """What changed at that number or later, the last first."""
        if self._newest < number:
            return
        for key, last in reversed(self._last.items()):
            if last < number:
                return
            yield key


class ChangeLog(NumberedLog[Change]):
    """The log, and the same changes by what they mean for verdicts."""

    def __init__(self) -> None:
        super().__init__(ENTRIES_MAX)
        # Nodes that may have another verdict; nodes of which less is left; of these, the ones whose own devices were allocated.
        self.changed: LastChanges[str] = LastChanges()
        self.worsened: LastChanges[str] = LastChanges()
        self.taken: LastChanges[str] = LastChanges()
        # Pools that several nodes may see.
        self.pools_taken: LastChanges[PoolId] = LastChanges()
        self.pools_freed: LastChanges[PoolId] = LastChanges()
        self._known_from = 0

    def add(self, entry: Change) -> None:
        number = self.next
        super().add(entry)
        match entry:
            case NodeChanged(name):
                self.changed.add(name, number)
            case NodeLoaded(name):
                self.worsened.add(name, number)
            case PoolTaken(pool_id, node):
                if node:
                    self.worsened.add(node, number)
                    self.taken.add(node, number)
                else:
                    self.pools_taken.add(pool_id, number)
            case PoolFreed(pool_id, node):
                if node:
                    self.changed.add(node, number)
                else:
                    self.pools_freed.add(pool_id, number)
            case EverythingChanged():
                self._known_from = number + 1

    def nodes_since(self, number: int) -> set[str]:
        """The nodes that changed in any way at that number or later."""
        return {*self.changed.since(number), *self.worsened.since(number)}

    def is_known_since(self, number: int) -> bool:
        """False if everything may have changed since."""
        return (
            number >= self._known_from
            and number >= self.changed.first
            and number >= self.worsened.first
            and number >= self.taken.first
            and number >= self.pools_taken.first
            and number >= self.pools_freed.first
        )


class ChangeReader:
    """The place up to which a log was read."""

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
        self._read = log.next

    def advance(self) -> int | None:
        """The number of the first change that was not read yet. None if everything may have changed. All changes count as read then."""
        first, self._read = self._read, self._log.next
        return first if self._log.is_known_since(first) else None
