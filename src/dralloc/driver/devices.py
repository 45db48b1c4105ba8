"""Devices as a driver writes them down: plain numbers and texts in, objects of the API out.

device("gpu-0", attributes={"model": "a100"}, shareable=True, capacity={"memory": capacity("80Gi", default="10Gi", step="1Gi")})
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dralloc.api.meta_v1 import NodeSelector
from dralloc.api.resource_v1 import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
)
from dralloc.primitives.quantity import Quantity

Amount = str | int
AttributeValue = bool | int | str | DeviceAttribute


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Devices that are published together, in the order in which they are to be tried.

    They can be reached from the driver's node, unless another placement is given. `generation` need not be given: it is
    counted up as needed.
    """

    name: str
    devices: tuple[Device, ...] = ()
    counters: tuple[CounterSet, ...] = ()
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    # Every device says for itself from where it can be reached.
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
) -> Device:
    """A device. `shareable`: several claims may use it at once, each a part of its capacity. `draws`: by counter set, what it takes."""
    return Device(
        name=name,
        attributes={key: _attribute(value) for key, value in (attributes or {}).items()},
        capacity={key: _capacity(value) for key, value in (capacity or {}).items()},
        allow_multiple_allocations=True if shareable else None,
        consumes_counters=tuple(
            DeviceCounterConsumption(counter_set=key, counters=_counters(amounts))
            for key, amounts in (draws or {}).items()
        ),
        taints=tuple(taints),
    )


def capacity(
    value: Amount,
    *,
    default: Amount | None = None,
    valid: Sequence[Amount] = (),
    minimum: Amount | None = None,
    maximum: Amount | None = None,
    step: Amount | None = None,
) -> DeviceCapacity:
    """How much there is, and for a shareable device how much of it one claim may take."""
    valid_range = CapacityRequestPolicyRange(min=_quantity(minimum), max=_quantity(maximum), step=_quantity(step))
    policy = CapacityRequestPolicy(
        default=_quantity(default),
        valid_values=tuple(map(Quantity.parse, valid)),
        valid_range=valid_range if valid_range != CapacityRequestPolicyRange() else None,
    )
    return DeviceCapacity(
        value=Quantity.parse(value), request_policy=policy if policy != CapacityRequestPolicy() else None
    )


def version(text: str) -> DeviceAttribute:
    """An attribute that is compared as a semantic version."""
    return DeviceAttribute(version=text)


def counter_set(name: str, **counters: Amount) -> CounterSet:
    """Amounts that devices of the pool draw from, such as the memory of a card that can be partitioned."""
    return CounterSet(name=name, counters=_counters(counters))


def taint(key: str, value: str = "", *, effect: str = "NoSchedule") -> DeviceTaint:
    return DeviceTaint(key=key, value=value, effect=effect)


def _attribute(value: AttributeValue) -> DeviceAttribute:
    match value:
        case DeviceAttribute():
            return value
        case bool():
            return DeviceAttribute(bool=value)
        case int():
            return DeviceAttribute(int=value)
        case str():
            return DeviceAttribute(string=value)


def _capacity(value: Amount | DeviceCapacity) -> DeviceCapacity:
    return value if isinstance(value, DeviceCapacity) else DeviceCapacity(value=Quantity.parse(value))


def _counters(amounts: Mapping[str, Amount]) -> dict[str, Counter]:
    return {name: Counter(value=Quantity.parse(amount)) for name, amount in amounts.items()}


def _quantity(amount: Amount | None) -> Quantity | None:
    return None if amount is None else Quantity.parse(amount)
