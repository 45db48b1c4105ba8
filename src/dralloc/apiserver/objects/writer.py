"""Creating and changing objects: admit, keep account of who owns which field, store if nobody was faster.

Decisions are made by pure functions (`api.admission`, `patch`, `server_side_apply`); here they are given what
they need and their outcome is stored. A change is made again on top of a write that came in between, unless
the client said which revision it means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from secrets import choice
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from dralloc.api.admission import Admitted, Refused, Verb, WriteRequest, admit
from dralloc.api.codec import encode
from dralloc.api.meta_v1 import ApiObject, ObjectMeta
from dralloc.api.registry import POD, Kind
from dralloc.api.strategy import AdmissionContext
from dralloc.api.timestamps import print_timestamp
from dralloc.api.unstructured_object import UnstructuredObject
from dralloc.apiserver.documents.json_documents import Document
from dralloc.apiserver.documents.merge_rules import merge_rule
from dralloc.apiserver.documents.server_side_apply import Authorship, record_update, settled
from dralloc.apiserver.http.authentication import User
from dralloc.apiserver.http.authorization import permits_of
from dralloc.apiserver.http.statuses import already_exists, conflict, invalid, name_not_generated, not_found
from dralloc.apiserver.objects.api_resources import ApiResource, key_of
from dralloc.apiserver.objects.deletion_rules import is_released
from dralloc.apiserver.objects.namespaces import Namespaces
from dralloc.apiserver.objects.pod_priorities import PodPriorities
from dralloc.apiserver.objects.request_bodies import SentObject
from dralloc.apiserver.objects.stored_form import from_stored, read_document, to_stored
from dralloc.apiserver.objects.write_guards import WriteGuard, hold_all
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import Conflict, NotFound
from dralloc.primitives.features import FeatureGates
from dralloc.store.errors import KeyExists, RevisionConflict
from dralloc.store.interface import Store
from dralloc.store.records import Record

NAME_ATTEMPTS_MAX: Final = 8
CHANGE_ATTEMPTS_MAX: Final = 20
# Letters and digits that make neither words nor doubt.
_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH: Final = 5


class WriteTarget(Struct, frozen=True, kw_only=True, gc=False):
    """What a write is about, who writes, and how."""

    resource: ApiResource
    user: User
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    # Who shall own the fields that are written.
    manager: str
    # The client named itself: its part in a new object is written down from the start.
    manager_named: bool = False
    dry_run: bool = False

    @property
    def kind(self) -> Kind:
        return self.resource.kind

    @property
    def key(self) -> str:
        return key_of(self.kind, self.namespace, self.name)

    def not_found(self) -> NotFound:
        return not_found(self.kind.group, self.kind.plural, self.name)

    def conflict(self) -> Conflict:
        return conflict(self.kind.group, self.kind.plural, self.name)


class Written(Struct, frozen=True, gc=False):
    """The outcome of a write; a dry run of a create has no revision."""

    stored: bytes
    revision: int | None
    created: bool = False
    warnings: tuple[str, ...] = ()


class ObjectChange(Struct, frozen=True, kw_only=True, gc=False):
    """How the object to be stored is made from the one that is."""

    make: Callable[[Record], SentObject]
    # It is made from what is stored, so it can be made again from what another has stored meanwhile.
    repeatable: bool = False
    # It says itself who owns which field.
    settles_owners: bool = False


@dataclass(slots=True)
class Writer:
    """Writes objects of all kinds."""

    store: Store
    clock: Clock
    gates: FeatureGates
    namespaces: Namespaces
    priorities: PodPriorities
    new_uid: Callable[[], str]
    # By kind.
    gatekeepers: Mapping[str, Sequence[WriteGuard]] = field(default_factory=dict)

    async def create(self, target: WriteTarget, sent: SentObject, *, settles_owners: bool = False) -> Written:
        """Store a new object."""
        labels = await self.namespaces.labels_for_create(target.kind, target.namespace)
        if isinstance(sent.object, UnstructuredObject) and target.kind is POD:
            sent = replace(sent, object=await self.priorities.given_to(sent.object))
        kind, generates_name = target.kind, not sent.object.metadata.name and bool(sent.object.metadata.generate_name)
        for _ in range(NAME_ATTEMPTS_MAX):
            admitted = self._admit(target, sent, None, labels)
            new = admitted.stored if settles_owners else self._with_creator(target, admitted.stored)
            name, stored = new.metadata.name, to_stored(new)
            key = key_of(kind, target.namespace, name)
            with await hold_all(self.gatekeepers.get(kind.kind, ()), key, new, None) as reserved:
                try:
                    revision = await self._store_new(key, stored, dry_run=target.dry_run)
                except KeyExists:
                    if generates_name:
                        continue
                    raise already_exists(kind.group, kind.plural, name) from None
                if revision is not None:
                    reserved.keep(revision)
                return Written(stored, revision, True, (*sent.warnings, *admitted.warnings))
        raise name_not_generated(kind.group, kind.plural, name)

    async def change(self, target: WriteTarget, change: ObjectChange) -> Written:
        """Change an object that is stored."""
        labels = await self.namespaces.labels_of(target.kind, target.namespace)
        record = await self.store.get(target.key)
        for _ in range(CHANGE_ATTEMPTS_MAX):
            if record is None:
                raise target.not_found()
            sent = change.make(record)
            old = from_stored(target.kind, record.value)
            _check_expectations(target, sent.object, old, record)
            try:
                return await self._change_once(target, change, sent, old, record, labels)
            except RevisionConflict as lost:
                if sent.object.metadata.resource_version and not change.repeatable:
                    raise target.conflict() from None
                record = lost.current
        raise target.conflict()

    async def _change_once(
        self,
        target: WriteTarget,
        change: ObjectChange,
        sent: SentObject,
        old: ApiObject,
        record: Record,
        labels: Mapping[str, str] | None,
    ) -> Written:
        admitted = self._admit(target, sent, old, labels)
        warnings = (*sent.warnings, *admitted.warnings)
        new = admitted.stored if change.settles_owners else self._with_owners(target, admitted.stored, old, record)
        stored = to_stored(new)
        if _says_nothing_new(stored, record.value):
            return Written(record.value, record.revision, warnings=warnings)
        with await hold_all(self.gatekeepers.get(target.kind.kind, ()), record.key, new, old) as reserved:
            if target.dry_run:
                return Written(stored, record.revision, warnings=warnings)
            revision = await self._store_changed(target.kind, record, new, stored)
            reserved.keep(revision)
        return Written(stored, revision, warnings=warnings)

    async def _store_new(self, key: str, stored: bytes, *, dry_run: bool) -> int | None:
        if not dry_run:
            return (await self.store.create(key, stored)).revision
        if await self.store.get(key) is not None:
            raise KeyExists(key)
        return None

    async def _store_changed(self, kind: Kind, record: Record, new: ApiObject, stored: bytes) -> int:
        """An object on its way out goes with the last thing that held it."""
        if new.metadata.deletion_timestamp and is_released(typed_document(kind, stored)):
            return await self.store.delete(record.key, expected_revision=record.revision)
        return (await self.store.update(record.key, stored, expected_revision=record.revision)).revision

    # --- admission ------------------------------------------------------------------------------------------

    def _admit(
        self, target: WriteTarget, sent: SentObject, old: ApiObject | None, labels: Mapping[str, str] | None
    ) -> Admitted:
        request = WriteRequest(
            verb=Verb.CREATE if old is None else Verb.UPDATE,
            kind=target.kind,
            version=target.resource.version,
            new=sent.object,
            old=old,
            subresource=target.subresource,
            namespace=target.namespace,
            name=target.name,
            body=sent.body,
        )
        outcome = admit(request, self._surroundings(target, labels, sent.object.metadata if old is None else None))
        if isinstance(outcome, Refused):
            raise invalid(target.kind.group, target.kind.kind, outcome.name, outcome.faults)
        return outcome

    def _surroundings(
        self, target: WriteTarget, namespace_labels: Mapping[str, str] | None, created: ObjectMeta | None
    ) -> AdmissionContext:
        """`created` is what the client says of an object that is new: only such a one gets an identity."""
        return AdmissionContext(
            gates=self.gates,
            now=self.clock.now(),
            namespace_labels=namespace_labels,
            permits=permits_of(target.user),
            uid=self.new_uid() if created is not None else "",
            name_suffix=_new_suffix() if created is not None and not created.name else "",
        )

    # --- owners of fields -----------------------------------------------------------------------------------

    def _with_creator(self, target: WriteTarget, new: ApiObject) -> ApiObject:
        """Objects of clients that do not name themselves are written down without owners; so is what they change.

        The first to apply then finds "before-first-apply" as the owner of what is there, as in Kubernetes.
        """
        if not target.manager_named:
            return (
                replace(new, metadata=replace(new.metadata, managed_fields=())) if new.metadata.managed_fields else new
            )
        return self._with_record(target, None, new)

    def _with_owners(self, target: WriteTarget, new: ApiObject, old: ApiObject, record: Record) -> ApiObject:
        if not (old.metadata.managed_fields or new.metadata.managed_fields):
            return new
        return self._with_record(target, typed_document(target.kind, record.value), new)

    def _with_record(self, target: WriteTarget, live: Document | None, new: ApiObject) -> ApiObject:
        kind = target.kind
        document = typed_document(kind, to_stored(new))
        rule = merge_rule(kind.group, kind.kind)
        recorded = record_update(live, document, self.authorship(target), rule, empty=empty_document(kind))
        return replace(new, metadata=replace(new.metadata, managed_fields=_managed_fields(recorded)))

    def authorship(self, target: WriteTarget) -> Authorship:
        """Who writes, as the owners of fields are recorded."""
        return Authorship(
            manager=target.manager,
            api_version=target.resource.api_version,
            time=print_timestamp(self.clock.now()),
            subresource=target.subresource,
        )


def _new_suffix() -> str:
    return "".join(choice(_SUFFIX_LETTERS) for _ in range(_SUFFIX_LENGTH))


def typed_document(kind: Kind, stored: bytes) -> Document:
    """A stored object as a plain document with its type, in its hub version."""
    return {"apiVersion": kind.api_version(kind.hub_version), "kind": kind.kind, **read_document(stored)}


@cache
def empty_document(kind: Kind) -> Document:
    """An object of the kind with nothing in it."""
    return {} if kind.view is not None else read_document(encode(kind.hub()))


def _managed_fields(document: Document) -> tuple[Document, ...]:
    return tuple(document["metadata"].get("managedFields") or ())


def _check_expectations(target: WriteTarget, sent: ApiObject, old: ApiObject, record: Record) -> None:
    """The client may say which revision, and which object of that name, it means."""
    expected = sent.metadata.resource_version
    if expected and expected != str(record.revision):
        raise target.conflict()
    if sent.metadata.uid and sent.metadata.uid != old.metadata.uid:
        why = f"Precondition failed: UID in precondition: {sent.metadata.uid}, UID in object meta: {old.metadata.uid}"
        raise conflict(target.kind.group, target.kind.plural, target.name, why)


def _says_nothing_new(stored: bytes, before: bytes) -> bool:
    """Whether there is nothing to store; that somebody said the same again, and when, is nothing."""
    if stored == before:
        return True
    if b'"managedFields"' not in stored:
        return False
    live = read_document(before)
    return settled(live, read_document(stored)) is live
