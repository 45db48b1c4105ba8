"""Builders for devices and pools: plain numbers and texts in, API objects out.

device("gpu-0", attributes={"model": "a100"}, shareable=True, capacity={"memory": capacity("80Gi", default="10Gi", step="1Gi")})
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dralloc.api import device_parts as parts
from dralloc.api.device_parts import Amount, AttributeValue
from dralloc.api.meta_v1 import NodeSelector
from dralloc.api.resource_v1 import (
    CapacityRequestPolicy,
    CounterSet,
    Device,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Devices that are published together; allocators try them in this order.

    They are local to the driver's node unless another placement is given. The publisher raises `generation` as needed.
    """

    name: str
    devices: tuple[Device, ...] = ()
    counters: tuple[CounterSet, ...] = ()
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    # Every device has its own node selection.
    per_device_nodes: bool = False
    generation: int = 0
    partition_type_attribute: str | None = None
    skip_node_operations: tuple[str, ...] = ()


def device(
    name: str,
    *,
    attributes: Mapping[str, AttributeValue] | None = None,
    capacity: Mapping[str, Amount | DeviceCapacity] | None = None,
    shareable: bool = False,
    draws: Mapping[str, Mapping[str, Amount]] | None = None,
    taints: Iterable[DeviceTaint] = (),
    policies: Mapping[str, CapacityRequestPolicy] | None = None,
    remainder: str | None = None,
) -> Device:
    """A device. `shareable` allows multiple allocations, each with a part of its capacity; `draws` are consumed counters by set.

    `policies` are request policies for `capacity(..., policy_name=...)`; with `remainder="GiveToLast"`, the share that uses up one
    capacity gets what is left of the others.
    """
    return Device(
        name=name,
        attributes={key: parts.attribute(value) for key, value in (attributes or {}).items()},
        capacity=parts.capacities(capacity or {}),
        allow_multiple_allocations=True if shareable else None,
        consumes_counters=tuple(
            DeviceCounterConsumption(counter_set=key, counters=parts.counters(amounts))
            for key, amounts in (draws or {}).items()
        ),
        taints=tuple(taints),
        request_policies=dict(policies or {}),
        remainder=remainder,
    )


def counter_set(name: str, **counters: Amount) -> CounterSet:
    """Counters that devices of the pool consume, such as the memory of a partitionable card."""
    return CounterSet(name=name, counters=parts.counters(counters))


def taint(key: str, value: str = "", *, effect: str = "NoSchedule") -> DeviceTaint:
    return DeviceTaint(key=key, value=value, effect=effect)
