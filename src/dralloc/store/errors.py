"""What a store refuses, and why. It knows no kinds, so the API server words these for its users.

StoreError
├── KeyExists           create of a key that is there
├── RevisionConflict    update or delete of a record that changed, or is gone
├── Compacted           the revision asked for is no longer kept
├── FutureRevision      the revision asked for is not reached yet
├── WatcherTooSlow      the watch fell behind what is kept; read the state again
├── BadPageToken        the text is no page token
├── BadStoreUrl         the address names no store
├── ValueTooLarge       the store takes no value of that size
├── StoreFull           no room; nothing was written, later writes may succeed
├── StoreUnavailable    not reachable, locked or failing; a write may or may not have happened
│   ├── StoreInUse      another process has it to itself
│   └── StoreClosed     closed by its owner
└── CorruptStore        what is stored contradicts itself
"""

from __future__ import annotations

from dralloc.store.records import Record


class StoreError(Exception):
    """A refusal or failure of a store."""


class KeyExists(StoreError):
    def __init__(self, key: str) -> None:
        super().__init__(f"key {key!r} exists")
        self.key = key


class RevisionConflict(StoreError):
    """The record is not at the revision that the caller expected; `current` is what is there, None if nothing is."""

    def __init__(self, key: str, *, expected: int, current: Record | None) -> None:
        found = "does not exist" if current is None else f"is at revision {current.revision}"
        super().__init__(f"key {key!r} {found}, expected revision {expected}")
        self.key = key
        self.current = current


class Compacted(StoreError):
    """`compacted` is the oldest revision that can still be read; 0 if it is not known."""

    def __init__(self, revision: int, *, compacted: int) -> None:
        super().__init__(f"revision {revision} is compacted away (oldest kept: {compacted or 'unknown'})")
        self.revision = revision
        self.compacted = compacted


class FutureRevision(StoreError):
    def __init__(self, revision: int, *, current: int) -> None:
        super().__init__(f"revision {revision} is not reached yet (current: {current or 'unknown'})")
        self.revision = revision
        self.current = current


class WatcherTooSlow(StoreError):
    pass


class BadPageToken(StoreError):
    pass


class BadStoreUrl(StoreError):
    pass


class ValueTooLarge(StoreError):
    pass


class StoreFull(StoreError):
    pass


class StoreUnavailable(StoreError):
    pass


class StoreInUse(StoreUnavailable):
    pass


class StoreClosed(StoreUnavailable):
    def __init__(self) -> None:
        super().__init__("the store is closed")


class CorruptStore(StoreError):
    pass
