"""Objects of kinds that we model only in part: pods, nodes and others.

The metadata is typed, as in every object; the rest is kept as plain JSON, so that unknown fields survive. To read such
an object, `view` it as a type with the known fields.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from msgspec import field

from dralloc.kube.codec import convert, decode, decode_tree, encode, fill_nulls
from dralloc.kube.meta_v1 import ApiObject

ViewT = TypeVar("ViewT", bound=ApiObject)

_TYPED: Final = ("apiVersion", "kind", "metadata")


class UnstructuredObject(ApiObject):
    """An object whose members besides the metadata are plain JSON values."""

    content: dict[str, Any] = field(default_factory=dict)

    def member(self, name: str) -> dict[str, Any]:
        """Returns an object member such as `spec`; empty if there is none."""
        value = self.content.get(name)
        return value if isinstance(value, dict) else {}


def read_unstructured(body: bytes, view_type: type[ApiObject]) -> UnstructuredObject:
    """Returns the object in the JSON; raises `DecodeError` if a known field has the wrong type."""
    return read_unstructured_and_tree(body, view_type)[0]


def read_unstructured_and_tree(body: bytes, view_type: type[ApiObject]) -> tuple[UnstructuredObject, dict[str, Any]]:
    """Returns the object and its full JSON tree, which includes metadata fields that the type does not have."""
    known = decode(body, view_type)
    tree = decode_tree(body)
    if b"null" in body:
        tree = _without_nulls(fill_nulls(tree, view_type))
    content = {name: value for name, value in tree.items() if name not in _TYPED}
    return UnstructuredObject(
        api_version=known.api_version, kind=known.kind, metadata=known.metadata, content=content
    ), tree


def print_unstructured(obj: UnstructuredObject) -> bytes:
    """Returns the object's JSON: apiVersion and kind if set, then metadata, then the rest."""
    head = encode(ApiObject(api_version=obj.api_version, kind=obj.kind, metadata=obj.metadata))
    return head if not obj.content else b"%b,%b" % (head[:-1], encode(obj.content)[1:])


def view(obj: UnstructuredObject, view_type: type[ViewT]) -> ViewT:
    """Returns the known fields of the object."""
    try:
        return convert(
            {"apiVersion": obj.api_version, "kind": obj.kind, "metadata": obj.metadata, **obj.content}, view_type
        )
    except msgspec.ValidationError:
        # Lists may contain nulls, which only the decoder can handle.
        return decode(print_unstructured(obj), view_type)


def _without_nulls(value: Any) -> Any:
    """Null equals absent. The decoder bounds the depth."""
    if isinstance(value, dict):
        return {name: _without_nulls(member) for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
