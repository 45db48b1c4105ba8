"""The values in a store: the record of a key, and the event of a change."""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The value of a key, and the revision that wrote it."""

    key: str
    value: bytes
    revision: int


class StoreEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One change of one key: created (no `previous`), updated, or deleted (no `record`)."""

    revision: int
    key: str
    record: Record | None
    previous: Record | None
