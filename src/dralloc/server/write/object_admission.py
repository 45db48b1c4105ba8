"""Admits what clients write: the pure part of a write, from the object that was sent to the bytes to store.

Admission (`kube.admission`) gets what it needs to know of the request: gates, time, UID, the namespace's labels and the user's permissions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from hashlib import sha256
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from dralloc.kube.admission import Admitted, Refused, Verb, WriteRequest, admit
from dralloc.kube.authorization import Permission, StatusRequester
from dralloc.kube.codec import encode
from dralloc.kube.kind import Kind
from dralloc.kube.meta_v1 import ApiObject, ObjectMeta
from dralloc.kube.strategy import AdmissionContext
from dralloc.kube.timestamps import print_timestamp
from dralloc.primitives.clock import Clock
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.field_errors import FieldPath
from dralloc.primitives.field_errors import invalid as invalid_field
from dralloc.server.access.node_restriction import UPDATE
from dralloc.server.access.users import bound_node
from dralloc.server.documents.json_documents import Document
from dralloc.server.documents.merge_rules import merge_rule
from dralloc.server.documents.server_side_apply import Authorship, is_noop_update, record_update
from dralloc.server.http.access_requests import refusal
from dralloc.server.http.statuses import conflict, invalid
from dralloc.server.read.access_control import AccessControl
from dralloc.server.read.stored_form import from_stored, read_document, to_stored, typed_document
from dralloc.server.store.records import Record
from dralloc.server.write.deletion_rules import is_released
from dralloc.server.write.node_restriction import NodeRestriction
from dralloc.server.write.request_bodies import SentObject, WriteTarget

# Letters and digits that form no words and are not mistaken for each other.
_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH: Final = 5


class ObjectChange(Struct, frozen=True, kw_only=True, gc=False):
    """How the new object is made from the stored one."""

    make: Callable[[Record], SentObject]
    # `make` uses the record, so it can be repeated after a concurrent write.
    repeatable: bool = False
    # The new object has its final managedFields.
    settles_owners: bool = False


class AdmittedObject(Struct, frozen=True, gc=False):
    """An admitted object, before the guards see it. `stored` is that of the record if nothing changes."""

    sent: SentObject
    old: ApiObject | None
    object: ApiObject
    stored: bytes
    warnings: tuple[str, ...]
    # It is being deleted, and nothing holds it any more.
    released: bool = False


@dataclass(frozen=True, slots=True)
class ObjectAdmission:
    """Admits objects of all kinds. Nothing is stored here."""

    clock: Clock
    gates: FeatureGates
    access: AccessControl
    nodes: NodeRestriction
    new_uid: Callable[[], str]

    def new(
        self, target: WriteTarget, sent: SentObject, labels: Mapping[str, str] | None, *, settles_owners: bool
    ) -> AdmittedObject:
        """The new object that a client sent, for a namespace with these labels."""
        now = self.clock.now()
        admitted = self._admit(target, sent, None, labels, now)
        new = admitted.stored if settles_owners else with_creator(target, admitted.stored, now)
        return AdmittedObject(sent, None, new, to_stored(new), (*sent.warnings, *admitted.warnings))

    def changed(
        self, target: WriteTarget, change: ObjectChange, record: Record, labels: Mapping[str, str] | None
    ) -> AdmittedObject:
        """The stored object as the client changes it."""
        sent = change.make(record)
        old = from_stored(target.kind, record.value)
        self.check_node(target, UPDATE, sent.object, old)
        _check_preconditions(target, sent.object, old, record)
        now = self.clock.now()
        admitted = self._admit(target, sent, old, labels, now)
        new = admitted.stored if change.settles_owners else with_owners(target, admitted.stored, old, record, now)
        stored = to_stored(new)
        if is_noop(stored, record.value):
            stored = record.value
        released = bool(new.metadata.deletion_timestamp) and is_released(typed_document(target.kind, stored))
        return AdmittedObject(sent, old, new, stored, (*sent.warnings, *admitted.warnings), released)

    def _admit(
        self,
        target: WriteTarget,
        sent: SentObject,
        old: ApiObject | None,
        labels: Mapping[str, str] | None,
        now: datetime,
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
        outcome = admit(request, self._context(target, labels, now, sent.object.metadata if old is None else None))
        if isinstance(outcome, Refused):
            raise invalid(target.kind.group, target.kind.kind, outcome.name, outcome.faults)
        return outcome

    def _context(
        self,
        target: WriteTarget,
        namespace_labels: Mapping[str, str] | None,
        now: datetime,
        created: ObjectMeta | None,
    ) -> AdmissionContext:
        """`created` is the metadata that a client sent of a new object: only new objects get a UID and a generated name."""
        uid = self.new_uid() if created is not None else ""
        return AdmissionContext(
            gates=self.gates,
            now=now,
            namespace_labels=namespace_labels,
            requester=self._requester(target) if target.subresource == "status" else None,
            uid=uid,
            name_suffix=_suffix_of(uid) if created is not None and not created.name else "",
        )

    def _requester(self, target: WriteTarget) -> StatusRequester:
        def refuses(permission: Permission) -> str:
            asked = target.asks(
                permission.verb,
                subresource=permission.subresource,
                namespace=permission.namespace,
                name=permission.name,
            )
            decision = self.access.decide_again(asked)
            return "" if decision.allowed else refusal(asked, decision).message

        return StatusRequester(verb=target.verb, node=bound_node(target.user), refuses=refuses)

    def check_node(self, target: WriteTarget, operation: str, new: ApiObject, old: ApiObject | None = None) -> None:
        """Refuse what a node may not write."""
        self.nodes.check_write(
            target.user,
            operation,
            target.kind,
            subresource=target.subresource,
            namespace=target.namespace,
            name=target.name,
            new=new,
            old=old,
        )


def _suffix_of(uid: str) -> str:
    """UIDs are random, so that nothing else needs to be."""
    digest = sha256(uid.encode()).digest()
    return "".join(_SUFFIX_LETTERS[byte % len(_SUFFIX_LETTERS)] for byte in digest[:_SUFFIX_LENGTH])


def _check_preconditions(target: WriteTarget, sent: ApiObject, old: ApiObject, record: Record) -> None:
    """Refuse a change of another revision, or of another object of that name, than the client states."""
    expected = sent.metadata.resource_version
    served = target.kind.served(target.resource.version)
    if not expected and served is not None and not served.unconditional_update:
        fault = invalid_field(FieldPath.of("metadata", "resourceVersion"), 0, "must be specified for an update")
        raise invalid(target.kind.group, target.kind.plural, target.name, [fault])
    if expected and expected != str(record.revision):
        raise conflict(target.kind.group, target.kind.plural, target.name)
    if sent.metadata.uid and sent.metadata.uid != old.metadata.uid:
        why = f"Precondition failed: UID in precondition: {sent.metadata.uid}, UID in object meta: {old.metadata.uid}"
        raise conflict(target.kind.group, target.kind.plural, target.name, why)


def random_uid() -> str:
    """A random UUID (version 4), as text. Faster than `uuid.uuid4`, which every create would pay for."""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


# --- Field ownership ------------------------------------------------------------------------------------------------
# Owners of fields: what a write records in `managedFields`, and whether it changes anything else.


def with_creator(target: WriteTarget, new: ApiObject, now: datetime) -> ApiObject:
    """The object with its creator as the owner of its fields, if the client named a field manager.

    Other objects have no owners, and get none by updates. The first apply finds "before-first-apply" as the owner, as in Kubernetes.
    """
    if target.manager_named:
        return _with_record(target, None, new, now)
    return replace(new, metadata=replace(new.metadata, managed_fields=())) if new.metadata.managed_fields else new


def with_owners(target: WriteTarget, new: ApiObject, old: ApiObject, record: Record, now: datetime) -> ApiObject:
    """The changed object with the client as the owner of the fields that it changed, if the object has owners."""
    if not (old.metadata.managed_fields or new.metadata.managed_fields):
        return new
    return _with_record(target, typed_document(target.kind, record.value), new, now)


def authorship(target: WriteTarget, now: datetime) -> Authorship:
    """The manager, version and time that `managedFields` record for the write."""
    return Authorship(
        manager=target.manager,
        api_version=target.resource.api_version,
        time=print_timestamp(now),
        subresource=target.subresource,
    )


@cache
def empty_document(kind: Kind) -> Document:
    """An object of the kind without any field set."""
    return {} if kind.view is not None else read_document(encode(kind.hub()))


def is_noop(stored: bytes, before: bytes) -> bool:
    """True for a write that changes nothing; managedFields timestamps are ignored."""
    if stored == before:
        return True
    if b'"managedFields"' not in stored:
        return False
    return is_noop_update(read_document(before), read_document(stored))


def _with_record(target: WriteTarget, live: Document | None, new: ApiObject, now: datetime) -> ApiObject:
    kind = target.kind
    document = typed_document(kind, to_stored(new))
    rule = merge_rule(kind.group, kind.kind)
    recorded = record_update(live, document, authorship(target, now), rule, empty=empty_document(kind))
    managed = tuple(recorded["metadata"].get("managedFields") or ())
    return replace(new, metadata=replace(new.metadata, managed_fields=managed))
