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
        self._entries_max = entries_max
        self._first = 0
        self._entries: deque[Entry] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def next(self) -> int:
        return self._first + len(self._entries)

    def add(self, entry: Entry) -> None:
        self._entries.append(entry)
        if self._entries_max is not None and len(self._entries) > self._entries_max:
            self._entries.popleft()
            self._first += 1

    def since(self, number: int) -> Iterator[Entry] | None:
        """The entries from `number` on, newest first; None if some of them were dropped."""
        if number < self._first:
            return None
        return islice(reversed(self._entries), self.next - number)

    def drop_before(self, number: int) -> None:
        while self._first < number and self._entries:
            self._entries.popleft()
            self._first += 1
        self._first = max(self._first, number)
