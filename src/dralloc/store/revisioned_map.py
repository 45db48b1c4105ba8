"""The state machine of the memory and SQLite stores: all keys, now and at every kept revision.

Pure and synchronous. The newest records are in a dictionary; earlier states are reconstructed from the event log,
walking back from a key's newest record. So history costs nothing until it is read, and values are not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import msgspec

from dralloc.store.errors import Compacted, FutureRevision, KeyExists, RevisionConflict
from dralloc.store.event_log import EventLog
from dralloc.store.interface import FIRST_REVISION, HistoryLimits, Page, PageToken
from dralloc.store.ordered_keys import OrderedKeys, end_of_prefix
from dralloc.store.records import Record, StoreEvent

ABSENT = 0
"""The expected revision of a key that must not exist."""


class ProposedWrite(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A requested write: a new value, or None to delete, for a key that must be at a revision.

    `unchanged` are the records of other keys that it was decided on. `on_queued` is called if it waits to be stored. `follows` are the numbers
    of the queues that it follows.
    """

    key: str
    value: bytes | None
    expected_revision: int
    unchanged: Sequence[Record] = ()
    on_queued: Callable[[int], None] | None = None
    follows: Collection[int] = ()


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
