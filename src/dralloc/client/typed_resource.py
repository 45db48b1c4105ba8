"""One resource of the API from the client's side: its path, and how its objects are decoded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Generic, TypeVar

from msgspec import MsgspecError, Raw, Struct

from dralloc.client.shared_parts import SharedParts
from dralloc.kube.codec import decode
from dralloc.kube.meta_v1 import ApiObject
from dralloc.primitives.decoders import make_decoder

Object = TypeVar("Object", bound=ApiObject)

# The most recently decoded objects, unless they are large.
CHANGES_MAX: Final = 2048
CHANGE_BYTES_MAX: Final = 8 * 1024

# Of all objects that this process reads.
_PARTS: Final = SharedParts()


class ObjectKey(Struct, frozen=True, gc=False):
    """An object's namespace and name; `namespace` is empty for cluster-scoped objects."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceAddress:
    """Group, version and plural: where the objects of a resource are."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, *, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Returns the path of an object, of the objects in a namespace, or of all objects."""
        path = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if self.namespaced and namespace:
            path = f"{path}/namespaces/{namespace}"
        path = f"{path}/{self.plural}"
        if name:
            path = f"{path}/{name}"
        return f"{path}/{subresource}" if subresource else path


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedResource(ResourceAddress, Generic[Object]):
    type: type[Object]
    # Decodes objects of a version that has a different shape.
    read: Callable[[bytes], Object] | None = None
    # For questions about who wrote an object, and when.
    keeps_managed_fields: bool = False

    def decode(self, body: bytes) -> Object:
        """Decodes an object. Usually it has no `managedFields`: they are larger than the rest of a pod, and informers keep
        thousands. A server that gets an object back without them keeps its own.
        """
        if not self.keeps_managed_fields:
            body = without_managed_fields(body)
        return _PARTS.share(decode(body, self.type) if self.read is None else self.read(body))

    def decode_change(self, body: bytes) -> Object:
        """Decodes the object of a write or watch event. The same bytes answer the write and reach every watch of this
        process, so the result is shared.
        """
        if self.read is None and len(body) <= CHANGE_BYTES_MAX:
            shared: Object = _decode_once(body, self.type)
            return shared
        return self.decode(body)


class _ManagedMeta(Struct, rename="camel"):
    managed_fields: Raw = Raw(b"[]")


class _ManagedObject(Struct):
    metadata: _ManagedMeta


_MANAGED: Final = make_decoder(_ManagedObject)
_MANAGED_FIELDS: Final = b'"managedFields":'


def without_managed_fields(body: bytes) -> bytes:
    """Returns the object with an empty list of managed fields, without decoding them."""
    start = body.find(_MANAGED_FIELDS)
    # Two of them: one is elsewhere, as in the parameters of a driver, which are content.
    if start < 0 or body.find(_MANAGED_FIELDS, start + 1) >= 0:
        return body
    try:
        managed = bytes(_MANAGED.decode(body).metadata.managed_fields)
    except MsgspecError:
        # Whatever is wrong with it, the decoder of the whole object explains it.
        return body
    start += len(_MANAGED_FIELDS)
    end = start + len(managed)
    return b"%b[]%b" % (body[:start], body[end:]) if body[start:end] == managed else body


@lru_cache(maxsize=CHANGES_MAX)
def _decode_once(body: bytes, object_type: type[Object]) -> Object:
    return _PARTS.share(decode(without_managed_fields(body), object_type))


def key_of(item: ApiObject) -> ObjectKey:
    return ObjectKey(item.metadata.namespace, item.metadata.name)


def version_of(item: ApiObject) -> dict[str, str]:
    """The metadata of a patch that the server refuses with a conflict if the object has changed since it was read.

    The UID alone is not enough: why the object is to be changed may be over, or undone by a restored backup.
    """
    return {"uid": item.metadata.uid, "resourceVersion": item.metadata.resource_version}
