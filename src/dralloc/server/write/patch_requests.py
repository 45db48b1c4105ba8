"""Patch requests: chooses the kind of patch by its media type, and writes its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import structs

from dralloc.kube.kind import Kind
from dralloc.kube.registry import RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE
from dralloc.primitives.errors import AlreadyExists, BadRequest, NotFound
from dralloc.server.documents.json_documents import Document, Json
from dralloc.server.documents.json_patch import apply_json_patch, apply_merge_patch
from dralloc.server.documents.kept_members import has_own_members, with_kept_members
from dralloc.server.documents.merge_rules import merge_rule
from dralloc.server.documents.server_side_apply import apply
from dralloc.server.documents.strategic_merge import apply_strategic_merge_patch
from dralloc.server.http.messages import PROTOBUF, HttpRequest
from dralloc.server.http.query_options import IGNORE, WriteOptions
from dralloc.server.http.statuses import conflict, unreadable_body, wrong_name
from dralloc.server.read.api_resources import ApiResource
from dralloc.server.read.stored_form import read_document
from dralloc.server.store.records import Record
from dralloc.server.write.object_admission import ObjectChange, authorship, empty_document
from dralloc.server.write.request_bodies import (
    SentObject,
    WriteTarget,
    decode_document,
    member,
    read_json,
    yaml_to_json,
)
from dralloc.server.write.writer import Writer, Written

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
PATCHES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH)

_APPLY_ATTEMPTS_MAX: Final = 5


async def patch_object(writer: Writer, target: WriteTarget, request: HttpRequest, options: WriteOptions) -> Written:
    """Patch an object; an apply creates it if it does not exist."""
    if request.media_type == APPLY_PATCH:
        applied = read_json(yaml_to_json(request.body))
        return await _apply(writer, target, applied, options)
    patched = read_patch(request, target.kind)

    def make(record: Record) -> SentObject:
        live = target.resource.presentation.document(record.value, record.revision)
        return decode_document(patched(live), target.resource, options.field_validation)

    return await writer.change(target, ObjectChange(make=make, repeatable=True))


def read_patch(request: HttpRequest, kind: Kind) -> Callable[[Document], Document]:
    """The request's patch, which is not an apply, as a function of a document of the kind."""
    if request.media_type not in PATCHES or request.media_type == APPLY_PATCH:
        raise unreadable_body(PATCHES)
    patch = read_json(request.body)
    if request.media_type == JSON_PATCH:
        return lambda live: apply_json_patch(live, patch)
    if request.media_type == MERGE_PATCH:
        return lambda live: apply_merge_patch(live, patch)
    rule = merge_rule(kind.group, kind.kind)
    return lambda live: apply_strategic_merge_patch(live, patch, rule)


async def _apply(writer: Writer, target: WriteTarget, applied: Json, options: WriteOptions) -> Written:
    if not isinstance(applied, dict):
        raise BadRequest("an apply patch must be an object")
    name = member(applied, "metadata").get("name")
    if name and name != target.name:
        raise wrong_name(name, target.name)
    merged = _merger(writer, target, applied, options)

    # A concurrent create or delete between the two attempts leads to another round.
    for _ in range(_APPLY_ATTEMPTS_MAX):
        try:
            return await writer.change(target, _applied_change(target, merged))
        except NotFound:
            if target.subresource:
                raise
        try:
            return await writer.create(target, merged(None), settles_owners=True)
        except AlreadyExists:
            continue
    raise conflict(target.kind.group, target.kind.plural, target.name)


def applied_change(writer: Writer, target: WriteTarget, applied: Document, options: WriteOptions) -> ObjectChange:
    """The change that an apply makes of an object that exists."""
    return _applied_change(target, _merger(writer, target, applied, options))


def _applied_change(target: WriteTarget, merged: Callable[[Document | None], SentObject]) -> ObjectChange:
    def make(record: Record) -> SentObject:
        return merged(target.resource.presentation.document(record.value, record.revision))

    return ObjectChange(make=make, repeatable=True, settles_owners=True)


def _merger(
    writer: Writer, target: WriteTarget, applied: Document, options: WriteOptions
) -> Callable[[Document | None], SentObject]:
    rule, empty = merge_rule(target.kind.group, target.kind.kind), empty_document(target.kind)

    def merged(live: Document | None) -> SentObject:
        result = apply(
            live, applied, authorship(target, writer.admission.clock.now()), rule, empty=empty, force=options.force
        )
        result = {**result, "metadata": {**result.get("metadata", {}), "name": target.name}}
        return decode_document(result, target.resource, options.field_validation)

    return merged


# --- Replace requests -----------------------------------------------------------------------------------------------
# PUT: what replaces a stored object.


def replacement(request: HttpRequest, resource: ApiResource, sent: SentObject) -> Callable[[Record], SentObject]:
    """What an update stores: what was sent, with members of ours that the client does not know.

    Clients that send protobuf know none of them. In JSON, only what cannot be removed is kept.
    """
    is_immutable = resource.kind in (RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE)
    if not (is_immutable or request.media_type == PROTOBUF) or not has_own_members(
        resource.api_version, resource.kind.kind
    ):
        return lambda _: sent

    def make(record: Record) -> SentObject:
        stored = resource.presentation.document(record.value, record.revision)
        document = read_document(sent.body)
        kept = with_kept_members(document, stored)
        if kept is document:
            return sent
        return structs.replace(decode_document(kept, resource, IGNORE), warnings=sent.warnings)

    return make
