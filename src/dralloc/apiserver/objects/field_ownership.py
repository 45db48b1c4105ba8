"""Owners of fields: what a write records in `managedFields`, and whether it changes anything else."""

from __future__ import annotations

from datetime import datetime
from functools import cache

from msgspec.structs import replace

from dralloc.api.codec import encode
from dralloc.api.kind import Kind
from dralloc.api.meta_v1 import ApiObject
from dralloc.api.timestamps import print_timestamp
from dralloc.apiserver.documents.json_documents import Document
from dralloc.apiserver.documents.merge_rules import merge_rule
from dralloc.apiserver.documents.server_side_apply import Authorship, is_noop_update, record_update
from dralloc.apiserver.objects.stored_form import read_document, to_stored, typed_document
from dralloc.apiserver.objects.write_target import WriteTarget
from dralloc.store.records import Record


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
