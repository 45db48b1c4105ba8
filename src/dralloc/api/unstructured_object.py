"""Objects of kinds that we model only in part: pods, nodes and the like.

The metadata is typed, as that of every object; all the rest stays as it was written, so that nothing is lost that
we do not know. To read such an object, `view` it as one of the types that show what we do know.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from msgspec import field

from dralloc.api.codec import convert, decode, encode
from dralloc.api.meta_v1 import ApiObject
from dralloc.api.trees import ExactNumber

ViewT = TypeVar("ViewT", bound=ApiObject)

_TREE: Final = msgspec.json.Decoder(dict[str, Any], float_hook=ExactNumber)
_TYPED: Final = ("apiVersion", "kind", "metadata")


class UnstructuredObject(ApiObject):
    """An object whose members besides the metadata are plain JSON values."""

    content: dict[str, Any] = field(default_factory=dict)

    def member(self, name: str) -> dict[str, Any]:
        """The object that a member is, such as `spec`; empty where there is none."""
        value = self.content.get(name)
        return value if isinstance(value, dict) else {}


def read_unstructured(body: bytes, view_type: type[ApiObject]) -> UnstructuredObject:
    """The object that JSON states; raises `DecodeError` where what we know of it has a wrong type."""
    return read_unstructured_and_tree(body, view_type)[0]


def read_unstructured_and_tree(body: bytes, view_type: type[ApiObject]) -> tuple[UnstructuredObject, dict[str, Any]]:
    """The object, and all that its JSON says: what its metadata has no field for is in the tree alone."""
    known = decode(body, view_type)
    tree = _TREE.decode(body)
    if b"null" in body:
        tree = _without_nulls(tree)
    content = {name: value for name, value in tree.items() if name not in _TYPED}
    return UnstructuredObject(
        api_version=known.api_version, kind=known.kind, metadata=known.metadata, content=content
    ), tree


def print_unstructured(obj: UnstructuredObject) -> bytes:
    """The object's JSON: its type if it has one, then its metadata, then the rest."""
    head = encode(ApiObject(api_version=obj.api_version, kind=obj.kind, metadata=obj.metadata))
    return head if not obj.content else b"%b,%b" % (head[:-1], encode(obj.content)[1:])


def view(obj: UnstructuredObject, view_type: type[ViewT]) -> ViewT:
    """What we know of the object."""
    try:
        return convert(
            {"apiVersion": obj.api_version, "kind": obj.kind, "metadata": obj.metadata, **obj.content}, view_type
        )
    except msgspec.ValidationError:
        # Lists may hold nulls, which only the decoder knows how to read.
        return decode(print_unstructured(obj), view_type)


def _without_nulls(value: Any) -> Any:
    """Null is as good as absent. Bounded by the depth that the decoder allows."""
    if isinstance(value, dict):
        return {name: _without_nulls(member) for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
