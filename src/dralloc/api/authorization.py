"""Fine-grained authorization of writes to a claim's status: allocating devices and reporting device status need more
than the update permission.

This module decides which permissions a write needs; the caller's `permits` checks them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from dralloc.api.resource_v1 import GROUP, AllocatedDeviceStatus, AllocationResult, ResourceClaim
from dralloc.api.validation.resource_claim_status import AllocatedDeviceKey
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.field_errors import FieldError, FieldPath, forbidden

_ALLOCATION: Final = FieldPath.of("status", "allocation")
_DEVICES: Final = FieldPath.of("status", "devices")


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """A permission to check. `verb_prefix` goes before the verb of the request, update or patch.

    With `node`, it only counts for a caller that is bound to exactly that node.
    """

    subresource: str
    verb_prefix: str = ""
    namespace: str = ""
    name: str = ""
    node: str = ""
    group: str = GROUP
    resource: str = "resourceclaims"


def permit_everything(permission: Permission) -> bool:  # noqa: ARG001
    return True


def validate_status_permissions(
    new: ResourceClaim, old: ResourceClaim, gates: FeatureGates, permits: Callable[[Permission], bool]
) -> Iterator[FieldError]:
    """A missing permission is an error of the field that would change."""
    if permits is permit_everything or "DRAResourceClaimGranularStatusAuthorization" not in gates:
        return
    status, before = new.status, old.status
    if (status.allocation, status.reserved_for) != (before.allocation, before.reserved_for) and not permits(
        Permission(subresource="binding")
    ):
        yield forbidden(
            _ALLOCATION, "changing allocation or reservedFor requires permission to write resourceclaims/binding"
        )
    if status.allocation is None or "DRAResourceClaimDeviceStatus" not in gates:
        return
    node = node_of(status.allocation)
    for driver in _changed_drivers(new, old):
        if not _may_speak_for(driver, new.metadata.namespace, node, permits):
            yield forbidden(
                _DEVICES,
                f"changing the status of driver {driver} requires permission to write resourceclaims/driver for it",
            )


def node_of(allocation: AllocationResult) -> str:
    """Returns the node that the allocation is restricted to, or an empty string unless it is exactly one."""
    terms = allocation.node_selector.node_selector_terms if allocation.node_selector else None
    if terms is None or len(terms) != 1 or terms[0].match_expressions or len(terms[0].match_fields) != 1:
        return ""
    field = terms[0].match_fields[0]
    is_name = field.key == "metadata.name" and field.operator == "In" and len(field.values) == 1
    return field.values[0] if is_name else ""


def _may_speak_for(driver: str, namespace: str, node: str, permits: Callable[[Permission], bool]) -> bool:
    anywhere = Permission(subresource="driver", verb_prefix="arbitrary-node:", namespace=namespace, name=driver)
    if permits(anywhere):
        return True
    here = Permission(subresource="driver", verb_prefix="associated-node:", namespace=namespace, name=driver, node=node)
    return bool(node) and permits(here)


def _changed_drivers(new: ResourceClaim, old: ResourceClaim) -> list[str]:
    """Returns the drivers whose device status is added, changed or removed, sorted."""
    now, before = _statements(new), _statements(old)
    return sorted({device.driver for device in now.keys() | before.keys() if now.get(device) != before.get(device)})


def _statements(claim: ResourceClaim) -> dict[AllocatedDeviceKey, AllocatedDeviceStatus]:
    return {AllocatedDeviceKey.of(device): device for device in claim.status.devices}
