"""The state machine of the memory and SQLite stores: all keys, now and at every kept revision.

Pure and synchronous. The newest records are in a dictionary; earlier states are reconstructed from the event log,
walking back from a key's newest record. So history costs nothing until it is read, and values are not copied.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import msgspec

from dralloc.server.store.errors import Compacted, FutureRevision, KeyExists, RevisionConflict
from dralloc.server.store.event_log import EventLog
from dralloc.server.store.interface import FIRST_REVISION, HistoryLimits, Page, PageToken
from dralloc.server.store.records import Record, StoreEvent

ABSENT = 0
"""The expected revision of a key that must not exist."""


class ProposedWrite(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A requested write: a new value, or None to delete, for a key that must be at a revision.

    `unchanged` are the records of other keys that it was decided on.
    """

    key: str
    value: bytes | None
    expected_revision: int
    unchanged: Sequence[Record] = ()


def decide(change: ProposedWrite, *, current: Record | None, revision: int) -> StoreEvent:
    """Returns the event of the change if the current record is the expected one; raises KeyExists or RevisionConflict."""
    expected = change.expected_revision
    if (current.revision if current else ABSENT) != expected:
        if expected == ABSENT:
            raise KeyExists(change.key)
        raise RevisionConflict(change.key, expected=expected, current=current)
    key = current.key if current else change.key
    record = None if change.value is None else Record(key=key, value=change.value, revision=revision)
    return StoreEvent(revision=revision, key=key, record=record, previous=current)


class RevisionedMap:
    """The records of all keys, and the log of the changes that can still be read or watched."""

    def __init__(
        self, *, limits: HistoryLimits, records: Iterable[Record] = (), compacted: int = FIRST_REVISION
    ) -> None:
        self._latest = {record.key: record for record in records}
        self._keys = OrderedKeys(self._latest)
        # Keys whose deletion is still in the log, with its revision. They stay among the ordered keys for readers of
        # earlier revisions.
        self._deleted: dict[str, int] = {}
        # Re-creations of deleted keys: the revision of the creation, and of the deletion.
        self._recreated: dict[int, int] = {}
        self.log = EventLog(compacted=compacted, limits=limits)
        self.revision = compacted

    def __len__(self) -> int:
        return len(self._latest)

    def get(self, key: str) -> Record | None:
        return self._latest.get(key)

    def apply(self, events: Iterable[StoreEvent]) -> None:
        """Applies the next events in order; each may depend on the ones before."""
        latest, deleted, append, add = self._latest, self._deleted, self.log.append, self._keys.add
        for event in events:
            revision, key, record = event.revision, event.key, event.record
            assert revision == self.revision + 1, "each write takes the next revision"
            self.revision = revision
            append(event)
            if record is None:
                del latest[key]
                deleted[key] = revision
                continue
            latest[key] = record
            if event.previous is None:
                deletion = deleted.pop(key, None) if deleted else None
                if deletion is None:
                    add(key)
                else:
                    self._recreated[revision] = deletion

    def page(self, prefix: str, *, revision: int | None, limit: int | None, token: PageToken | None) -> Page:
        """Returns one page of the records under a prefix."""
        at = (token.revision if token else revision) or self.revision
        if at > self.revision:
            raise FutureRevision(at, current=self.revision)
        if at < self.log.compacted:
            raise Compacted(at, compacted=self.log.compacted)
        start = prefix + token.start_after + "\0" if token else prefix
        end = end_of_prefix(prefix)
        walk = self._records_between(start, end, at)
        if limit is None:
            return Page(records=tuple(walk), revision=at)
        records = tuple(record for _, record in zip(range(limit), walk, strict=False))
        if len(records) < limit:
            return Page(records=records, revision=at)
        total = token.remaining if token and token.revision else self._count_between(start, end, at)
        if total <= limit:
            return Page(records=records, revision=at)
        last = records[-1].key[len(prefix) :] if records else ""
        next_page = PageToken(revision=at, start_after=last, remaining=total - len(records))
        return Page(records=records, revision=at, next=next_page)

    def compact(self, revision: int) -> tuple[Sequence[StoreEvent], Sequence[int]]:
        """Drops the history before a revision; returns the events that leave the log, and the revisions that became
        unreachable.
        """
        assert revision <= self.revision, "only the past is compacted"
        dropped = self.log.compact(revision)
        unreachable: list[int] = []
        for event in dropped:
            if event.previous is not None:
                unreachable.append(event.previous.revision)
            else:
                self._recreated.pop(event.revision, None)
            if event.record is None:
                unreachable.append(event.revision)
                if self._deleted.get(event.key) == event.revision:
                    del self._deleted[event.key]
                    self._keys.remove(event.key)
        return dropped, unreachable

    def _records_between(self, start: str, end: str | None, revision: int) -> Iterator[Record]:
        latest = self._latest
        for key in self._keys.between(start, end):
            record = latest.get(key)
            if record is None or record.revision > revision:
                record = self._record_at(key, revision)
            if record is not None:
                yield record

    def _record_at(self, key: str, revision: int) -> Record | None:
        record = self._latest.get(key)
        changed = record.revision if record else self._deleted[key]
        while changed > revision:
            record = self.log.at(changed).previous
            changed = record.revision if record else self._recreated.get(changed, 0)
        return record

    def _count_between(self, start: str, end: str | None, revision: int) -> int:
        if revision < self.revision:
            return sum(1 for _ in self._records_between(start, end, revision))
        gone = sum(1 for key in self._deleted if start <= key and (end is None or key < end))
        return self._keys.count_between(start, end) - gone


# --- Ordered keys ---------------------------------------------------------------------------------------------------
# A sorted set of keys that stays fast as it grows: blocks of bounded length instead of one long list.


class OrderedKeys:
    """Distinct keys in code point order, which is also the order of their UTF-8 bytes.

    New keys are buffered until the next read, so that a bulk insert is sorted once instead of inserted one by one.
    """

    def __init__(self, keys: Iterable[str] = (), *, block_length_max: int = 1024) -> None:
        self._block_length_max = block_length_max
        self._fresh: list[str] = []
        self._blocks: list[list[str]] = []
        self._last: list[str] = []
        self._rebuild(keys)

    def add(self, key: str) -> None:
        """Adds a key that is not in the set."""
        self._fresh.append(key)

    def remove(self, key: str) -> None:
        """Removes a key of the set."""
        self._sort_in()
        position = bisect_left(self._last, key)
        block = self._blocks[position]
        place = bisect_left(block, key)
        assert block[place] == key, "the key is in the set"
        del block[place]
        if block:
            self._last[position] = block[-1]
        else:
            del self._blocks[position], self._last[position]

    def between(self, start: str, end: str | None) -> Iterator[str]:
        """Yields keys from `start` on, before `end` (None: to the last). The set must not change meanwhile."""
        self._sort_in()
        position = bisect_left(self._last, start)
        if position == len(self._blocks):
            return
        place = bisect_left(self._blocks[position], start)
        for block in self._blocks[position:]:
            if end is not None and block[-1] >= end:
                yield from block[place : bisect_left(block, end)]
                return
            yield from block[place:] if place else block
            place = 0

    def count_between(self, start: str, end: str | None) -> int:
        """Returns how many keys `between` would yield, without iterating."""
        if end is not None and end <= start:
            return 0
        self._sort_in()
        total = sum(map(len, self._blocks)) if end is None else self._rank(end)
        return total - self._rank(start)

    def _rank(self, key: str) -> int:
        position = bisect_left(self._last, key)
        before = sum(map(len, self._blocks[:position]))
        return before + (bisect_left(self._blocks[position], key) if position < len(self._blocks) else 0)

    def _sort_in(self) -> None:
        if not self._fresh:
            return
        fresh, self._fresh = self._fresh, []
        if len(fresh) > self._block_length_max // 16 * len(self._blocks):
            self._rebuild(chain(fresh, *self._blocks))
        else:
            for key in fresh:
                self._insert(key)

    def _rebuild(self, keys: Iterable[str]) -> None:
        ordered = sorted(keys)
        half = self._block_length_max // 2
        self._blocks = [ordered[start : start + half] for start in range(0, len(ordered), half)]
        self._last = [block[-1] for block in self._blocks]

    def _insert(self, key: str) -> None:
        position = min(bisect_left(self._last, key), len(self._blocks) - 1)
        block = self._blocks[position]
        insort(block, key)
        self._last[position] = block[-1]
        if len(block) > self._block_length_max:
            self._split(position)

    def _split(self, position: int) -> None:
        block = self._blocks[position]
        half = len(block) // 2
        self._blocks[position : position + 1] = [block[:half], block[half:]]
        self._last[position : position + 1] = [block[half - 1], block[-1]]


def end_of_prefix(prefix: str) -> str | None:
    """Returns the smallest text above everything with the prefix; None if there is none."""
    stem = prefix.rstrip("\U0010ffff")
    return stem[:-1] + chr(ord(stem[-1]) + 1) if stem else None
