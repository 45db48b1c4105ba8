"""Write guards: limits over several objects (quotas, device capacity) that no write may exceed.

A guard counts stored objects and holds for writes in progress. A hold counts at once, so that two writes that fit alone but not
together cannot both pass. It is released if the write fails, and becomes the stored object if it succeeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from dralloc.api.meta_v1 import ApiObject
from dralloc.store.records import Record, StoreEvent

T = TypeVar("T")


class Hold(Protocol):
    """What a guard counts for one write in progress."""

    def keep(self, revision: int) -> None:
        """Count the write as stored at this revision."""

    def release(self) -> None:
        """Stop to count: nothing was stored."""


class WriteGuard(Protocol):
    """Refuses writes that would exceed a limit."""

    async def hold(self, key: str, new: ApiObject, old: ApiObject | None) -> Hold | None:
        """Count the write, or refuse it. `None` if it counts for nothing."""


class Holds:
    """The holds of one write, released at the end of the block unless the write was stored."""

    def __init__(self, holds: Sequence[Hold]) -> None:
        self._holds = holds

    def keep(self, revision: int) -> None:
        for hold in self._holds:
            hold.keep(revision)
        self._holds = ()

    def release(self) -> None:
        for hold in self._holds:
            hold.release()
        self._holds = ()

    def __enter__(self) -> Holds:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


async def hold_all(guards: Sequence[WriteGuard], key: str, new: ApiObject, old: ApiObject | None) -> Holds:
    """Ask every guard; if one refuses, the holds of the others are released."""
    holds: list[Hold] = []
    try:
        for guard in guards:
            hold = await guard.hold(key, new, old)
            if hold is not None:
                holds.append(hold)
    except BaseException:
        Holds(holds).release()
        raise
    return Holds(holds)


class GuardLedger(Generic[T]):
    """The counted values of stored objects and of holds: a derived index (see `store_view`).

    `read` returns what a stored object counts for, `None` for nothing. `add` is called with each value that starts (1) or stops (-1)
    to count, and keeps the sums.
    """

    def __init__(self, read: Callable[[Record], T | None], add: Callable[[T, int], None]) -> None:
        self._read = read
        self._add = add
        # By key, with the revision that it was stored at.
        self._stored: dict[str, tuple[int, T]] = {}
        self._held: dict[str, list[T]] = {}
        # The view has delivered every change up to this revision; later writes are known from their holds.
        self._delivered = 0

    def keys_where(self, matches: Callable[[T], bool]) -> Iterable[str]:
        """Keys of stored objects and of holds whose value matches."""
        yield from (key for key, (_, value) in self._stored.items() if matches(value))
        yield from (key for key, values in self._held.items() if any(map(matches, values)))

    def reset(self, records: Iterable[Record], revision: int) -> None:
        """Start over with the records at a revision."""
        listed = {record.key: record for record in records}
        for key, (known_at, _) in list(self._stored.items()):
            if key not in listed and known_at <= revision:
                self._set(key, revision, None)
        for record in listed.values():
            self._learn(record.key, record.revision, record)
        self._delivered = revision

    def apply(self, event: StoreEvent) -> None:
        self._learn(event.key, event.revision, event.record)
        self._delivered = event.revision

    def hold(self, key: str, value: T) -> Hold:
        self._held.setdefault(key, []).append(value)
        self._add(value, 1)
        return _LedgerHold(self, key, value)

    def settle(self, key: str, value: T, revision: int | None) -> None:
        """End a hold; with a revision, its value is stored at that revision."""
        held = self._held[key]
        held.remove(value)
        if not held:
            del self._held[key]
        if revision is not None and revision > self._delivered and self._is_newer(key, revision):
            # The hold's value counts already.
            self._set(key, 0, None)
            self._stored[key] = (revision, value)
        else:
            self._add(value, -1)

    def _learn(self, key: str, revision: int, record: Record | None) -> None:
        if self._is_newer(key, revision):
            self._set(key, revision, self._read(record) if record is not None else None)

    def _is_newer(self, key: str, revision: int) -> bool:
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

    def release(self) -> None:
        self._ledger.settle(self._key, self._value, None)
