"""What a pod requests of a node besides devices: resources, one of the node's pods, host ports.

Amounts are exact integers in nanos.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from dralloc.kube.extended_resources import served_by_devices
from dralloc.kube.pod_requests import CPU, MEMORY, is_sidecar, peak_requests
from dralloc.kube.pod_v1 import Container, ContainerStatus, Pod, PodSpec
from dralloc.primitives.quantity import NANOS, Quantity

PODS: Final = "pods"

# What a container without requests counts for in node scores, as in Kubernetes. It never excludes a pod.
UNSTATED: Final[Mapping[str, int]] = {CPU: NANOS // 10, MEMORY: 200 * 1024 * 1024 * NANOS}

ANY_ADDRESS: Final = "0.0.0.0"


class HostPort(NamedTuple):
    protocol: str
    address: str
    number: int


class PortTable:
    """Host ports, of which there may be tens of thousands: two of one number clash if they have one address, or one has any."""

    def __init__(self, ports: Iterable[HostPort] = ()) -> None:
        self._addresses: dict[tuple[str, int], set[str]] = {}
        for port in ports:
            self.add(port)

    def add(self, port: HostPort) -> None:
        self._addresses.setdefault((port.protocol, port.number), set()).add(port.address)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PortTable) and self._addresses == other._addresses

    __hash__ = None  # type: ignore[assignment]

    def clashes_with(self, port: HostPort) -> bool:
        addresses = self._addresses.get((port.protocol, port.number))
        return addresses is not None and (
            port.address == ANY_ADDRESS or ANY_ADDRESS in addresses or port.address in addresses
        )


class PodResources(Struct, frozen=True, gc=False):
    """`amounts` must be available; `weights` (of cpu and memory) are for node scores."""

    amounts: Mapping[str, int]
    weights: Mapping[str, int]
    ports: frozenset[HostPort] = frozenset()
    # The same.
    port_table: PortTable | None = None

    def without(self, names: Collection[str]) -> PodResources:
        """The same, with these resources left to devices."""
        if not names:
            return self
        return replace(self, amounts={name: nanos for name, nanos in self.amounts.items() if name not in names})


def resources_of(spec: PodSpec) -> PodResources:
    weights, ports = peak_requests(spec, UNSTATED), frozenset(_host_ports(spec))
    return PodResources(
        amounts={name: nanos for name, nanos in peak_requests(spec).items() if nanos} | {PODS: NANOS},
        weights={name: weights[name] for name in UNSTATED},
        ports=ports,
        port_table=PortTable(ports) if ports else None,
    )


def resources_on_node(pod: Pod) -> PodResources:
    """What a placed pod uses. Extended resources that devices serve are not among what the node offers."""
    return _resources_on_node(pod).without(served_by_devices(pod.status.extended_resource_claim_status))


def _resources_on_node(pod: Pod) -> PodResources:
    """During a resize this is the larger of the old and the new size, as in Kubernetes."""
    spec, status = pod.spec, pod.status
    known = {each.name: each for each in (*status.container_statuses, *status.init_container_statuses)}
    if not any(each.allocated_resources or each.resources for each in known.values()):
        return resources_of(spec)
    is_refused = _is_resize_refused(pod)

    def as_it_is(container: Container) -> Container:
        has = known.get(container.name)
        return container if has is None else _as_it_is(container, has, is_refused=is_refused)

    containers, initial = map(as_it_is, spec.containers), map(as_it_is, spec.init_containers)
    return resources_of(replace(spec, containers=tuple(containers), init_containers=tuple(initial)))


def resize_fields(pod: Pod) -> tuple[object, ...]:
    """The fields that a resize of a placed pod changes."""
    spec, status = pod.spec, pod.status
    stated = (spec.containers, spec.init_containers, spec.resources)
    statuses = (*status.container_statuses, *status.init_container_statuses)
    granted = tuple((each.name, each.allocated_resources, each.resources) for each in statuses)
    return (*stated, granted, _is_resize_refused(pod))


def _is_resize_refused(pod: Pod) -> bool:
    """True if the node reports that the requested size is infeasible."""
    for condition in pod.status.conditions:
        if condition.type == "PodResizePending" and condition.reason == "Infeasible":
            return True
    return False


def _as_it_is(container: Container, has: ContainerStatus, *, is_refused: bool) -> Container:
    actual = has.resources.requests if has.resources is not None else {}
    amounts = (*has.allocated_resources.items(), *actual.items())
    if not amounts:
        return container
    requests: dict[str, Quantity] = {} if is_refused else dict(container.resources.requests)
    for name, amount in amounts:
        requests[name] = max(requests.get(name, amount), amount)
    return replace(container, resources=replace(container.resources, requests=requests))


def _host_ports(spec: PodSpec) -> Iterator[HostPort]:
    """The host ports of sidecars and containers. Ports of other init containers do not count, as in Kubernetes."""
    for container in (*filter(is_sidecar, spec.init_containers), *spec.containers):
        for port in container.ports:
            if port.host_port:
                yield HostPort(port.protocol or "TCP", port.host_ip or ANY_ADDRESS, port.host_port)
