"""One resource of the API from the client's side: its path, and how its objects are decoded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

from msgspec import MsgspecError, Raw, Struct
from msgspec.structs import replace

from dralloc.kube.codec import decode, encode
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim, ResourceSlice
from dralloc.primitives.decoders import make_decoder

# --- Shared parts ---------------------------------------------------------------------------------------------------
# Equal parts of objects are kept once: pods of one owner have the same containers, nodes of one kind the same
# devices.
#
# An informer keeps every object of a kind; without this, half of its memory would be copies. Objects are immutable,
# so sharing changes nothing for its readers.


# Parts that are remembered; if there are more, they have little in common.
PARTS_MAX: Final = 4096


class SharedParts:
    """Returns the first of equal parts."""

    def __init__(self) -> None:
        # By text: equal values may be written differently, such as 1Gi and 1073741824.
        self._seen: dict[tuple[str, bytes], Any] = {}

    def share(self, item: Object) -> Object:
        """Returns an equal object, with parts of earlier ones."""
        share = _SHARES.get(type(item))
        shared: Object = share(self, item) if share is not None else item
        return shared

    def one(self, field: str, part: Any) -> Any:
        if not part:
            return part
        key = field, encode(part)
        seen = self._seen.get(key)
        if seen is not None:
            return seen
        if len(self._seen) >= PARTS_MAX:
            self._seen.clear()
        self._seen[key] = part
        return part


def _share_pod(parts: SharedParts, pod: Pod) -> Pod:
    spec = pod.spec
    shared = replace(
        spec,
        containers=parts.one("containers", spec.containers),
        tolerations=parts.one("tolerations", spec.tolerations),
    )
    return replace(pod, spec=shared)


def _share_claim(parts: SharedParts, claim: ResourceClaim) -> ResourceClaim:
    return replace(claim, spec=parts.one("claim", claim.spec))


def _share_slice(parts: SharedParts, item: ResourceSlice) -> ResourceSlice:
    return replace(item, spec=replace(item.spec, devices=parts.one("devices", item.spec.devices)))


_SHARES: Final[Mapping[type[ApiObject], Callable[[SharedParts, Any], Any]]] = {
    Pod: _share_pod,
    ResourceClaim: _share_claim,
    ResourceSlice: _share_slice,
}


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
