"""A log whose entries are numbered. A reader remembers the number of the first entry that it has not read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Generic, TypeVar

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
