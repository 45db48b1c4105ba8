"""Promises over several objects (quotas, the capacity of devices) that a write must not break.

A gatekeeper knows what every stored object counts for, and what it has promised to writes under way. A promise
counts at once for everybody, so that two writes that fit one by one, but not together, cannot both pass; it is
given back if the write fails, and turns into what is stored when it succeeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from dralloc.api.meta_v1 import ApiObject
from dralloc.store.records import Record, StoreEvent

T = TypeVar("T")


class Hold(Protocol):
    """What one write was promised."""

    def keep(self, revision: int) -> None:
        """The write is stored, at this revision."""

    def give_back(self) -> None:
        """Nothing was stored."""


class WriteGuard(Protocol):
    """Refuses writes that would break a promise."""

    async def reserve(self, key: str, new: ApiObject, old: ApiObject | None) -> Hold | None:
        """Promise the write what it needs, or refuse it. `None`: it needs nothing."""


class Holds:
    """All that one write was promised: given back unless the write was stored."""

    def __init__(self, promises: Sequence[Hold]) -> None:
        self._promises = promises

    def keep(self, revision: int) -> None:
        for promise in self._promises:
            promise.keep(revision)
        self._promises = ()

    def give_back(self) -> None:
        for promise in self._promises:
            promise.give_back()
        self._promises = ()

    def __enter__(self) -> Holds:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()


async def hold_all(gatekeepers: Sequence[WriteGuard], key: str, new: ApiObject, old: ApiObject | None) -> Holds:
    """Ask every gatekeeper; if one refuses, what the others promised is given back."""
    promises: list[Hold] = []
    try:
        for gatekeeper in gatekeepers:
            promise = await gatekeeper.reserve(key, new, old)
            if promise is not None:
                promises.append(promise)
    except BaseException:
        Holds(promises).give_back()
        raise
    return Holds(promises)


class GuardLedger(Generic[T]):
    """What stored objects count for, and what is promised: a follower of the store (see `following`).

    `read` says what a stored object counts for, `None` if for nothing; `add` is told of everything that begins
    (1) or ceases (-1) to count, so that sums can be kept.
    """

    def __init__(self, read: Callable[[Record], T | None], add: Callable[[T, int], None]) -> None:
        self._read = read
        self._add = add
        # By key, with the revision at which it was so.
        self._stored: dict[str, tuple[int, T]] = {}
        self._promised: dict[str, list[T]] = {}
        # The store told us of everything up to this revision; of later writes we know from their makers.
        self._told = 0

    def keys_where(self, matches: Callable[[T], bool]) -> Iterable[str]:
        """Keys of objects that count, or will if they are stored, for something that matches."""
        yield from (key for key, (_, value) in self._stored.items() if matches(value))
        yield from (key for key, values in self._promised.items() if any(map(matches, values)))

    def reset(self, records: Iterable[Record], revision: int) -> None:
        """Start over with what was stored at a revision."""
        listed = {record.key: record for record in records}
        for key, (known_at, _) in list(self._stored.items()):
            if key not in listed and known_at <= revision:
                self._set(key, revision, None)
        for record in listed.values():
            self._learn(record.key, record.revision, record)
        self._told = revision

    def apply(self, event: StoreEvent) -> None:
        self._learn(event.key, event.revision, event.record)
        self._told = event.revision

    def promise(self, key: str, value: T) -> Hold:
        self._promised.setdefault(key, []).append(value)
        self._add(value, 1)
        return _LedgerHold(self, key, value)

    def settle(self, key: str, value: T, revision: int | None) -> None:
        """End a promise; with a revision, the value is stored from there on."""
        promised = self._promised[key]
        promised.remove(value)
        if not promised:
            del self._promised[key]
        if revision is not None and revision > self._told and self._is_news(key, revision):
            # What was promised counts already.
            self._set(key, 0, None)
            self._stored[key] = (revision, value)
        else:
            self._add(value, -1)

    def _learn(self, key: str, revision: int, record: Record | None) -> None:
        if self._is_news(key, revision):
            self._set(key, revision, self._read(record) if record is not None else None)

    def _is_news(self, key: str, revision: int) -> bool:
        return key not in self._stored or self._stored[key][0] < revision

    def _set(self, key: str, revision: int, value: T | None) -> None:
        _, before = self._stored.pop(key, (0, None))
        if before is not None:
            self._add(before, -1)
        if value is not None:
            self._stored[key] = (revision, value)
            self._add(value, 1)


class _LedgerHold(Generic[T]):
    def __init__(self, ledger: GuardLedger[T], key: str, value: T) -> None:
        self._ledger, self._key, self._value = ledger, key, value

    def keep(self, revision: int) -> None:
        self._ledger.settle(self._key, self._value, revision)

    def give_back(self) -> None:
        self._ledger.settle(self._key, self._value, None)
