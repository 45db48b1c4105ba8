"""Garbage collection: deletes dependents with their owners, and the content of a namespace with it.

A view of the whole store queues the objects that may be due, and one task checks them. Checks are idempotent, so several servers can run
them on one store. Kubernetes does this in a controller; here it is a part of the server, so that it works without one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Final

from dralloc.api.meta_v1 import ObjectMeta, OwnerReference
from dralloc.api.registry import KINDS, NAMESPACE, Kind, find_kind
from dralloc.apiserver.documents.json_documents import Document
from dralloc.apiserver.objects.api_resources import key_of, name_of, namespace_of, prefix_of
from dralloc.apiserver.objects.deleter import Deleter
from dralloc.apiserver.objects.deletion_rules import (
    FOREGROUND_FINALIZER,
    ORPHAN_FINALIZER,
    DeleteOptions,
    Propagation,
)
from dralloc.apiserver.objects.namespaces import without_content_finalizer
from dralloc.apiserver.objects.record_lists import read_all
from dralloc.apiserver.objects.store_view import StoreView
from dralloc.apiserver.objects.stored_form import read_metadata
from dralloc.apiserver.objects.writer import Writer
from dralloc.primitives.errors import ApiError, Conflict, NotFound
from dralloc.store.errors import StoreClosed, StoreError
from dralloc.store.interface import Store
from dralloc.store.records import Record, StoreEvent

EVERYTHING: Final = "/registry/"
RETRY_S: Final = 1.0

_logger = logging.getLogger(__name__)


# Its key and its UID.
_OwnerId = tuple[str, str]


class _Owner(Enum):
    ALIVE = "alive"
    WAITING = "waiting for its dependents"
    GONE = "gone"


class GarbageCollector:
    """Deletes objects whose owners or namespaces are deleted."""

    def __init__(self, store: Store, writer: Writer, deleter: Deleter) -> None:
        self._store = store
        self._writer = writer
        self._deleter = deleter
        self._kinds = {prefix_of(kind): kind for kind in KINDS if kind.stored_as is None}
        # Keys of dependents by their owner, and owners by the dependent's key; ordered, so that runs are deterministic. Users write
        # references, so an owner is a key and a UID: a UID alone could be that of an object of another namespace.
        self._dependents: defaultdict[_OwnerId, dict[str, None]] = defaultdict(dict)
        self._owners: dict[str, tuple[_OwnerId, ...]] = {}
        self._terminating: set[str] = set()
        # The queue of keys to check, each once.
        self._due: dict[str, None] = {}
        self._work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._view: StoreView | None = None

    def start(self) -> None:
        self._view = StoreView(self._store, EVERYTHING, self)
        self._task = asyncio.create_task(self._run(), name="collect")

    async def stop(self) -> None:
        if self._view is not None:
            await self._view.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # --- store view ------------------------------------------------------------------------------------------

    def reset(self, records: Iterable[Record], revision: int) -> None:  # noqa: ARG002
        self._dependents.clear()
        self._owners.clear()
        self._terminating.clear()
        for record in records:
            self._learn(record.key, record)

    def apply(self, event: StoreEvent) -> None:
        self._learn(event.key, event.record)
        if event.record is None and event.previous is not None:
            self._note_removed(event.key, event.previous)

    def _learn(self, key: str, record: Record | None) -> None:
        """Record the owners of an object, and queue it if it may be due."""
        for owner in self._owners.pop(key, ()):
            self._dependents[owner].pop(key, None)
            if not self._dependents[owner]:
                del self._dependents[owner]
        if record is None:
            return
        # Avoids decoding: few objects have owners or are being deleted.
        has_owners, is_marked = b'"ownerReferences":' in record.value, b'"deletionTimestamp":' in record.value
        if not (has_owners or is_marked):
            return
        metadata = read_metadata(record.value)
        if metadata.owner_references:
            owners = self._owners[key] = tuple(self._owner_ids(metadata))
            for owner in owners:
                self._dependents[owner][key] = None
        if is_marked and key.startswith(prefix_of(NAMESPACE)):
            self._terminating.add(name_of(key))
        self._queue(key)

    def _note_removed(self, key: str, previous: Record) -> None:
        """Queue the dependents and owners of a removed object, and its namespace if that is being deleted."""
        if self._dependents or b'"ownerReferences":' in previous.value:
            metadata = read_metadata(previous.value)
            for dependent in self._dependents.get((key, metadata.uid), ()):
                self._queue(dependent)
            for owner, _ in self._owner_ids(metadata):
                self._queue(owner)
        if key.startswith(prefix_of(NAMESPACE)):
            self._terminating.discard(name_of(key))
        elif self._terminating:
            kind = self._kind_of(key)
            if kind is not None and (namespace := namespace_of(kind, key)) in self._terminating:
                self._queue(key_of(NAMESPACE, "", namespace))

    def _queue(self, key: str) -> None:
        self._due[key] = None
        self._work.set()

    # --- collecting -----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while self._due:
                key = next(iter(self._due))
                del self._due[key]
                try:
                    await self._collect(key)
                except StoreClosed:
                    return
                except NotFound:
                    continue
                except (ApiError, StoreError) as error:
                    _logger.warning("cannot collect %s, retrying: %s", key, error)
                    asyncio.get_running_loop().call_later(RETRY_S, self._queue, key)

    async def _collect(self, key: str) -> None:
        """Check one object, and do what is due."""
        kind, record = self._kind_of(key), await self._store.get(key)
        if kind is None or record is None:
            return
        metadata = read_metadata(record.value)
        if metadata.deletion_timestamp:
            if kind is NAMESPACE:
                await self._empty(metadata.name)
            if ORPHAN_FINALIZER in metadata.finalizers:
                await self._orphan(kind, record, metadata)
            elif FOREGROUND_FINALIZER in metadata.finalizers:
                await self._delete_dependents_first(kind, record, metadata)
        elif metadata.owner_references:
            await self._follow_owners(kind, record, metadata)

    async def _follow_owners(self, kind: Kind, record: Record, metadata: ObjectMeta) -> None:
        """Delete an object without owners left; otherwise remove references to owners that are gone."""
        states = [await self._state_of(reference, metadata.namespace) for reference in metadata.owner_references]
        if _Owner.ALIVE in states:
            gone = [
                reference.uid
                for reference, state in zip(metadata.owner_references, states, strict=True)
                if state is _Owner.GONE
            ]
            if gone:
                await self._edit(kind, record, lambda document: _without_owners(document, gone))
            return
        # An owner that waits for its dependents waits for theirs, too.
        waits = _Owner.WAITING in states and bool(self._dependents.get((record.key, metadata.uid)))
        propagation = Propagation.FOREGROUND if waits else Propagation.BACKGROUND
        await self._deleter.delete(kind, record.key, DeleteOptions(propagation=propagation, uid=metadata.uid))

    async def _orphan(self, kind: Kind, record: Record, metadata: ObjectMeta) -> None:
        """Remove the references of all dependents to the owner, then release the owner."""
        for key in list(self._dependents.get((record.key, metadata.uid), ())):
            dependent_kind, dependent = self._kind_of(key), await self._store.get(key)
            if dependent_kind is None or dependent is None:
                continue
            if not await self._edit(
                dependent_kind, dependent, lambda document: _without_owners(document, [metadata.uid])
            ):
                # The owner must stay until no dependent refers to it, or the garbage collector would delete that dependent.
                self._queue(record.key)
                return
        await self._edit(kind, record, lambda document: _without_finalizer(document, ORPHAN_FINALIZER))

    async def _delete_dependents_first(self, kind: Kind, record: Record, metadata: ObjectMeta) -> None:
        """Delete the dependents, and release the owner once none is left that blocks its deletion."""
        blocking, owner = False, (record.key, metadata.uid)
        for key in list(self._dependents.get(owner, ())):
            dependent = await self._store.get(key)
            dependent_kind = self._kind_of(key)
            if dependent is None or dependent_kind is None:
                continue
            theirs = read_metadata(dependent.value)
            blocking |= any(
                reference.block_owner_deletion and reference.uid == metadata.uid
                for reference in theirs.owner_references
                if self._key_of_owner(reference, theirs.namespace) == record.key
            )
            if not theirs.deletion_timestamp:
                await self._follow_owners(dependent_kind, dependent, theirs)
        if not blocking:
            await self._edit(kind, record, lambda document: _without_finalizer(document, FOREGROUND_FINALIZER))

    async def _empty(self, namespace: str) -> None:
        """Delete the content of a namespace; once it is empty, release the namespace."""
        is_empty = True
        for kind in self._kinds.values():
            if not kind.namespaced:
                continue
            records, _ = await read_all(self._store, prefix_of(kind, namespace))
            deleted = await self._deleter.delete_all(kind, records, DeleteOptions(propagation=Propagation.BACKGROUND))
            is_empty &= all(outcome.removed for outcome in deleted)
        if is_empty:
            await self._writer.edit(NAMESPACE, key_of(NAMESPACE, "", namespace), without_content_finalizer)

    # --- parts ----------------------------------------------------------------------------------------------

    async def _state_of(self, reference: OwnerReference, namespace: str) -> _Owner:
        key = self._key_of_owner(reference, namespace)
        if key is None:
            # Owners of kinds that are not served here count as existing.
            return _Owner.ALIVE
        record = await self._store.get(key)
        metadata = read_metadata(record.value) if record else None
        if metadata is None or metadata.uid != reference.uid:
            return _Owner.GONE
        if metadata.deletion_timestamp and FOREGROUND_FINALIZER in metadata.finalizers:
            return _Owner.WAITING
        return _Owner.ALIVE

    def _owner_ids(self, metadata: ObjectMeta) -> Iterator[_OwnerId]:
        """The owners of the kinds that are served here."""
        for reference in metadata.owner_references:
            if (key := self._key_of_owner(reference, metadata.namespace)) is not None:
                yield key, reference.uid

    def _key_of_owner(self, reference: OwnerReference, namespace: str) -> str | None:
        kind = find_kind(reference.api_version, reference.kind)
        if kind is None or (kind.namespaced and not namespace):
            return None
        return key_of(kind, namespace, reference.name)

    def _kind_of(self, key: str) -> Kind | None:
        return self._kinds.get("/".join(key.split("/", 3)[:3]) + "/")

    async def _edit(self, kind: Kind, record: Record, edit: Callable[[Document], Document]) -> bool:
        """Store the edited object; false if a concurrent write won, and the object is queued again."""
        try:
            await self._writer.edit(kind, record.key, edit, known=record)
        except Conflict:
            self._queue(record.key)
            return False
        return True


def _without_owners(document: Document, uids: Sequence[str]) -> Document:
    metadata = document["metadata"]
    kept = [reference for reference in metadata.get("ownerReferences") or [] if reference.get("uid") not in uids]
    return {**document, "metadata": {**metadata, "ownerReferences": kept}}


def _without_finalizer(document: Document, finalizer: str) -> Document:
    metadata = document["metadata"]
    kept = [name for name in metadata.get("finalizers") or [] if name != finalizer]
    return {**document, "metadata": {**metadata, "finalizers": kept}}
