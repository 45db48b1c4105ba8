"""Builders for devices and pools: plain numbers and texts in, API objects out.

device("gpu-0", attributes={"model": "a100"}, shareable=True, capacity={"memory": capacity("80Gi", default="10Gi", minimum="1Gi")})
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from dralloc.driver.vendor_errors import made_with_known_arguments, with_known_arguments
from dralloc.kube import device_parts as parts
from dralloc.kube.device_parts import Amount, AttributeValue, BadArgument
from dralloc.kube.meta_v1 import NodeSelector
from dralloc.kube.resource_v1 import (
    CapacityRequestPolicy,
    CounterSet,
    Device,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
)

Part = TypeVar("Part")


@made_with_known_arguments
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


# The same values as in tests and simulations, with messages for authors of drivers.
capacity = with_known_arguments(parts.capacity)
version = with_known_arguments(parts.version)


@with_known_arguments
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
    """A device of a node.

    `attributes` are compared by selectors: a string, an integer, a boolean, or `version("1.2.3")`. `capacity` are amounts, plain ones or
    with a policy (see `capacity`). With `shareable=True` several claims may use the device at once, each a part of its capacity.
    `draws` are the counters that the device consumes, by counter set: partitions of one card draw from the same set (see `counter_set`).
    `taints` keep pods away (see `taint`). `policies` are request policies for `capacity(..., policy_name=...)`. With
    `remainder="GiveToLast"`, the share that uses up one capacity gets what is available of the others.

    device("gpu-0", attributes={"model": "a100"}, shareable=True, capacity={"memory": capacity("80Gi", default="10Gi", minimum="1Gi")})
    """
    if not isinstance(name, str):
        raise BadArgument(f"device(): the name {name!r} is not a str")
    drawn = _by_name(draws, parts.counters, name, "draws", "draws")
    return Device(
        name=name,
        attributes=_by_name(attributes, parts.attribute, name, "attributes", "attribute"),
        capacity=_by_name(capacity, parts.capacity_of, name, "capacity", "capacity"),
        allow_multiple_allocations=True if shareable else None,
        consumes_counters=tuple(
            DeviceCounterConsumption(counter_set=key, counters=counters) for key, counters in drawn.items()
        ),
        taints=_taints(taints, name),
        request_policies=dict(policies or {}),
        remainder=remainder,
    )


def counter_set(name: str, **counters: Amount) -> CounterSet:
    """Counters that devices of the pool consume, such as the memory of a partitionable card.

    Pool(name="node-1", counters=(counter_set("card-0", memory="80Gi"),), devices=(device("half-0", draws={"card-0": {"memory": "40Gi"}}),))
    """
    return CounterSet(name=name, counters=parts.counters(counters))


@with_known_arguments
def taint(key: str, value: str = "", *, effect: str = "NoSchedule") -> DeviceTaint:
    """A taint of a device: `NoSchedule` keeps new pods away, `NoExecute` also evicts running pods, `None` is only information.

    Pods whose request tolerates the taint are not affected.
    """
    return DeviceTaint(key=key, value=value, effect=effect)


def _by_name(
    given: Mapping[str, Any] | None, make: Callable[[Any], Part], device: str, argument: str, one: str
) -> dict[str, Part]:
    """The parts of the device by name; a value that cannot be one is told with its name. Drivers need not have types."""
    if given is not None and not isinstance(given, Mapping):
        raise BadArgument(f"device {device}: {argument} is a {type(given).__name__}; use a dict by name")
    made = {}
    for name, value in (given or {}).items():
        try:
            made[name] = make(value)
        except ValueError as error:
            raise BadArgument(f"device {device}, {one} {name}: {error}") from None
    return made


def _taints(given: Any, device: str) -> tuple[DeviceTaint, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise BadArgument(f"device {device}: taints is a {type(given).__name__}; use a list of taint(...)")
    taints = tuple(given)
    for each in taints:
        if not isinstance(each, DeviceTaint):
            raise BadArgument(f"device {device}: taints has {each!r}; use a list of taint(...)")
    return taints
