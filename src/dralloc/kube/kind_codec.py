"""Objects of the served kinds as JSON: by the type of their version, or whole where only a part is modelled."""

from __future__ import annotations

from typing import Any, cast

from msgspec import Struct

from dralloc.kube.codec import decode, decode_again, encode
from dralloc.kube.kind import Kind
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.protobuf_schema import message_type
from dralloc.kube.unstructured_object import UnstructuredObject, print_unstructured, read_unstructured_and_tree


def whole_type(kind: Kind, version: str) -> type[Struct]:
    """The type of all that an object has in this version, also of what we do not model."""
    served = kind.served(version)
    assert served is not None, f"not a version of {kind.kind}: {version}"
    return served.wire_type if kind.view is None else message_type(kind.api_version(version), kind.kind)


def read_object(kind: Kind, version: str, body: bytes) -> ApiObject:
    """Returns the object in the JSON, in the type of the version; raises `DecodeError`."""
    return read_object_and_tree(kind, version, body)[0]


def read_object_and_tree(kind: Kind, version: str, body: bytes) -> tuple[ApiObject, dict[str, Any]]:
    """Returns the object, and for a kind that is modelled in part its full JSON tree. Kinds have the types of Kubernetes also
    where no part of the project reads them: its readers rely on them.
    """
    whole = whole_type(kind, version)
    if kind.view is None:
        return cast("ApiObject", decode(body, whole)), {}
    read = read_unstructured_and_tree(body, kind.view)
    decode_again(body, whole)
    return read


def print_object(obj: ApiObject) -> bytes:
    """Returns the JSON of an object of any kind and version."""
    return print_unstructured(obj) if isinstance(obj, UnstructuredObject) else encode(obj)
