"""Request bodies: JSON, YAML or protobuf, decoded as the kind of the URL; unknown fields are warned about or refused."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from dralloc.kube.codec import DecodeError, decode, decode_again, encode, find_stray_fields
from dralloc.kube.kind import Kind
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.nesting_limit import LEVELS_MAX, is_nested_too_deeply
from dralloc.kube.positions import SourceError
from dralloc.kube.protobuf_reader import protobuf_to_json
from dralloc.kube.protobuf_schema import message_type
from dralloc.kube.registry import read_object_and_tree, whole_type
from dralloc.kube.schema import SchemaMismatch, find_unknown_fields, told
from dralloc.primitives.decoders import UNREADABLE
from dralloc.primitives.errors import BadRequest, RequestEntityTooLarge
from dralloc.server.access.authorizer import AccessRequest
from dralloc.server.access.users import User
from dralloc.server.documents.json_documents import Document
from dralloc.server.http.application import BODY_BYTES_MAX
from dralloc.server.http.messages import JSON, PROTOBUF, HttpRequest
from dralloc.server.http.query_options import IGNORE, STRICT
from dralloc.server.http.statuses import unreadable_body
from dralloc.server.read.api_resources import ApiResource, key_of

UnstoredT = TypeVar("UnstoredT", bound=ApiObject)

YAML: Final = "application/yaml"
READABLE: Final = (JSON, YAML, PROTOBUF)
# Of what was sent in another form.
CONVERTED_BYTES_MAX: Final = 2 * BODY_BYTES_MAX

_TREES: Final = msgspec.json.Decoder()


class SentObject(Struct, frozen=True, gc=False):
    """An object that a client sent, its JSON, and warnings for the client."""

    object: ApiObject
    body: bytes
    warnings: tuple[str, ...] = ()


def read_sent(request: HttpRequest, resource: ApiResource, field_validation: str) -> SentObject:
    """The object in a request's body, in the version of its URL."""
    return decode_object(json_of(request), resource, field_validation)


def json_of(request: HttpRequest) -> bytes:
    """The body, converted to JSON."""
    media_type = request.media_type
    if media_type in ("", JSON):
        return request.body
    if media_type == YAML:
        return yaml_to_json(request.body)
    if media_type == PROTOBUF:
        return _bounded(protobuf_to_json(request.body))
    raise unreadable_body(READABLE)


def _bounded(converted: bytes) -> bytes:
    """An empty value is two bytes in protobuf, and what an alias of YAML stands for is not sent at all."""
    if len(converted) > CONVERTED_BYTES_MAX:
        raise RequestEntityTooLarge(f"Request entity too large: limit is {CONVERTED_BYTES_MAX} as JSON")
    return converted


def yaml_to_json(body: bytes) -> bytes:
    """The single document of a YAML text as JSON; JSON is returned as it is."""
    if body.lstrip().startswith(b"{"):
        with suppress(BadRequest):
            read_json(body)
            return body
    # Slow to import, and few bodies are YAML.
    from dralloc.kube.yaml_reader import read_yaml_stream

    try:
        documents = [tree for tree in read_yaml_stream(body.decode()) if tree is not None]
    except (SourceError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is not YAML: {error}") from None
    if len(documents) != 1:
        raise BadRequest(f"the body must hold one object, but holds {len(documents)}")
    return _bounded(encode(documents[0]))


def decode_object(body: bytes, resource: ApiResource, field_validation: str) -> SentObject:
    """The object in a client's JSON, in the version of the resource."""
    sent, tree = _decode(body, resource)
    if field_validation == IGNORE:
        return SentObject(sent, body)
    # Nulls are not in the tree, but their fields can be unknown, too.
    as_sent = tree if b"null" not in body else None
    strays = find_stray_fields(body, whole_type(resource.kind, resource.version), as_sent)
    return _checked(SentObject(sent, body), resource, strays, field_validation)


def decode_document(document: Document, resource: ApiResource, field_validation: str) -> SentObject:
    """The object in a patched document, in the version of the resource.

    It is decoded from bytes because opaque parameters are kept as bytes. Unknown fields are found in the document itself.
    """
    body = encode(document)
    sent, tree = _decode(body, resource)
    if field_validation == IGNORE:
        return SentObject(sent, body)
    strays = find_unknown_fields(tree or document, whole_type(resource.kind, resource.version))
    return _checked(SentObject(sent, body), resource, strays, field_validation)


def _decode(body: bytes, resource: ApiResource) -> tuple[ApiObject, Document]:
    """The object, and for kinds that are modelled in part the tree that it was read from."""
    kind = resource.kind
    try:
        sent, tree = read_object_and_tree(kind, resource.version, body)
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
    texts = told(strays)
    if field_validation == STRICT:
        refusal = _cannot_be_handled(resource.kind.kind, resource)
        raise BadRequest(f"{refusal}: strict decoding error: {', '.join(texts)}")
    return SentObject(sent.object, sent.body, texts)


def read_json(body: bytes) -> Any:
    """The value in a client's JSON."""
    if is_nested_too_deeply(body):
        raise BadRequest(f"the body is nested more than {LEVELS_MAX} levels deep")
    try:
        return _TREES.decode(body.lstrip())
    except UNREADABLE as error:
        raise BadRequest(f"the body is not JSON: {error}") from None


def read_document(request: HttpRequest, api_version: str = "", kind: str = "") -> Document:
    """The document in a body of a kind that is not stored, such as a binding; with the types that Kubernetes gives the kind."""

    def read() -> Any:
        body = json_of(request) or b"{}"
        document = read_json(body)
        if kind and isinstance(document, dict):
            decode_again(body, message_type(api_version, kind))
        return document

    try:
        document = read()
    except DecodeError as error:
        raise BadRequest(f"the body cannot be handled as a {kind}: {error}") from None
    if not isinstance(document, dict):
        raise BadRequest("the body must be an object")
    return document


def read_unstored(request: HttpRequest, wire_type: type[UnstoredT]) -> UnstoredT:
    """The object in a body of a kind that is answered and not stored, such as a review."""
    try:
        return decode(json_of(request) or b"{}", wire_type)
    except DecodeError as error:
        raise BadRequest(f"the body cannot be handled as a {wire_type.__name__}: {error}") from None


def member(document: Document, name: str) -> Document:
    """The named object inside a client's document; empty if it is absent."""
    value = document.get(name)
    if value is not None and not isinstance(value, dict):
        raise BadRequest(f"{name} must be an object")
    return value or {}


def _check_type(sent: ApiObject, resource: ApiResource) -> None:
    """Refuse a body whose type is stated and differs from the URL's."""
    if sent.kind and sent.kind != resource.kind.kind:
        raise BadRequest(_cannot_be_handled(sent.kind, resource))
    if sent.api_version and sent.api_version != resource.api_version:
        raise BadRequest(
            f"the API version in the data ({sent.api_version}) does not match the expected API version ({resource.api_version})"
        )


def _cannot_be_handled(kind: str, resource: ApiResource) -> str:
    return f'{kind} in version "{resource.version}" cannot be handled as a {resource.kind.kind}'


# --- Write target ---------------------------------------------------------------------------------------------------
# What a client writes, who the client is, and the options of the write.


class WriteTarget(Struct, frozen=True, kw_only=True, gc=False):
    """The object that a client writes, the client, and the options of the write."""

    resource: ApiResource
    user: User
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    # As authorization names it: create, update or patch.
    verb: str = "update"
    # The owner of the fields that are written.
    manager: str
    # The client named itself, so its fields are recorded from the create on.
    manager_named: bool = False
    dry_run: bool = False

    @property
    def kind(self) -> Kind:
        return self.resource.kind

    @property
    def key(self) -> str:
        return key_of(self.kind, self.namespace, self.name)

    def asks(self, verb: str, *, namespace: str, name: str, subresource: str = "") -> AccessRequest:
        """A request of the same user for more access to the resource than the request itself needed."""
        return AccessRequest(
            user=self.user,
            verb=verb,
            group=self.kind.group,
            version=self.resource.version,
            resource=self.kind.plural,
            subresource=subresource,
            namespace=namespace,
            name=name,
        )
