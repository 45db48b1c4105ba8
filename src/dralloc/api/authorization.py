"""Who may write a claim's status: the right to update it is not enough to allocate devices, or to speak for a driver.

Which rights a write needs is decided here; who has which is asked of the caller's `permits`.
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
    """A right to be asked for. `verb_prefix` goes before the verb of the request, update or patch.

    With `node`, the right only counts for a caller that is bound to that node and no other.
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
    """A missing right is a fault of the field that would change."""
    if permits is permit_everything or "DRAResourceClaimGranularStatusAuthorization" not in gates:
        return
    status, before = new.status, old.status
    if (status.allocation, status.reserved_for) != (before.allocation, before.reserved_for) and not permits(
        Permission(subresource="binding")
    ):
        yield forbidden(
            _ALLOCATION, "changing allocation or reservedFor needs the right to write resourceclaims/binding"
        )
    if status.allocation is None or "DRAResourceClaimDeviceStatus" not in gates:
        return
    node = node_of(status.allocation)
    for driver in _changed_drivers(new, old):
        if not _may_speak_for(driver, new.metadata.namespace, node, permits):
            yield forbidden(
                _DEVICES, f"changing what driver {driver} says needs the right to write resourceclaims/driver for it"
            )


def node_of(allocation: AllocationResult) -> str:
    """The one node that an allocation is good for, or nothing where it does not name exactly one."""
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
    """Drivers of which something that they say is added, changed or removed, in order."""
    now, before = _statements(new), _statements(old)
    return sorted({device.driver for device in now.keys() | before.keys() if now.get(device) != before.get(device)})


def _statements(claim: ResourceClaim) -> dict[AllocatedDeviceKey, AllocatedDeviceStatus]:
    return {AllocatedDeviceKey.of(device): device for device in claim.status.devices}
