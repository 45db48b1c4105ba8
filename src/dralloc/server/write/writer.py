"""The one writer: every create, change and removal of a stored object goes through it.

A client's write is admitted (`kube.admission`), recorded in `managedFields`, checked by the write guards of its kind, and stored by
compare-and-swap. The server's own changes (binding, deletion, finalizers, owner references) are edits of the stored document.
A write that loses a race is repeated on the newer record, unless the client stated the revision that it changes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from dralloc.kube.kind import Kind
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.registry import POD, RESOURCE_QUOTA
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.kube.timestamps import print_timestamp
from dralloc.kube.unstructured_object import UnstructuredObject
from dralloc.server.access.node_restriction import CREATE
from dralloc.server.documents.json_documents import Document
from dralloc.server.http.access_requests import refusal
from dralloc.server.http.statuses import already_exists, conflict, name_not_generated, not_found
from dralloc.server.read.api_resources import key_of, name_of
from dralloc.server.read.stored_form import (
    document_to_stored,
    from_stored,
    typed_document,
)
from dralloc.server.store.errors import FenceMoved, KeyExists, RevisionConflict
from dralloc.server.store.interface import Fence, Store
from dralloc.server.store.records import Record
from dralloc.server.write.deletion_rules import Removed, is_released
from dralloc.server.write.namespaces import Namespaces, labels_of
from dralloc.server.write.object_admission import AdmittedObject, ObjectAdmission, ObjectChange
from dralloc.server.write.pod_priorities import PodPriorities
from dralloc.server.write.quota_guard import QuotaGuard
from dralloc.server.write.request_bodies import SentObject, WriteTarget
from dralloc.server.write.write_guards import Hold, Holds, WriteGuard, hold_all

NAME_ATTEMPTS_MAX: Final = 8
ATTEMPTS_MAX: Final = 20


class Written(Struct, frozen=True, gc=False):
    """The outcome of a write. The revision is 0 for a dry run of a create; a removed object is as it was last."""

    stored: bytes
    revision: int
    created: bool = False
    removed: bool = False
    warnings: tuple[str, ...] = ()


class WriteCheck(Protocol):
    """Refuses writes that their user has no right to make, before anything says whether the object is valid."""

    async def check(self, target: WriteTarget, sent: SentObject, old: ApiObject | None) -> None:
        """Raises ApiError. `old` has its revision."""


Edit = Callable[[Document], Document | Removed]
EditGuard = Callable[[str, bytes], Awaitable[Hold | None]]


@dataclass(slots=True)
class Writer:
    """Writes objects of all kinds; the only user of the store's write methods."""

    store: Store
    admission: ObjectAdmission
    namespaces: Namespaces
    priorities: PodPriorities
    # By kind.
    guards: Mapping[str, Sequence[WriteGuard]] = field(default_factory=dict)
    checks: Mapping[str, WriteCheck] = field(default_factory=dict)
    quotas: Mapping[str, QuotaGuard] = field(default_factory=dict)
    # Asked by every edit that removes an object.
    removals: Mapping[str, EditGuard] = field(default_factory=dict)

    async def create(self, target: WriteTarget, sent: SentObject, *, settles_owners: bool = False) -> Written:
        namespace = await self.namespaces.find_open(target.kind, target.namespace)
        self.admission.check_node(target, CREATE, sent.object)
        if (check := self.checks.get(target.kind.kind)) is not None:
            await check.check(target, sent, None)
        if target.verb != "create":
            self._check_create(target)
        if isinstance(sent.object, UnstructuredObject) and target.kind is POD:
            await self.admission.nodes.check_new_pod(target.user, sent.object)
            sent = replace(sent, object=await self.priorities.given_to(sent.object))
        elif isinstance(sent.object, PodGroup):
            with_policy = "PodGroupPreemptionPolicy" in self.admission.gates
            group = await self.priorities.given_to_group(sent.object, with_policy=with_policy)
            sent = replace(sent, object=group)
        kind, generates_name = target.kind, not sent.object.metadata.name and bool(sent.object.metadata.generate_name)
        names_taken = 0
        for _ in range(ATTEMPTS_MAX):
            made = self.admission.new(target, sent, labels_of(namespace), settles_owners=settles_owners)
            new, stored, name = made.object, made.stored, made.object.metadata.name
            key = key_of(kind, target.namespace, name)
            try:
                with await hold_all(self.guards.get(kind.resource, ()), key, new, None) as held:
                    if (quota := self.quotas.get(kind.resource)) is not None and not target.dry_run:
                        await quota.record_use(key, partial(self.edit, RESOURCE_QUOTA))
                    revision = await self._store_new(key, stored, namespace, held.fences, dry_run=target.dry_run)
                    if revision:
                        held.keep(revision)
            except FenceMoved:
                namespace = await self.namespaces.find_open(kind, target.namespace)
            except KeyExists:
                names_taken += 1
                if not generates_name:
                    raise already_exists(kind.group, kind.plural, name) from None
                if names_taken == NAME_ATTEMPTS_MAX:
                    raise name_not_generated(kind.group, kind.plural, name) from None
            else:
                return Written(stored, revision, created=True, warnings=made.warnings)
        raise conflict(kind.group, kind.plural, name)

    async def create_initial(
        self, kind: Kind, name: str, document: Document, *, namespace: str = "", found: Record | None = None
    ) -> bool:
        """Store an object that every cluster has, unless it exists. It is not admitted: clients may not create all of these.

        `found` is its namespace; raises `FenceMoved` if that has changed.
        """
        key = key_of(kind, namespace, name)
        if await self.store.get(key) is not None:
            return False
        identity = {
            "name": name,
            "uid": self.admission.new_uid(),
            "creationTimestamp": print_timestamp(self.admission.clock.now()),
        }
        metadata = {**identity, **document.get("metadata", {})}
        # Another server on the same store may start at the same time.
        with suppress(KeyExists):
            await self._store_new(key, document_to_stored({**document, "metadata": metadata}), found)
            return True
        return False

    async def change(self, target: WriteTarget, change: ObjectChange) -> Written:
        """Change a stored object as a client asks."""
        labels = labels_of(await self.namespaces.find(target.kind, target.namespace))
        check = self.checks.get(target.kind.kind)

        async def attempt(record: Record) -> Written:
            if check is not None:
                old = from_stored(target.kind, record.value)
                await check.check(target, change.make(record), _with_revision(old, record.revision))
            made = self.admission.changed(target, change, record, labels)
            try:
                return await self._store_changed(target, made, record)
            except RevisionConflict:
                if made.sent.object.metadata.resource_version and not change.repeatable:
                    raise conflict(target.kind.group, target.kind.plural, target.name) from None
                raise

        return await self._retry(target.kind, target.key, attempt)

    async def edit(
        self,
        kind: Kind,
        key: str,
        edit: Edit,
        *,
        known: Record | None = None,
        guard: EditGuard | None = None,
        dry_run: bool = False,
    ) -> Written:
        """Change or remove a stored object as the server itself does. `edit` gets the document with type and resourceVersion.

        Edits are not admitted, and only the given guard is asked, or that of removals: they change nothing else that is checked. Without `known`,
        an edit is repeated on top of a concurrent write; with it, `edit` was decided on that record, and a concurrent write is a `Conflict`.
        """

        async def attempt(record: Record) -> Written:
            stored, removed = _edited(kind, record, edit)
            if dry_run or (stored is record.value and not removed):
                return Written(stored, record.revision, removed=removed)
            asked = self.removals.get(kind.resource) if removed else guard
            hold = await asked(key, stored) if asked is not None else None
            with Holds(() if hold is None else (hold,)) as held:
                revision = await self._replace(record, stored, held.fences, removes=removed)
                held.keep(revision)
            return Written(stored, revision, removed=removed)

        return await self._retry(kind, key, attempt, known)

    def _check_create(self, target: WriteTarget) -> None:
        """An update or apply that creates its object needs the right to create, too."""
        asked = target.asks("create", namespace=target.namespace, name=target.name)
        decision = self.admission.access.decide_again(asked)
        if not decision.allowed:
            raise refusal(asked, decision)

    # --- compare and swap -----------------------------------------------------------------------------------

    async def _retry(
        self, kind: Kind, key: str, attempt: Callable[[Record], Awaitable[Written]], known: Record | None = None
    ) -> Written:
        """Attempt a write, again after each write that came in between."""
        record = known or await self.store.get(key)
        for _ in range(1 if known else ATTEMPTS_MAX):
            if record is None:
                raise not_found(kind.group, kind.plural, name_of(key))
            try:
                return await attempt(record)
            except RevisionConflict as lost:
                record = lost.current
            except FenceMoved:
                # The record is unchanged, but a guard must decide again.
                continue
        raise conflict(kind.group, kind.plural, name_of(key))

    async def _store_changed(self, target: WriteTarget, made: AdmittedObject, record: Record) -> Written:
        new, stored = made.object, made.stored
        if stored is record.value:
            return Written(stored, record.revision, warnings=made.warnings)
        with await hold_all(self.guards.get(target.kind.resource, ()), record.key, new, made.old) as held:
            if target.dry_run:
                return Written(stored, record.revision, warnings=made.warnings)
            revision = await self._replace(record, stored, held.fences, removes=made.released)
            if not made.released:
                held.keep(revision)
        return Written(stored, revision, warnings=made.warnings)

    async def _store_new(
        self, key: str, stored: bytes, namespace: Record | None, fences: Sequence[Fence] = (), *, dry_run: bool = False
    ) -> int:
        if not dry_run:
            unchanged = (namespace,) if namespace is not None else ()
            return (await self.store.create(key, stored, fences=fences, unchanged=unchanged)).revision
        if await self.store.get(key) is not None:
            raise KeyExists(key)
        return 0

    async def _replace(self, record: Record, stored: bytes, fences: Sequence[Fence] = (), *, removes: bool) -> int:
        key, expected = record.key, record.revision
        if removes:
            return await self.store.delete(key, expected_revision=expected, fences=fences)
        return (await self.store.update(key, stored, expected_revision=expected, fences=fences)).revision


def _edited(kind: Kind, record: Record, edit: Edit) -> tuple[bytes, bool]:
    """What is stored after the edit, the record's own value if nothing changes, and whether the object is removed."""
    before = typed_document(kind, record.value, record.revision)
    outcome = edit(before)
    after = outcome.document if isinstance(outcome, Removed) else outcome
    removed = isinstance(outcome, Removed)
    if after == before:
        return record.value, removed
    return document_to_stored(after), removed or is_released(after)


def _with_revision(obj: ApiObject, revision: int) -> ApiObject:
    return replace(obj, metadata=replace(obj.metadata, resource_version=str(revision)))
