"""The devices that a container uses of the pod's claims: their CDI names and their health."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from dralloc.api.pod_claims import claims_of
from dralloc.node.claim_records import ClaimRecord, ReportedDevice
from dralloc.node.health import HealthReport
from dralloc.node.pod_view import NodeContainer, NodePod, ResourceHealth, ResourceStatus

# The records of a pod's claims, by claim name.
Held = Mapping[str, ClaimRecord]
HealthOf = Callable[[str, str, str], HealthReport]


def cdi_ids(pod: NodePod, container: NodeContainer, held: Held) -> tuple[str, ...]:
    """The CDI names of all devices of the container, without duplicates."""
    names = (
        cdi_id for _, _, devices in _uses(pod, container, held) for _, device in devices for cdi_id in device.cdi_ids
    )
    return tuple(dict.fromkeys(names))


def devices_status(
    pod: NodePod, container: NodeContainer, held: Held, health_of: HealthOf
) -> tuple[ResourceStatus, ...]:
    """`allocatedResourcesStatus` of the container: one entry for each claim or request that it refers to."""
    return tuple(
        ResourceStatus(
            name=f"claim:{entry}/{request}" if request else f"claim:{entry}",
            resources=tuple(_health(driver, device, health_of) for driver, device in devices),
        )
        for entry, request, devices in _uses(pod, container, held)
        if entry and devices
    )


def _uses(
    pod: NodePod, container: NodeContainer, held: Held
) -> Iterator[tuple[str, str, list[tuple[str, ReportedDevice]]]]:
    """For each use: the entry in the pod, the request (empty for all), and the devices with their drivers."""
    claims = {use.entry: use.claim for use in claims_of(pod)}
    for asked in container.resources.claims:
        record = held.get(claims.get(asked.name, ""))
        if record is not None:
            yield asked.name, asked.request, _serving(record, asked.request)
    extended = pod.status.extended_resource_claim_status
    if extended is not None and (record := held.get(extended.resource_claim_name)) is not None:
        for mapping in extended.request_mappings:
            if mapping.container_name == container.name:
                yield "", mapping.request_name, _serving(record, mapping.request_name)


def _serving(record: ClaimRecord, request: str) -> list[tuple[str, ReportedDevice]]:
    return [(driver, device) for driver, device in record.devices() if device.serves(request)]


def _health(driver: str, device: ReportedDevice, health_of: HealthOf) -> ResourceHealth:
    known = health_of(driver, device.pool, device.device)
    resource_id = device.cdi_ids[0] if device.cdi_ids else f"{driver}/{device.pool}/{device.device}"
    return ResourceHealth(resource_id=resource_id, health=known.health, message=known.message or None)
