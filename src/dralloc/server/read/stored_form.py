"""The stored form of objects, and how it becomes what clients read.

An object is stored as the JSON of its hub version, without type and `resourceVersion`: the key implies the type, and the store's revision
is the version. Both are prepended on a read, which needs no decoding in the hub's shape.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dralloc.kube.codec import decode_again, encode
from dralloc.kube.conversion import from_hub
from dralloc.kube.kind import Kind
from dralloc.kube.meta_v1 import ApiObject, ObjectMeta
from dralloc.kube.trees import ExactNumber
from dralloc.kube.unstructured_object import UnstructuredObject
from dralloc.primitives.decoders import make_decoder
from dralloc.server.documents.json_documents import Document

HEAD: Final = b'{"metadata":{'
_REVISION: Final = b'"resourceVersion":"'

_TREE: Final = msgspec.json.Decoder(dict[str, Any], float_hook=ExactNumber)


def to_stored(obj: ApiObject) -> bytes:
    """The stored form of an object in its hub version."""
    metadata = replace(obj.metadata, resource_version="") if obj.metadata.resource_version else obj.metadata
    if isinstance(obj, UnstructuredObject):
        return _join(encode(metadata), encode(obj.content))
    return encode(replace(obj, api_version="", kind="", metadata=metadata))


def document_to_stored(document: Document) -> bytes:
    """The stored form of a document in its hub version."""
    metadata = {name: value for name, value in document["metadata"].items() if name != "resourceVersion"}
    content = {name: value for name, value in document.items() if name not in ("apiVersion", "kind", "metadata")}
    return _join(encode(metadata), encode(content))


def from_stored(kind: Kind, stored: bytes) -> ApiObject:
    """The stored object in its hub version, without type and revision."""
    if kind.view is not None:
        tree = _TREE.decode(stored)
        metadata = msgspec.convert(tree.pop("metadata"), ObjectMeta)
        return UnstructuredObject(metadata=metadata, content=tree)
    return decode_again(stored, kind.hub)


def read_document(body: bytes) -> Document:
    """The document in JSON that this server encoded."""
    return _TREE.decode(body)


def typed_document(kind: Kind, stored: bytes, revision: int | None = None) -> Document:
    """A stored object as a document in its hub version, with its type, and with a resourceVersion if one is given."""
    document = {"apiVersion": kind.api_version(kind.hub_version), "kind": kind.kind, **read_document(stored)}
    if revision is not None:
        document["metadata"]["resourceVersion"] = str(revision)
    return document


def read_metadata(stored: bytes) -> ObjectMeta:
    """The metadata alone; the rest of the object is skipped."""
    return _ENVELOPE.decode(stored).metadata


class Presentation:
    """Renders the stored objects of one kind in one version."""

    __slots__ = ("_before_revision", "_forms", "_kind", "_version", "api_version")

    def __init__(self, kind: Kind, version: str) -> None:
        served = kind.served(version)
        assert served is not None, f"{kind.kind} is not served in {version}"
        self.api_version = kind.api_version(version)
        self._kind = kind
        self._forms = served.forms
        # Versions that share the hub's type need no conversion.
        self._version = None if served.wire_type is kind.hub and served.forms is None else version
        type_ = b'{"kind":%b,"apiVersion":%b,"metadata":{' % (encode(kind.kind), encode(self.api_version))
        self._before_revision = type_ + _REVISION

    @property
    def copies(self) -> bool:
        """True if objects are shown as they are stored, without decoding."""
        return self._version is None

    def object(self, stored: bytes, revision: int) -> bytes:
        """The object with its type, as in a get or an event."""
        return b'%b%d",%b' % (self._before_revision, revision, self._converted(stored)[len(HEAD) :])

    def item(self, stored: bytes, revision: int) -> bytes:
        """The object without its type, as in a list."""
        return b'{"metadata":{"resourceVersion":"%d",%b' % (revision, self._converted(stored)[len(HEAD) :])

    def unstored(self, stored: bytes) -> bytes:
        """The object with its type and without a revision, as in a dry run of a create."""
        return self._before_revision[: -len(_REVISION)] + self._converted(stored)[len(HEAD) :]

    def document(self, stored: bytes, revision: int) -> Document:
        return read_document(self.object(stored, revision))

    def _converted(self, stored: bytes) -> bytes:
        if self._version is None:
            return stored
        if self._forms is not None:
            tree = read_document(stored)
            return _join(encode(tree.pop("metadata")), encode(self._forms.from_stored(tree)))
        return to_stored(from_hub(decode_again(stored, self._kind.hub), self._version))


class _Envelope(msgspec.Struct, frozen=True, gc=False):
    metadata: ObjectMeta


_ENVELOPE: Final = make_decoder(_Envelope)


def _join(metadata: bytes, content: bytes) -> bytes:
    assert metadata != b"{}", "every object has a name"
    rest = b"}" if content == b"{}" else b"," + content[1:]
    return b'{"metadata":' + metadata + rest
