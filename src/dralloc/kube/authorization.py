"""Fine-grained authorization of writes to a claim's status: allocating devices and reporting device status need more
than the right to write the status.

This module decides which permissions a write needs, and says what is missing; the requester checks them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from msgspec import Raw

from dralloc.kube.resource_v1 import AllocatedDeviceStatus, AllocationResult, ResourceClaim
from dralloc.kube.validation.resource_claim_status import AllocatedDeviceKey
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.field_errors import FieldError, FieldPath, forbidden

_ALLOCATION: Final = FieldPath.of("status", "allocation")
_DEVICES: Final = FieldPath.of("status", "devices")


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """A permission on a part of `resourceclaims`, which is not a resource of its own: `binding` or `driver`."""

    subresource: str
    verb: str
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRequester:
    """Who writes a status, and how: `verb` is update or patch."""

    verb: str
    # The node that the requester's service account token is bound to; empty for other users.
    node: str = ""
    # Why the requester does not have a permission; empty if it does.
    refuses: Callable[[Permission], str]


def validate_status_permissions(
    new: ResourceClaim, proposed: ResourceClaim, old: ResourceClaim, gates: FeatureGates, requester: StatusRequester
) -> Iterator[FieldError]:
    """A missing permission is an error of the field that would change. `proposed` is the canonical form of `new`."""
    if "DRAResourceClaimGranularStatusAuthorization" not in gates:
        return
    status, before = proposed.status, old.status
    if (status.allocation, status.reserved_for) != (before.allocation, before.reserved_for):
        yield from _check_binding(requester)
    if status.allocation is None or "DRAResourceClaimDeviceStatus" not in gates:
        return
    drivers = _changed_drivers(new, proposed, old)
    if drivers:
        verbs = [f"arbitrary-node:{requester.verb}"]
        if requester.node and requester.node == node_of(status.allocation):
            verbs.insert(0, f"associated-node:{requester.verb}")
        for driver in drivers:
            yield from _check_driver(requester, verbs, new.metadata.namespace, driver)


def node_of(allocation: AllocationResult) -> str:
    """Returns the node that the allocation is restricted to, or an empty string unless it is exactly one."""
    terms = allocation.node_selector.node_selector_terms if allocation.node_selector else None
    if terms is None or len(terms) != 1 or terms[0].match_expressions or len(terms[0].match_fields) != 1:
        return ""
    field = terms[0].match_fields[0]
    is_name = field.key == "metadata.name" and field.operator == "In" and len(field.values) == 1
    return field.values[0] if is_name else ""


def _check_binding(requester: StatusRequester) -> Iterator[FieldError]:
    """One right for all claims: who may allocate decides about devices that all namespaces share."""
    if why := requester.refuses(Permission(subresource="binding", verb=requester.verb)):
        what = f'resource="resourceclaims/binding", verb="{requester.verb}" permission'
        yield forbidden(_ALLOCATION, f"changing status.allocation or status.reservedFor requires {what}: {why}")


def _check_driver(requester: StatusRequester, verbs: list[str], namespace: str, driver: str) -> Iterator[FieldError]:
    """Any of the verbs is enough; the refusal of the first is reported."""
    refusals = []
    for verb in verbs:
        why = requester.refuses(Permission(subresource="driver", verb=verb, namespace=namespace, name=driver))
        if not why:
            return
        refusals.append(why)
    what = f'resource="resourceclaims/driver", verb="[{" ".join(verbs)}]" permission'
    yield forbidden(_DEVICES, f"changing status.devices requires {what}: {refusals[0]}")


def _changed_drivers(new: ResourceClaim, proposed: ResourceClaim, old: ResourceClaim) -> list[str]:
    """Returns the drivers whose device status is added, changed or removed, sorted. `data` is compared as it was sent."""
    sent = {AllocatedDeviceKey.of(device): device.data for device in new.status.devices}
    now: dict[AllocatedDeviceKey, tuple[AllocatedDeviceStatus, Raw]] = {
        key: (device, sent[key]) for device in proposed.status.devices if (key := AllocatedDeviceKey.of(device))
    }
    before = {AllocatedDeviceKey.of(device): (device, device.data) for device in old.status.devices}
    return sorted({device.driver for device in now.keys() | before.keys() if now.get(device) != before.get(device)})
