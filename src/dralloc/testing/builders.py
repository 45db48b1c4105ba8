"""Builders for small, valid objects of the resource API: a test states only what matters to it.

resource_slice("gpus", device("gpu-0", capacity={"memory": "40Gi"}, shareable=True))
claim("training", request("gpu", count=2, where='device.attributes["gpu.example.com"].model == "h100"'))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from dralloc.devices.node_selectors import NodeFacts
from dralloc.kube import device_parts as parts
from dralloc.kube import resource_v1
from dralloc.kube.device_parts import Amount, AttributeValue
from dralloc.kube.meta_v1 import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectMeta
from dralloc.primitives.quantity import Quantity

__all__ = [
    "allocation",
    "alternative",
    "claim",
    "device",
    "device_class",
    "distinct",
    "distinct_in_any",
    "first_available",
    "held",
    "match",
    "node",
    "node_selector",
    "request",
    "resource_slice",
    "taint",
    "taint_rule",
    "toleration",
]

DRIVER: Final = "gpu.example.com"
POOL: Final = "pool-a"
NODE: Final = "node-a"
CLASS: Final = "gpu"

Expressions = str | Sequence[str]

# --- Devices and slices -----------------------------------------------------------------------------------------


def device(
    name: str,
    *,
    attributes: Mapping[str, AttributeValue] | None = None,
    capacity: Mapping[str, Amount | resource_v1.DeviceCapacity] | None = None,
    shareable: bool | None = None,
    draws: Mapping[str, Mapping[str, str]] | None = None,
    taints: Iterable[resource_v1.DeviceTaint] = (),
    node_name: str | None = None,
    node_selector: NodeSelector | None = None,
    all_nodes: bool | None = None,
    binds_to_node: bool | None = None,
    binding_conditions: Sequence[str] = (),
    policies: Mapping[str, resource_v1.CapacityRequestPolicy] | None = None,
    remainder: str | None = None,
) -> resource_v1.Device:
    """A device. `draws` gives, by counter set, the counters that it consumes."""
    return resource_v1.Device(
        name=name,
        attributes={key: parts.attribute(value) for key, value in (attributes or {}).items()},
        capacity=parts.capacities(capacity or {}),
        allow_multiple_allocations=shareable,
        consumes_counters=tuple(
            resource_v1.DeviceCounterConsumption(counter_set=counter_set, counters=parts.counters(counters))
            for counter_set, counters in (draws or {}).items()
        ),
        taints=tuple(taints),
        request_policies=dict(policies or {}),
        remainder=remainder,
        node_name=node_name,
        node_selector=node_selector,
        all_nodes=all_nodes,
        binds_to_node=binds_to_node,
        binding_conditions=tuple(binding_conditions),
        binding_failure_conditions=("failed",) if binding_conditions else (),
    )


def resource_slice(
    name: str,
    *devices: resource_v1.Device,
    driver: str = DRIVER,
    pool: str = POOL,
    generation: int = 1,
    of: int = 1,
    node_name: str | None = NODE,
    node_selector: NodeSelector | None = None,
    all_nodes: bool | None = None,
    per_device: bool | None = None,
    counters: Mapping[str, Mapping[str, str]] | None = None,
) -> resource_v1.ResourceSlice:
    """One of `of` slices of a pool. It is for one node, unless another placement is given."""
    is_placed = node_selector is not None or all_nodes or per_device
    sets = tuple(
        resource_v1.CounterSet(name=key, counters=parts.counters(amounts)) for key, amounts in (counters or {}).items()
    )
    spec = resource_v1.ResourceSliceSpec(
        driver=driver,
        pool=resource_v1.ResourcePool(name=pool, generation=generation, resource_slice_count=of),
        node_name=None if is_placed else node_name,
        node_selector=node_selector,
        all_nodes=all_nodes,
        per_device_node_selection=per_device,
        devices=devices or None,
        shared_counters=sets or None,
    )
    return resource_v1.ResourceSlice(metadata=ObjectMeta(name=name), spec=spec)


def node(name: str = NODE, **labels: str) -> NodeFacts:
    """A node with labels, as the allocator sees it."""
    return NodeFacts(name, labels)


def node_selector(**labels: str) -> NodeSelector:
    """Selects nodes with all of these labels."""
    requirements = tuple(
        NodeSelectorRequirement(key=key, operator="In", values=(value,)) for key, value in labels.items()
    )
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=requirements),))


# --- Taints -----------------------------------------------------------------------------------------------------


def taint(key: str, value: str = "", effect: str = resource_v1.NO_SCHEDULE) -> resource_v1.DeviceTaint:
    """A taint of a device."""
    return resource_v1.DeviceTaint(key=key, value=value, effect=effect)


def toleration(key: str = "", value: str | None = None, effect: str = "") -> resource_v1.DeviceToleration:
    """Tolerates the given value, or every value if none is given."""
    return resource_v1.DeviceToleration(
        key=key, operator=resource_v1.EXISTS if value is None else resource_v1.EQUAL, value=value or "", effect=effect
    )


def taint_rule(
    name: str,
    taint: resource_v1.DeviceTaint,
    *,
    driver: str | None = None,
    pool: str | None = None,
    device: str | None = None,
) -> resource_v1.DeviceTaintRule:
    """A rule for devices with this driver, pool and device; None matches all."""
    selector = resource_v1.DeviceTaintSelector(driver=driver, pool=pool, device=device)
    return resource_v1.DeviceTaintRule(
        metadata=ObjectMeta(name=name), spec=resource_v1.DeviceTaintRuleSpec(device_selector=selector, taint=taint)
    )


# --- Claims -----------------------------------------------------------------------------------------------------


def device_class(
    name: str = CLASS,
    where: Expressions = (),
    config: Sequence[resource_v1.DeviceClassConfiguration] = (),
    prefer: str | None = None,
    extended: str | None = None,
) -> resource_v1.DeviceClass:
    """A class; `extended` is the extended resource that it serves."""
    spec = resource_v1.DeviceClassSpec(
        selectors=_selectors(where), config=tuple(config), device_preference=prefer, extended_resource_name=extended
    )
    return resource_v1.DeviceClass(metadata=ObjectMeta(name=name), spec=spec)


def request(
    name: str = "request",
    *,
    device_class: str = CLASS,
    count: int = 1,
    everything: bool = False,
    where: Expressions = (),
    capacity: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    tolerations: Sequence[resource_v1.DeviceToleration] = (),
    admin: bool | None = None,
    prefer: str | None = None,
    allocations: tuple[int | None, int | None] | None = None,
    together: bool = False,
) -> resource_v1.DeviceRequest:
    """A request for `count` devices, for `everything`, or for at most `count` that have the capacity `together`."""
    exactly = resource_v1.ExactDeviceRequest(
        device_class_name=device_class,
        selectors=_selectors(where),
        allocation_mode=_mode(everything, together),
        count=0 if everything else count,
        admin_access=admin,
        tolerations=tuple(tolerations),
        capacity=_requirements(capacity, limits),
        device_preference=prefer,
        allocations=_range(allocations),
    )
    return resource_v1.DeviceRequest(name=name, exactly=exactly)


def alternative(
    name: str,
    *,
    device_class: str = CLASS,
    count: int = 1,
    everything: bool = False,
    where: Expressions = (),
    capacity: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    tolerations: Sequence[resource_v1.DeviceToleration] = (),
    prefer: str | None = None,
    allocations: tuple[int | None, int | None] | None = None,
    together: bool = False,
) -> resource_v1.DeviceSubRequest:
    """One alternative of `first_available`."""
    return resource_v1.DeviceSubRequest(
        name=name,
        device_class_name=device_class,
        selectors=_selectors(where),
        allocation_mode=_mode(everything, together),
        count=0 if everything else count,
        tolerations=tuple(tolerations),
        capacity=_requirements(capacity, limits),
        device_preference=prefer,
        allocations=_range(allocations),
    )


def first_available(name: str, *alternatives: resource_v1.DeviceSubRequest) -> resource_v1.DeviceRequest:
    """A request with alternatives."""
    return resource_v1.DeviceRequest(name=name, first_available=alternatives)


def match(attribute: str, *requests: str) -> resource_v1.DeviceConstraint:
    """The devices of these requests (default: all) must have equal values of the attribute."""
    return resource_v1.DeviceConstraint(match_attribute=attribute, requests=requests)


def distinct(attribute: str, *requests: str) -> resource_v1.DeviceConstraint:
    """A constraint that devices have different values of the attribute."""
    return resource_v1.DeviceConstraint(distinct_attribute=attribute, requests=requests)


def distinct_in_any(attributes: Sequence[str], *requests: str) -> resource_v1.DeviceConstraint:
    """The devices of these requests (default: all) must differ in at least one of the attributes."""
    return resource_v1.DeviceConstraint(distinct_attributes=tuple(attributes), requests=requests)


def claim(
    name: str = "claim",
    *requests: resource_v1.DeviceRequest,
    namespace: str = "default",
    constraints: Sequence[resource_v1.DeviceConstraint] = (),
    config: Sequence[resource_v1.DeviceClaimConfiguration] = (),
    reserved_for: resource_v1.ConsumerReference | None = None,
    allocation: resource_v1.AllocationResult | None = None,
) -> resource_v1.ResourceClaim:
    """A claim with requests and constraints."""
    devices = resource_v1.DeviceClaim(requests=requests, constraints=tuple(constraints), config=tuple(config))
    return resource_v1.ResourceClaim(
        metadata=ObjectMeta(name=name, namespace=namespace, uid=f"uid-of-{namespace}-{name}"),
        spec=resource_v1.ResourceClaimSpec(devices=devices, reserved_for=reserved_for),
        status=resource_v1.ResourceClaimStatus(allocation=allocation),
    )


def allocation(*results: resource_v1.DeviceRequestAllocationResult) -> resource_v1.AllocationResult:
    """An allocation with these results."""
    return resource_v1.AllocationResult(devices=resource_v1.DeviceAllocationResult(results=results))


def held(
    device: str,
    *,
    driver: str = DRIVER,
    pool: str = POOL,
    request: str = "request",
    share_id: str | None = None,
    consumed: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    admin: bool | None = None,
) -> resource_v1.DeviceRequestAllocationResult:
    """The allocation result of a device or, with a share ID, of a share."""
    return resource_v1.DeviceRequestAllocationResult(
        request=request,
        driver=driver,
        pool=pool,
        device=device,
        share_id=share_id,
        consumed_capacity=_quantities(consumed or {}),
        capacity_limits=_quantities(limits or {}),
        admin_access=admin,
    )


def _selectors(where: Expressions) -> tuple[resource_v1.DeviceSelector, ...]:
    expressions = (where,) if isinstance(where, str) else where
    return tuple(
        resource_v1.DeviceSelector(cel=resource_v1.CELDeviceSelector(expression=expression))
        for expression in expressions
    )


def _mode(everything: bool, together: bool) -> str:
    if everything:
        return resource_v1.ALL
    return resource_v1.AGGREGATED_CAPACITY if together else resource_v1.EXACT_COUNT


def _range(limits: tuple[int | None, int | None] | None) -> resource_v1.DeviceAllocationsRange | None:
    return None if limits is None else resource_v1.DeviceAllocationsRange(min=limits[0], max=limits[1])


def _requirements(
    asked: Mapping[str, str] | None, limits: Mapping[str, str] | None
) -> resource_v1.CapacityRequirements | None:
    if asked is None and limits is None:
        return None
    return resource_v1.CapacityRequirements(requests=_quantities(asked or {}), limits=_quantities(limits or {}))


def _quantities(amounts: Mapping[str, str]) -> dict[str, Quantity]:
    return {name: Quantity.parse(amount) for name, amount in amounts.items()}
