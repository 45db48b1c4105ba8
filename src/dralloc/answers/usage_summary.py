"""The devices of a cluster in a few numbers: by driver, class and group of nodes, with what typical requests cannot use.

Typical are the requests of the claims that exist; for a driver that no claim asks for, a request that names no amounts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from dralloc.answers.assumed_scheduler import typical_pods_of
from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.device_report import DeviceReport, DeviceState, HardwareAmount, PoolReport, hardware_by_driver
from dralloc.answers.scheduler_state import state_of
from dralloc.devices.allocator.availability import BlockCause
from dralloc.devices.allocator.candidate_devices import DeviceCriteria, matches_of
from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.requests import compile_demand
from dralloc.devices.identity import product_of
from dralloc.kube.codec import encode
from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim
from dralloc.primitives.quantity import Quantity
from dralloc.scheduler.report.fragmentation import Fragmentation

# The most frequent ones.
TYPICAL_MAX: Final = 20
SEVERAL_NODES: Final = "(several nodes)"
WITHOUT_LABEL: Final = "(without the label)"


@dataclass(frozen=True, slots=True)
class DeviceCounts:
    """Devices by state, and for each capacity the largest request that fits on one of them."""

    states: Mapping[DeviceState, int]
    blocked_by: Mapping[BlockCause, int]
    largest: Mapping[str, Quantity]

    @classmethod
    def of(cls, devices: Iterable[DeviceReport]) -> DeviceCounts:
        states: Counter[DeviceState] = Counter()
        blocked: Counter[BlockCause] = Counter()
        largest: dict[str, Quantity] = {}
        for device in devices:
            states[device.state] += 1
            if device.block is not None:
                blocked[device.block.cause] += 1
            for each in device.capacities:
                if each.largest is not None and (each.name not in largest or largest[each.name] < each.largest):
                    largest[each.name] = each.largest
        return cls(states, blocked, largest)

    @property
    def total(self) -> int:
        return sum(self.states.values())


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A driver, or the part of a driver that is one product or in a group of nodes. `unusable` is the part of `available` that no typical request can
    use, by name and in nanos."""

    name: str
    driver: str
    counts: DeviceCounts
    hardware: tuple[HardwareAmount, ...]
    unusable: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ClassSummary:
    name: str
    counts: DeviceCounts


@dataclass(frozen=True, slots=True)
class NodeSummary:
    name: str
    counts: DeviceCounts
    hardware: Mapping[tuple[str, str], HardwareAmount]


@dataclass(frozen=True, slots=True)
class UsageSummary:
    drivers: tuple[GroupSummary, ...]
    # By driver and product; a name is that of the product, empty for devices without one.
    hardware: tuple[GroupSummary, ...]
    classes: tuple[ClassSummary, ...]
    # By the value of a node label; empty unless one was asked for.
    groups: tuple[GroupSummary, ...]
    # Those with most to give first.
    nodes: tuple[NodeSummary, ...]
    # The number of different requests that count as typical.
    typical: int


class UsageSummarizer:
    def __init__(self, features: Features, classes: Mapping[str, DeviceClass], claims: Iterable[ResourceClaim]) -> None:
        self._features = features.of_scheduler()
        self._classes = classes
        self._typical = _typical_requests(self._features, classes, claims)

    def summary(
        self, reports: Iterable[PoolReport], labels: Mapping[str, Mapping[str, str]], node_group: str | None = None
    ) -> UsageSummary:
        """`labels` are those of the nodes, `node_group` is the label that groups them."""
        reports = tuple(reports)
        by_driver: dict[str, list[PoolReport]] = {}
        by_group: dict[tuple[str, str], list[PoolReport]] = {}
        by_node: dict[str, list[PoolReport]] = {}
        for report in reports:
            driver = report.pool_id.driver
            by_driver.setdefault(driver, []).append(report)
            by_node.setdefault(report.node, []).append(report)
            if node_group is not None:
                value = labels.get(report.node, {}).get(node_group, WITHOUT_LABEL) if report.node else SEVERAL_NODES
                by_group.setdefault((value, driver), []).append(report)
        nodes = (self._node(name, pools) for name, pools in by_node.items() if name)
        return UsageSummary(
            tuple(self._group(driver, driver, pools) for driver, pools in sorted(by_driver.items())),
            tuple(self._products(by_driver)),
            tuple(self._class(name, reports) for name in sorted(self._classes)),
            tuple(self._group(value, driver, pools) for (value, driver), pools in sorted(by_group.items())),
            tuple(sorted(nodes, key=_most_to_give)),
            len(self._typical),
        )

    def _products(self, by_driver: Mapping[str, list[PoolReport]]) -> Iterator[GroupSummary]:
        for driver, reports in sorted(by_driver.items()):
            for product in sorted({product_of(device.device) for device in _devices(reports)}):
                yield self._group(product, driver, [_of_product(report, product) for report in reports])

    def _node(self, name: str, reports: list[PoolReport]) -> NodeSummary:
        return NodeSummary(name, DeviceCounts.of(_devices(reports)), hardware_by_driver(reports))

    def _class(self, name: str, reports: Iterable[PoolReport]) -> ClassSummary:
        selectors = self._classes[name].spec.selectors
        expressions = tuple(selector.cel.expression for selector in selectors if selector.cel is not None)
        criteria = _criteria(self._features, expressions)
        devices = (
            device
            for device in _devices(reports)
            if device.source is not None and matches_of(device.source[0], criteria).matched >> device.source[1] & 1
        )
        return ClassSummary(name, DeviceCounts.of(devices))

    # --- Fragmentation --------------------------------------------------------------------------------------------------

    def _group(self, name: str, driver: str, reports: list[PoolReport]) -> GroupSummary:
        hardware = tuple(hardware_by_driver(reports).values())
        usable: Counter[str] = Counter()
        by_node: dict[str, list[PoolReport]] = {}
        for report in reports:
            by_node.setdefault(report.node or f"/{report.pool_id.pool}", []).append(report)
        requests = [each for each in self._typical if any(map(each.is_known, _devices(reports)))]
        for pools in by_node.values():
            usable.update(_usable(pools, requests or [_TypicalRequest(_criteria(self._features), 1)]))
        unusable = {each.name: max(each.available - usable[each.name], 0) for each in hardware}
        return GroupSummary(name, driver, DeviceCounts.of(_devices(reports)), hardware, unusable)


@dataclass(frozen=True, slots=True)
class _TypicalRequest:
    criteria: DeviceCriteria
    count: int

    def is_known(self, device: DeviceReport) -> bool:
        """True if the request is for such devices, whatever their state."""
        if device.source is None:
            return False
        indexed, bit = device.source
        return bool(matches_of(indexed, self.criteria).matched >> bit & 1)

    def fits(self, device: DeviceReport) -> float:
        """How many such requests the device can serve at once; 0 if it can serve none."""
        if not device.state.is_open or device.source is None:
            return 0
        indexed, bit = device.source
        matches = matches_of(indexed, self.criteria)
        if not (matches.matched & ~matches.barred) >> bit & 1:
            return 0
        if not device.is_shareable:
            return 1
        # A charge of zero leaves room for any number.
        charges = zip(device.capacities, matches.charges[bit].nanos, strict=False)
        return min((each.free.nanos // charge for each, charge in charges if charge), default=math.inf)

    def taken(self, device: DeviceReport, fits: float) -> Iterator[tuple[str, int]]:
        """What so many requests take of the capacities."""
        assert device.source is not None, "only published devices fit"
        indexed, bit = device.source
        charges = matches_of(indexed, self.criteria).charges[bit].nanos
        for index, each in enumerate(device.capacities):
            charge = charges[index] if index < len(charges) else 0
            is_whole = not device.is_shareable or not charge or math.isinf(fits)
            yield each.name, each.free.nanos if is_whole else int(fits) * charge


def _usable(reports: list[PoolReport], requests: list[_TypicalRequest]) -> Counter[str]:
    """What typical requests can use of the hardware of one node: for each device, the request that uses it best."""
    best: dict[tuple[int, str], int] = {}
    drawing: dict[int, DeviceReport] = {}
    devices = list(_devices(reports))
    for request in requests:
        fitting = [(device, fits) for device in devices if (fits := request.fits(device))]
        if sum(fits for _, fits in fitting) < request.count:
            continue
        for device, fits in fitting:
            if device.device.consumes_counters:
                drawing[id(device)] = device
                continue
            for name, amount in request.taken(device, fits):
                best[id(device), name] = max(best.get((id(device), name), 0), amount)
    usable: Counter[str] = Counter()
    for (_, name), amount in best.items():
        usable[name] += amount
    for report in reports if drawing else ():
        mine = [device.source for device in report.devices if id(device) in drawing]
        free = [source for source in mine if source is not None]
        for counter_id, amount in report.availability.drawn_together(free).items() if report.availability else ():
            usable[counter_id.counter] += amount
    return usable


def _typical_requests(
    features: Features, classes: Mapping[str, DeviceClass], claims: Iterable[ResourceClaim]
) -> list[_TypicalRequest]:
    """The requests that claims make most often, alternatives included; not those for all devices or with admin access."""
    by_shape: Counter[bytes] = Counter()
    example: dict[bytes, ResourceClaim] = {}
    for claim in claims:
        shape = encode(claim.spec)
        by_shape[shape] += 1
        example[shape] = claim
    found: Counter[_TypicalRequest] = Counter()
    for shape, count in by_shape.items():
        for alternative in compile_demand([example[shape]], classes, features).alternatives:
            if alternative.fault is None and not alternative.takes_all and not alternative.is_admin:
                # Those that have a capacity together take what each device has left.
                least = 1 if alternative.is_aggregated else alternative.count
                found[_TypicalRequest(alternative.criteria, least)] += count
    return [request for request, _ in found.most_common(TYPICAL_MAX)]


def _criteria(features: Features, class_selectors: tuple[str, ...] | None = None) -> DeviceCriteria:
    """All devices that the selectors of a class match; without selectors, those that a request gets that names no amounts."""
    return DeviceCriteria(
        class_selectors=class_selectors or (),
        request_selectors=(),
        capacity=() if features.consumable_capacity and class_selectors is None else None,
        tolerations=() if features.device_taints else None,
        allows_binding=features.binding_conditions,
        allows_counters=features.partitionable_devices,
        fractional_ranges=features.fractional_ranges,
        skips_negative_amounts=features.skips_negative_amounts,
    )


def _of_product(report: PoolReport, product: str) -> PoolReport:
    devices = tuple(device for device in report.devices if product_of(device.device) == product)
    return replace(report, devices=devices, hardware=tuple(each for each in report.hardware if each.product == product))


def _devices(reports: Iterable[PoolReport]) -> Iterator[DeviceReport]:
    for report in reports:
        yield from report.devices


def _most_to_give(node: NodeSummary) -> tuple[float, int, str]:
    shares = [amount.available / amount.value for amount in node.hardware.values() if amount.value > 0]
    free = node.counts.states.get(DeviceState.FREE, 0)
    return -(sum(shares) / len(shares) if shares else free / max(node.counts.total, 1)), -free, node.name


# --- Cluster fragmentation ------------------------------------------------------------------------------------------
# The fragmentation of a cluster as objects describe it: stranded devices for the pods that it has
# (`scheduler/report/fragmentation`).


def fragmentation_of(objects: ClusterObjects) -> Fragmentation:
    """Typical are the pods that exist and have not ended."""
    features = objects.features.of_scheduler()
    return Fragmentation(state_of(objects, objects.nodes), features, typical_pods_of(objects).top())
