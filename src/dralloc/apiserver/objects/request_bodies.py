"""Bodies of requests: read as JSON, YAML or protobuf, decoded as the kind that the URL names, unknown fields told or refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from dralloc.api.codec import DecodeError, encode, find_stray_fields
from dralloc.api.meta_v1 import ApiObject
from dralloc.api.positions import SourceError
from dralloc.api.registry import read_object
from dralloc.api.schema import SchemaMismatch, find_unknown_fields
from dralloc.api.unstructured_object import read_unstructured_and_tree
from dralloc.apiserver.documents.json_documents import Document
from dralloc.apiserver.documents.protobuf_bodies import PROTOBUF, protobuf_to_json
from dralloc.apiserver.http.messages import JSON, HttpRequest
from dralloc.apiserver.http.query_options import IGNORE, STRICT
from dralloc.apiserver.http.statuses import unreadable_body
from dralloc.apiserver.objects.api_resources import ApiResource
from dralloc.primitives.errors import BadRequest

YAML: Final = "application/yaml"
READABLE: Final = (JSON, YAML, PROTOBUF)


class SentObject(Struct, frozen=True, gc=False):
    """What a client sent: decoded, the JSON of it, and what it should be told."""

    object: ApiObject
    body: bytes
    warnings: tuple[str, ...] = ()


def read_sent(request: HttpRequest, resource: ApiResource, field_validation: str) -> SentObject:
    """The object that a request's body states, in the version of its URL."""
    return decode_object(json_of(request), resource, field_validation)


def json_of(request: HttpRequest) -> bytes:
    """The body as JSON."""
    media_type = request.media_type
    if media_type in ("", JSON):
        return request.body
    if media_type == YAML:
        return yaml_to_json(request.body)
    if media_type == PROTOBUF:
        return protobuf_to_json(request.body)
    raise unreadable_body(READABLE)


def yaml_to_json(body: bytes) -> bytes:
    """The one document of a YAML text. JSON is YAML too, and read as what it is."""
    if body.lstrip().startswith(b"{"):
        try:
            msgspec.json.decode(body)
        except msgspec.DecodeError:
            pass
        else:
            return body
    # Few bodies are YAML, and the parser takes a while to import.
    from dralloc.api.yaml_reader import read_yaml_stream

    try:
        documents = [tree for tree in read_yaml_stream(body.decode()) if tree is not None]
    except (SourceError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is not YAML: {error}") from None
    if len(documents) != 1:
        raise BadRequest(f"the body must hold one object, and holds {len(documents)}")
    return encode(documents[0])


def decode_object(body: bytes, resource: ApiResource, field_validation: str) -> SentObject:
    """The object that a client's JSON states, in the version of the resource."""
    sent, tree = _decode(body, resource)
    if field_validation == IGNORE:
        return SentObject(sent, body)
    kind = resource.kind
    strays = find_stray_fields(body, type(sent)) if kind.view is None else find_unknown_fields(tree, kind.view)
    return _checked(SentObject(sent, body), resource, strays, field_validation)


def decode_document(document: Document, resource: ApiResource, field_validation: str) -> SentObject:
    """The object that a patched document states, in the version of the resource.

    It is decoded from bytes because opaque parameters are kept as bytes. Unknown fields are found in the document itself.
    """
    body = encode(document)
    sent, tree = _decode(body, resource)
    if field_validation == IGNORE:
        return SentObject(sent, body)
    strays = find_unknown_fields(tree or document, resource.kind.view or type(sent))
    return _checked(SentObject(sent, body), resource, strays, field_validation)


def _decode(body: bytes, resource: ApiResource) -> tuple[ApiObject, Document]:
    """The object, and for kinds that are modelled in part the tree that it was read from."""
    kind = resource.kind
    try:
        sent: ApiObject
        tree: Document
        if kind.view is None:
            sent, tree = read_object(kind, resource.version, body), {}
        else:
            sent, tree = read_unstructured_and_tree(body, kind.view)
    except DecodeError as error:
        raise BadRequest(f"{_cannot_be_handled(kind.kind, resource)}: {error}") from None
    _check_type(sent, resource)
    return sent, tree


def _checked(
    sent: SentObject, resource: ApiResource, strays: Sequence[SchemaMismatch], field_validation: str
) -> SentObject:
    """The object with a warning for each unknown or repeated field; with strict validation they are refused."""
    if not strays:
        return sent
    texts = tuple(map(str, strays))
    if field_validation == STRICT:
        refusal = _cannot_be_handled(resource.kind.kind, resource)
        raise BadRequest(f"{refusal}: strict decoding error: {', '.join(texts)}")
    return SentObject(sent.object, sent.body, texts)


def read_json(body: bytes) -> Any:
    """Any JSON value, where a request may carry one."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from None


def read_document(request: HttpRequest) -> Document:
    """A body that must be an object, of a kind that is not stored (a binding, an eviction)."""
    document = read_json(json_of(request) or b"{}")
    if not isinstance(document, dict):
        raise BadRequest("the body must be an object")
    return document


def member(document: Document, name: str) -> Document:
    """The object that is a member of a document that a client sent; empty where there is none."""
    value = document.get(name)
    if value is not None and not isinstance(value, dict):
        raise BadRequest(f"{name} must be an object")
    return value or {}


def _check_type(sent: ApiObject, resource: ApiResource) -> None:
    """A body may leave its type out; what it says must be what the URL says."""
    if sent.kind and sent.kind != resource.kind.kind:
        raise BadRequest(_cannot_be_handled(sent.kind, resource))
    if sent.api_version and sent.api_version != resource.api_version:
        raise BadRequest(
            f"the API version in the data ({sent.api_version}) does not match the expected API version ({resource.api_version})"
        )


def _cannot_be_handled(kind: str, resource: ApiResource) -> str:
    return f'{kind} in version "{resource.version}" cannot be handled as a {resource.kind.kind}'
