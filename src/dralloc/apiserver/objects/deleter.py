"""Deleting objects: one, or all that a selector means. What deleting means is decided in `deletion`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from dralloc.api.registry import PRIORITY_CLASS, Kind
from dralloc.api.scheduling_v1 import SYSTEM_CLASSES
from dralloc.apiserver.http.statuses import conflict, forbidden, not_found
from dralloc.apiserver.objects.api_resources import ResourceTable, name_of
from dralloc.apiserver.objects.deletion_rules import AlreadyMarked, DeleteOptions, Removed, decide_deletion
from dralloc.apiserver.objects.stored_form import document_to_stored, read_metadata
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import NotFound
from dralloc.store.errors import RevisionConflict
from dralloc.store.interface import Store
from dralloc.store.records import Record

DELETE_ATTEMPTS_MAX: Final = 20
# Deletions under way at a time, when many are asked for at once.
TOGETHER: Final = 100


@dataclass(frozen=True, slots=True)
class Deleted:
    """The object as it was when it went, or as it is while something still holds it."""

    stored: bytes
    revision: int
    gone: bool
    uid: str


class Deleter:
    """Deletes objects of all kinds."""

    def __init__(self, store: Store, clock: Clock, resources: ResourceTable) -> None:
        self._store = store
        self._clock = clock
        self._resources = resources

    async def delete(self, kind: Kind, key: str, options: DeleteOptions) -> Deleted:
        """Delete the object that is stored under the key, or begin to."""
        if kind is PRIORITY_CLASS and name_of(key) in SYSTEM_CLASSES:
            raise forbidden(kind.group, kind.plural, name_of(key), "the system needs this class")
        record = await self._store.get(key)
        for _ in range(DELETE_ATTEMPTS_MAX):
            if record is None:
                raise not_found(kind.group, kind.plural, name_of(key))
            try:
                return await self._delete_once(kind, record, options)
            except RevisionConflict as lost:
                record = lost.current
        raise conflict(kind.group, kind.plural, name_of(key))

    async def _delete_once(self, kind: Kind, record: Record, options: DeleteOptions) -> Deleted:
        document = self._resources.hub(kind).presentation.document(record.value, record.revision)
        decision = decide_deletion(kind.kind, document, options, self._clock.now())
        gone = isinstance(decision, Removed)
        stored = record.value if decision.document == document else document_to_stored(decision.document)
        if options.dry_run or isinstance(decision, AlreadyMarked):
            revision = record.revision
        elif gone:
            revision = await self._store.delete(record.key, expected_revision=record.revision)
        else:
            revision = (await self._store.update(record.key, stored, expected_revision=record.revision)).revision
        return Deleted(stored, revision, gone, document["metadata"].get("uid", ""))

    async def delete_all(self, kind: Kind, records: Iterable[Record], options: DeleteOptions) -> list[Deleted]:
        """Delete these objects, unless they have been replaced by others of their names meanwhile."""
        pending = list(records)
        deleted: list[Deleted] = []
        while pending:
            batch, pending = pending[:TOGETHER], pending[TOGETHER:]
            outcomes = await asyncio.gather(*(self._delete_if_there(kind, record, options) for record in batch))
            deleted.extend(outcome for outcome in outcomes if outcome is not None)
        return deleted

    async def _delete_if_there(self, kind: Kind, record: Record, options: DeleteOptions) -> Deleted | None:
        this_one = options if options.uid else replace(options, uid=read_metadata(record.value).uid)
        try:
            return await self.delete(kind, record.key, this_one)
        except NotFound:
            return None
