"""Patch requests: chooses the kind of patch by its media type, and writes its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from dralloc.api.kind import Kind
from dralloc.apiserver.documents.json_documents import Document, Json
from dralloc.apiserver.documents.json_patch import apply_json_patch, apply_merge_patch, copied_bytes_max
from dralloc.apiserver.documents.merge_rules import merge_rule
from dralloc.apiserver.documents.server_side_apply import apply
from dralloc.apiserver.documents.strategic_merge import apply_strategic_merge_patch
from dralloc.apiserver.http.flow_control import compute
from dralloc.apiserver.http.messages import HttpRequest
from dralloc.apiserver.http.query_options import WriteOptions
from dralloc.apiserver.http.statuses import conflict, unreadable_body, wrong_name
from dralloc.apiserver.objects.field_ownership import authorship, empty_document
from dralloc.apiserver.objects.object_admission import ObjectChange
from dralloc.apiserver.objects.request_bodies import (
    SentObject,
    decode_document,
    member,
    read_json,
    work_of_yaml,
    work_on,
    yaml_to_json,
)
from dralloc.apiserver.objects.write_target import WriteTarget
from dralloc.apiserver.objects.writer import Writer, Written
from dralloc.primitives.errors import AlreadyExists, BadRequest, NotFound
from dralloc.store.records import Record

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
PATCHES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH)

_APPLY_ATTEMPTS_MAX: Final = 5


async def patch_object(writer: Writer, target: WriteTarget, request: HttpRequest, options: WriteOptions) -> Written:
    """Patch an object; an apply creates it if it does not exist."""
    if request.media_type == APPLY_PATCH:
        # YAML takes twenty times as long as JSON, and merging by owners four times as long as a plain write.
        body = await compute(work_of_yaml(request.body), yaml_to_json, request.body)
        applied = await compute(len(body), read_json, body)
        return await _apply(writer, target, applied, options, 4 * work_on(body, target.kind))
    patch = await read_patch(request, target.kind)

    def make(record: Record) -> SentObject:
        live = target.resource.presentation.document(record.value, record.revision)
        return decode_document(patch.apply_to(live), target.resource, options.field_validation)

    return await writer.change(target, ObjectChange(make=make, repeatable=True, size=2 * patch.size))


class DocumentPatch(NamedTuple):
    """A patch that was read, and the size of what it works on besides the document."""

    apply_to: Callable[[Document], Document]
    size: int


async def read_patch(request: HttpRequest, kind: Kind) -> DocumentPatch:
    """The request's patch, which is not an apply, of a document of the kind."""
    if request.media_type not in PATCHES or request.media_type == APPLY_PATCH:
        raise unreadable_body(PATCHES)
    patch = await compute(len(request.body), read_json, request.body)
    size = work_on(request.body, kind)
    if request.media_type == JSON_PATCH:
        return DocumentPatch(lambda live: apply_json_patch(live, patch), size + copied_bytes_max(patch))
    if request.media_type == MERGE_PATCH:
        return DocumentPatch(lambda live: apply_merge_patch(live, patch), size)
    rule = merge_rule(kind.group, kind.kind)
    return DocumentPatch(lambda live: apply_strategic_merge_patch(live, patch, rule), size)


async def _apply(writer: Writer, target: WriteTarget, applied: Json, options: WriteOptions, size: int) -> Written:
    if not isinstance(applied, dict):
        raise BadRequest("an apply patch must be an object")
    name = member(applied, "metadata").get("name")
    if name and name != target.name:
        raise wrong_name(name, target.name)
    merged = _merger(writer, target, applied, options)

    # A concurrent create or delete between the two attempts leads to another round.
    for _ in range(_APPLY_ATTEMPTS_MAX):
        try:
            return await writer.change(target, _applied_change(target, merged, size))
        except NotFound:
            if target.subresource:
                raise
        try:
            return await writer.create(target, await compute(size, merged, None), settles_owners=True)
        except AlreadyExists:
            continue
    raise conflict(target.kind.group, target.kind.plural, target.name)


def applied_change(
    writer: Writer, target: WriteTarget, applied: Document, options: WriteOptions, size: int
) -> ObjectChange:
    """The change that an apply of about so many bytes makes of an object that exists."""
    return _applied_change(target, _merger(writer, target, applied, options), size)


def _applied_change(target: WriteTarget, merged: Callable[[Document | None], SentObject], size: int) -> ObjectChange:
    def make(record: Record) -> SentObject:
        return merged(target.resource.presentation.document(record.value, record.revision))

    return ObjectChange(make=make, repeatable=True, settles_owners=True, size=size)


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
