"""Garbage collection: deletes dependents with their owners, and the content of a namespace with it.

A view of the whole store queues the objects that may be due, and one task checks them, several at a time: each deletion waits for the
disk. Checks are idempotent, so several servers can run them on one store. Kubernetes does this in a controller; here it is a part of
the server, so that it works without one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple, Self

from dralloc.kube.kind import Kind
from dralloc.kube.meta_v1 import ObjectMeta, OwnerReference
from dralloc.kube.registry import KINDS, NAMESPACE, find_kind
from dralloc.primitives.errors import ApiError, Conflict, NotFound
from dralloc.server.documents.json_documents import Document
from dralloc.server.read.api_resources import key_of, name_of, namespace_of, prefix_of
from dralloc.server.read.background_task import BackgroundTask
from dralloc.server.read.record_lists import read_all
from dralloc.server.read.store_view import StoreView
from dralloc.server.read.stored_form import read_metadata
from dralloc.server.store.errors import StoreClosed, StoreError
from dralloc.server.store.interface import Store
from dralloc.server.store.records import Record, StoreEvent
from dralloc.server.write.deleter import Deleter
from dralloc.server.write.deletion_rules import (
    FOREGROUND_FINALIZER,
    ORPHAN_FINALIZER,
    DeleteOptions,
    Propagation,
)
from dralloc.server.write.namespaces import without_content_finalizer
from dralloc.server.write.writer import Writer

EVERYTHING: Final = "/registry/"
RETRY_S: Final = 1.0
# Objects that are checked at a time: so few that requests do not notice.
CONCURRENT_MAX: Final = 16

_logger = logging.getLogger(__name__)


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
        # By namespace that is being deleted: the objects that are not removed yet.
        self._content: dict[str, set[str]] = {}
        # The queue of keys to check, each once.
        self._due: dict[str, None] = {}
        self._work = asyncio.Event()
        self._task = BackgroundTask(self._run, name="collect")
        self._view = StoreView(store, (EVERYTHING,), lambda: _OwnerIndex(self))

    def start(self) -> None:
        self._view.start()
        self._task.start()

    async def stop(self) -> None:
        await self._view.stop()
        await self._task.stop()

    # --- told by the index ----------------------------------------------------------------------------------

    def start_over(self, due: Mapping[str, None]) -> None:
        """Queue what an index finds due that replaces another one. Namespaces that are being deleted are among it: what was removed
        from them in between was not noted.
        """
        self._content.clear()
        self.queue(due)

    def note_removed(self, key: str) -> None:
        """Queue the namespace of a removed object if it is being deleted and is empty now."""
        if key.startswith(prefix_of(NAMESPACE)):
            self._content.pop(name_of(key), None)
        elif self._content:
            kind = self._kind_of(key)
            namespace = namespace_of(kind, key) if kind is not None else ""
            content = self._content.get(namespace)
            if content is not None:
                content.discard(key)
                if not content:
                    self.queue((key_of(NAMESPACE, "", namespace),))

    def queue(self, keys: Iterable[str]) -> None:
        self._due.update(dict.fromkeys(keys))
        if self._due:
            self._work.set()

    # --- collecting -----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while self._due:
                due, self._due = iter(self._due), {}
                while keys := tuple(islice(due, CONCURRENT_MAX)):
                    try:
                        await asyncio.gather(*map(self._check, keys))
                    except StoreClosed:
                        return

    async def _check(self, key: str) -> None:
        try:
            await self._collect(key)
        except NotFound:
            return
        except Conflict:
            # It has changed since it was read.
            asyncio.get_running_loop().call_later(RETRY_S, self.queue, (key,))
        except StoreClosed:
            raise
        except (ApiError, StoreError) as error:
            _logger.warning("cannot collect %s, retrying: %s", key, error)
            asyncio.get_running_loop().call_later(RETRY_S, self.queue, (key,))

    async def _collect(self, key: str) -> None:
        """Check one object, and do what is due."""
        kind, record = self._kind_of(key), await self._store.get(key)
        if kind is None or record is None:
            return
        metadata = read_metadata(record.value)
        if metadata.deletion_timestamp:
            if kind is NAMESPACE:
                await self._empty(record, metadata)
            if ORPHAN_FINALIZER in metadata.finalizers:
                await self._orphan(kind, record, metadata)
            elif FOREGROUND_FINALIZER in metadata.finalizers:
                await self._delete_dependents_first(kind, record, metadata)
        elif metadata.owner_references:
            await self._follow_owners(kind, record, metadata)

    async def _follow_owners(self, kind: Kind, record: Record, metadata: ObjectMeta) -> None:
        """Delete an object without owners left; otherwise remove references to owners that are gone or wait for it."""
        states = [await self._state_of(reference, metadata.namespace) for reference in metadata.owner_references]
        if _Owner.ALIVE in states:
            gone = {
                reference.uid
                for reference, state in zip(metadata.owner_references, states, strict=True)
                if state is not _Owner.ALIVE
            }
            if gone:
                await self._edit(kind, record, lambda document: _without_owners(document, gone))
            return
        # An owner that waits for its dependents waits for theirs, too.
        waits = _Owner.WAITING in states and bool(self._view.index.dependents.of(OwnerId(record.key, metadata.uid)))
        propagation = Propagation.FOREGROUND if waits else Propagation.BACKGROUND
        # Of this version: a restored backup may have brought the owners back.
        version = str(record.revision)
        options = DeleteOptions(propagation=propagation, uid=metadata.uid, resource_version=version)
        await self._deleter.delete(kind, record.key, options)

    async def _orphan(self, kind: Kind, record: Record, metadata: ObjectMeta) -> None:
        """Remove the references of all dependents to the owner, then release the owner."""
        await self._reach(record)
        for key in list(self._view.index.dependents.of(OwnerId(record.key, metadata.uid))):
            dependent_kind, dependent = self._kind_of(key), await self._store.get(key)
            if dependent_kind is None or dependent is None:
                continue
            if not await self._edit(
                dependent_kind, dependent, lambda document: _without_owners(document, {metadata.uid})
            ):
                # The owner must stay until no dependent refers to it, or the garbage collector would delete that dependent.
                self.queue((record.key,))
                return
        await self._edit(kind, record, lambda document: _without_finalizer(document, ORPHAN_FINALIZER))

    async def _delete_dependents_first(self, kind: Kind, record: Record, metadata: ObjectMeta) -> None:
        """Have the dependents deleted, and release the owner once none is left that blocks its deletion."""
        await self._reach(record)
        owner = OwnerId(record.key, metadata.uid)
        self.queue(self._view.index.dependents.of(owner))
        if not self._view.index.dependents.is_blocked(owner):
            await self._edit(kind, record, lambda document: _without_finalizer(document, FOREGROUND_FINALIZER))

    async def _empty(self, record: Record, metadata: ObjectMeta) -> None:
        """Delete the content of a namespace; once it is empty, release the namespace."""
        namespace, left = metadata.name, set[str]()
        for kind in self._kinds.values():
            if not kind.namespaced:
                continue
            records, _ = await read_all(self._store, prefix_of(kind, namespace))
            if records and not await self._is_stored(record.key, metadata.uid):
                # Another server has removed the namespace, and these may be in the next one of its name.
                return
            deleted = await self._deleter.delete_all(kind, records, DeleteOptions(propagation=Propagation.BACKGROUND))
            if not all(outcome.removed for outcome in deleted):
                left.update(record.key for record in records)
        if not left:
            await self._edit(NAMESPACE, record, without_content_finalizer)
            return
        # From here on, each removal is noted. What was removed before is found missing.
        self._content[namespace] = left
        for key in tuple(left):
            if await self._store.get(key) is None:
                left.discard(key)
        if not left:
            self.queue((key_of(NAMESPACE, "", namespace),))

    # --- parts ----------------------------------------------------------------------------------------------

    async def _state_of(self, reference: OwnerReference, namespace: str) -> _Owner:
        prefix = _prefix_of_owners(reference.api_version, reference.kind, namespace)
        if prefix is None:
            # Owners of kinds that are not served here count as existing.
            return _Owner.ALIVE
        record = await self._store.get(prefix + reference.name)
        metadata = read_metadata(record.value) if record else None
        if metadata is None or metadata.uid != reference.uid:
            return _Owner.GONE
        if metadata.deletion_timestamp and FOREGROUND_FINALIZER in metadata.finalizers:
            return _Owner.WAITING
        return _Owner.ALIVE

    async def _is_stored(self, key: str, uid: str) -> bool:
        record = await self._store.get(key)
        return record is not None and read_metadata(record.value).uid == uid

    async def _reach(self, owner: Record) -> None:
        """Wait until the view, which may be behind the record, has all dependents from before the owner's deletion."""
        await self._view.ready(owner.revision)

    def _kind_of(self, key: str) -> Kind | None:
        return self._kinds.get("/".join(key.split("/", 3)[:3]) + "/")

    async def _edit(self, kind: Kind, record: Record, edit: Callable[[Document], Document]) -> bool:
        """Store the edited object; false if a concurrent write won, and the object is queued again."""
        try:
            await self._deleter.edit(kind, record.key, edit, known=record)
        except Conflict:
            self.queue((record.key,))
            return False
        return True


class _OwnerIndex:
    """The owners of stored objects. It tells which objects may be due, and which are removed."""

    def __init__(self, collector: GarbageCollector) -> None:
        self.dependents = DependentIndex()
        self._collector = collector
        # What may be due as soon as all owners are known; `None` from then on.
        self._due_first: dict[str, None] | None = {}

    def learn(self, record: Record) -> None:
        self._put(record.key, record)

    def apply(self, event: StoreEvent) -> None:
        self._put(event.key, event.record)
        if event.record is None and event.previous is not None:
            if self.dependents:
                removed = OwnerId(event.key, read_metadata(event.previous.value).uid)
                self._note_due(self.dependents.of(removed))
            self._collector.note_removed(event.key)

    def replace(self, earlier: Self, revision: int) -> None:  # noqa: ARG002
        due, self._due_first = self._due_first or {}, None
        self._collector.start_over(due)

    def _put(self, key: str, record: Record | None) -> None:
        """Set the owners of an object. What may be due: the object, and owners that waited for it."""
        owners = _owners_of(record) if record is not None else None
        if waited_for := self.dependents.put(key, owners or ()):
            self._note_due(owner.key for owner in waited_for)
        if owners is not None:
            self._note_due((key,))

    def _note_due(self, keys: Iterable[str]) -> None:
        if self._due_first is None:
            self._collector.queue(keys)
        else:
            self._due_first.update(dict.fromkeys(keys))


def _owners_of(record: Record) -> tuple[tuple[OwnerId, bool], ...] | None:
    """The owners of the kinds that are served here, each with whether the object blocks its deletion; `None` if nothing can be due:
    the object has no owners, and is not being deleted.
    """
    # Avoids decoding: few objects have owners or are being deleted.
    if b'"ownerReferences":' not in record.value and b'"deletionTimestamp":' not in record.value:
        return None
    metadata = read_metadata(record.value)
    return tuple(
        (OwnerId(prefix + reference.name, reference.uid), bool(reference.block_owner_deletion))
        for reference in metadata.owner_references
        if (prefix := _prefix_of_owners(reference.api_version, reference.kind, metadata.namespace)) is not None
    )


# An object may have thousands of owners, most often of one kind.
@lru_cache(maxsize=1024)
def _prefix_of_owners(api_version: str, kind: str, namespace: str) -> str | None:
    """What the keys of owners begin with; `None` if no such owner can be served here."""
    found = find_kind(api_version, kind)
    return None if found is None or (found.namespaced and not namespace) else prefix_of(found, namespace)


def _without_owners(document: Document, uids: Collection[str]) -> Document:
    metadata = document["metadata"]
    kept = [reference for reference in metadata.get("ownerReferences") or [] if reference.get("uid") not in uids]
    return {**document, "metadata": {**metadata, "ownerReferences": kept}}


def _without_finalizer(document: Document, finalizer: str) -> Document:
    metadata = document["metadata"]
    kept = [name for name in metadata.get("finalizers") or [] if name != finalizer]
    return {**document, "metadata": {**metadata, "finalizers": kept}}


# --- Dependents -----------------------------------------------------------------------------------------------------
# Which objects depend on which owners, and which owners wait for them. Each change costs as much as the object has
# owners.


class OwnerId(NamedTuple):
    """Users write references, so a UID alone proves nothing: it could be that of an object of another namespace."""

    key: str
    uid: str


class DependentIndex:
    """Dependents by owner, and owners by dependent."""

    def __init__(self) -> None:
        # The keys of an owner's dependents, ordered so that runs are deterministic, each with whether it blocks the owner's deletion.
        self._of_owner: dict[OwnerId, dict[str, bool]] = {}
        self._of_dependent: dict[str, tuple[OwnerId, ...]] = {}
        # How many dependents block the owner's deletion, where there are any.
        self._blocking: dict[OwnerId, int] = {}

    def __bool__(self) -> bool:
        return bool(self._of_owner)

    def put(self, key: str, owners: Iterable[tuple[OwnerId, bool]]) -> list[OwnerId]:
        """Set the owners of an object, each with whether the object blocks its deletion. Returns the owners that nothing blocks since."""
        before = self._of_dependent.pop(key, ())
        blocked = [owner for owner in before if owner in self._blocking] if self._blocking else []
        for owner in before:
            self._remove(key, owner)
        entries = dict(owners)
        for owner, blocks in entries.items():
            self._of_owner.setdefault(owner, {})[key] = blocks
            if blocks:
                self._blocking[owner] = self._blocking.get(owner, 0) + 1
        if entries:
            self._of_dependent[key] = tuple(entries)
        return [owner for owner in blocked if owner not in self._blocking]

    def of(self, owner: OwnerId) -> Collection[str]:
        """The keys of the owner's dependents: not a copy, because there may be thousands."""
        return self._of_owner.get(owner, {}).keys()

    def is_blocked(self, owner: OwnerId) -> bool:
        return owner in self._blocking

    def _remove(self, key: str, owner: OwnerId) -> None:
        keys = self._of_owner[owner]
        if keys.pop(key):
            self._blocking[owner] -= 1
            if not self._blocking[owner]:
                del self._blocking[owner]
        if not keys:
            del self._of_owner[owner]
