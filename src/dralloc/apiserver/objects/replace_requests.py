"""PUT: what replaces a stored object."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from dralloc.api.registry import RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE
from dralloc.apiserver.documents.kept_members import has_own_members, with_kept_members
from dralloc.apiserver.http.messages import PROTOBUF, HttpRequest
from dralloc.apiserver.http.query_options import IGNORE
from dralloc.apiserver.objects.api_resources import ApiResource
from dralloc.apiserver.objects.request_bodies import SentObject, decode_document
from dralloc.apiserver.objects.stored_form import read_document
from dralloc.store.records import Record


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
