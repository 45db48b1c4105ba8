"""Equal parts of objects are kept once: pods of one owner have the same containers, nodes of one kind the same devices.

An informer keeps every object of a kind; without this, half of its memory would be copies. Objects are immutable, so sharing
changes nothing for its readers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from dralloc.kube.codec import encode
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim, ResourceSlice

Object = TypeVar("Object", bound=ApiObject)

# Parts that are remembered; if there are more, they have little in common.
PARTS_MAX: Final = 4096
PART_BYTES_MAX: Final = 64 * 1024


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
        if len(key[1]) <= PART_BYTES_MAX:
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
