"""Errors of stores. A store knows no kinds, so the API server converts these to API errors.

StoreError
├── KeyExists           create of an existing key
├── RevisionConflict    update or delete of a record that changed or was deleted
├── FenceMoved          another writer used the fence of the write, or changed what it was decided on; decide again
├── Compacted           the requested revision is no longer kept
│   └── Restored        the requested revision is from before a restore
├── FutureRevision      the requested revision does not exist yet
├── WatcherTooSlow      the watch fell behind the kept history; list again
├── BadPageToken        not a page token
├── BadStoreUrl         the URL names no store
├── ValueTooLarge       the value exceeds the store's size limit
├── StoreFull           no space; later writes may succeed. On etcd, this write may or may not have happened
├── StoreUnavailable    not reachable, locked or failing; a write may or may not have happened
│   ├── StoreInUse      locked by another process
│   └── StoreClosed     closed by its owner
└── CorruptStore        the stored data is inconsistent
    └── LostWrites      acknowledged writes are missing
"""

from __future__ import annotations

from dralloc.server.store.records import Record


class StoreError(Exception):
    """An error of a store."""


class KeyExists(StoreError):
    def __init__(self, key: str) -> None:
        super().__init__(f"key {key!r} exists")
        self.key = key


class RevisionConflict(StoreError):
    """The record is not at the expected revision; `current` is the existing record, or None."""

    def __init__(self, key: str, *, expected: int, current: Record | None) -> None:
        found = "does not exist" if current is None else f"is at revision {current.revision}"
        super().__init__(f"key {key!r} {found}, expected revision {expected}")
        self.key = key
        self.current = current


class FenceMoved(StoreError):
    def __init__(self, key: str) -> None:
        super().__init__(f"key {key!r} is not written: it was decided on what has changed since")


class Compacted(StoreError):
    """`compacted` is the oldest readable revision; 0 if unknown."""

    def __init__(self, revision: int, *, compacted: int) -> None:
        super().__init__(f"revision {revision} is compacted (oldest kept: {compacted or 'unknown'})")
        self.revision = revision
        self.compacted = compacted


class Restored(Compacted):
    """The store was restored from a backup, so the revision is one of another history."""

    def __init__(self, revision: int) -> None:
        super().__init__(revision, compacted=0)
        self.args = (f"revision {revision} is from before the store was restored from a backup",)


class FutureRevision(StoreError):
    def __init__(self, revision: int, *, current: int) -> None:
        super().__init__(f"revision {revision} does not exist yet (current: {current or 'unknown'})")
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


class LostWrites(CorruptStore):
    pass
