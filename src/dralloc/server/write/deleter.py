"""Deletes one object, or all objects that a selector matches. `deletion_rules` decides what deletion means for an object."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import Final

from dralloc.kube.kind import Kind
from dralloc.kube.pod_claims import CLAIM_FINALIZER
from dralloc.kube.registry import PRIORITY_CLASS
from dralloc.kube.scheduling_v1 import SYSTEM_CLASSES
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import NotFound
from dralloc.server.documents.json_documents import Document
from dralloc.server.http.statuses import forbidden
from dralloc.server.read.api_resources import name_of
from dralloc.server.read.stored_form import read_metadata
from dralloc.server.store.records import Record
from dralloc.server.write.claim_use_guard import ClaimInUse
from dralloc.server.write.deletion_rules import DeleteOptions, Removed, decide_deletion
from dralloc.server.write.writer import Edit, Writer, Written

# Concurrent deletions of one request.
BATCH_SIZE: Final = 100


class Deleter:
    """Deletes objects of all kinds."""

    def __init__(self, writer: Writer, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock

    async def delete(self, kind: Kind, key: str, options: DeleteOptions) -> Written:
        """Remove the object that is stored under the key, or mark it as being deleted while something holds it."""
        if kind is PRIORITY_CLASS and name_of(key) in SYSTEM_CLASSES:
            raise forbidden(
                kind.group, kind.plural, name_of(key), "this is a system priority class and cannot be deleted"
            )

        def mark_or_remove(document: Document) -> Document | Removed:
            decision = decide_deletion(kind.kind, document, options, self._clock.now())
            return decision if isinstance(decision, Removed) else decision.document

        return await self.edit(kind, key, mark_or_remove, dry_run=options.dry_run)

    async def edit(
        self, kind: Kind, key: str, edit: Edit, *, known: Record | None = None, dry_run: bool = False
    ) -> Written:
        """An edit of the `Writer` that may remove the object."""
        try:
            return await self._writer.edit(kind, key, edit, known=known, dry_run=dry_run)
        except ClaimInUse:
            # Its finalizer is missing: it was removed, or the claim was allocated by hand. The deletion waits for the pods all the same.
            return await self._writer.edit(kind, key, lambda claim: edit(_protected(claim)), known=known)

    async def delete_all(self, kind: Kind, records: Iterable[Record], options: DeleteOptions) -> list[Written]:
        """Delete these objects, except those that were replaced by others of the same name."""
        deleted: list[Written] = []
        left = iter(records)
        while batch := tuple(islice(left, BATCH_SIZE)):
            outcomes = await asyncio.gather(*(self._delete_if_present(kind, record, options) for record in batch))
            deleted.extend(outcome for outcome in outcomes if outcome is not None)
            await asyncio.sleep(0)
        return deleted

    async def _delete_if_present(self, kind: Kind, record: Record, options: DeleteOptions) -> Written | None:
        of_record = options if options.uid else replace(options, uid=read_metadata(record.value).uid)
        try:
            return await self.delete(kind, record.key, of_record)
        except NotFound:
            return None


def _protected(claim: Document) -> Document:
    """The claim with its finalizer; other finalizers may have come since it was found in use."""
    metadata = claim["metadata"]
    finalizers = metadata.get("finalizers") or []
    if CLAIM_FINALIZER in finalizers:
        return claim
    return {**claim, "metadata": {**metadata, "finalizers": [*finalizers, CLAIM_FINALIZER]}}
