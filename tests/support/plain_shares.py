"""The third part of the plain allocator: what a share of a device consumes.

It knows all living shares of the device one by one, and asks the product only to round an amount to an ordinary policy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from dralloc.devices.allocator.consumable_capacity import Charge, charge_for
from dralloc.devices.allocator.features import Features
from dralloc.kube.resource_v1 import CapacityRequestPolicy, Device, DeviceCapacity
from dralloc.primitives.quantity import Quantity

# What one share consumes. It has no entry for a capacity that it does not consume.
PlainShare = Mapping[str, Quantity]


def _policy(device: Device, name: str) -> CapacityRequestPolicy:
    capacity = device.capacity[name]
    found = capacity.request_policy
    if capacity.request_policy_name is not None:
        found = device.request_policies.get(capacity.request_policy_name)
    return found or CapacityRequestPolicy()


def consumes_nothing(device: Device, name: str) -> bool:
    return bool(_policy(device, name).zero_consumption)


def missing_gate(device: Device, features: Features) -> bool:
    """True if the device has a policy that the features do not include."""
    policies = [*device.request_policies.values(), *(each.request_policy for each in device.capacity.values())]
    is_named = bool(device.request_policies) or any(each.request_policy_name for each in device.capacity.values())
    has_strategy = any(policy.strategy in ("ConsumedOrNever", "BlockOrShare") for policy in policies if policy)
    consumes_nothing = any(policy.zero_consumption for policy in policies if policy)
    return bool(device.capacity or device.remainder) and (
        (is_named and not features.named_request_policies)
        or (has_strategy and not features.capacity_strategies)
        or (consumes_nothing and not features.zero_consumption)
        or (device.remainder == "GiveToLast" and not features.capacity_remainder)
    )


def charge(
    device: Device, asked: Mapping[str, Quantity], limits: Mapping[str, Quantity], *, fractional_ranges: bool
) -> dict[str, Quantity] | str:
    """What a request takes of an unused device, if every capacity is always consumed, or why it cannot."""
    if not asked.keys() <= device.capacity.keys():
        return "a capacity is missing"
    ordinary = {
        name: DeviceCapacity(value=capacity.value, request_policy=_ordinary(_policy(device, name)))
        for name, capacity in device.capacity.items()
        if not _policy(device, name).zero_consumption
    }
    rounded = charge_for(
        ordinary,
        {name: amount for name, amount in asked.items() if name in ordinary},
        fractional_ranges=fractional_ranges,
    )
    if not isinstance(rounded, Charge):
        return rounded
    if any(amount > device.capacity[name].value for name, amount in (*limits.items(), *asked.items())):
        return "a capacity is too small"
    amounts = dict.fromkeys(device.capacity, Quantity.ZERO)
    for name, amount in zip(ordinary, rounded.amounts, strict=True):
        assert amount is not None
        amounts[name] = amount
    for name, capacity in device.capacity.items():
        if capacity.request_policy_name is not None and capacity.request_policy_name not in device.request_policies:
            return "the policy does not exist"
        if name in asked and _policy(device, name).strategy == "BlockOrShare" and amounts[name] == Quantity.ZERO:
            return "a share cannot take nothing"
    return amounts


def _ordinary(policy: CapacityRequestPolicy) -> CapacityRequestPolicy | None:
    plain = replace(policy, strategy="", zero_consumption=None)
    return plain if plain != CapacityRequestPolicy() else None


def fits(device: Device, taken: PlainShare, living: Collection[PlainShare]) -> bool:
    return all(amount <= _left(device, name, living) for name, amount in taken.items())


def _left(device: Device, name: str, living: Collection[PlainShare]) -> Quantity:
    left = device.capacity[name].value
    for share in living:
        left = left - share.get(name, Quantity.ZERO)
    return left


def share(
    device: Device, asked: Collection[str], charged: Mapping[str, Quantity], living: Collection[PlainShare]
) -> dict[str, Quantity] | None:
    """What one more share gets; None if it gets nothing."""
    taken: dict[str, Quantity] = {}
    for name, amount in charged.items():
        users = [name in other for other in living]
        match _policy(device, name).strategy:
            case "ConsumedOrNever" if any(users):
                if not all(users):
                    return None
                taken[name] = amount
            case "ConsumedOrNever" if users and name in asked:
                return None
            case "ConsumedOrNever":
                if name in asked:
                    taken[name] = amount
            case "BlockOrShare":
                taken[name] = device.capacity[name].value if not users and name not in asked else amount
                if taken[name] == Quantity.ZERO:
                    return None
            case _:
                taken[name] = amount
    if not fits(device, taken, living):
        return None
    return _with_remainder(device, taken, living)


def _with_remainder(device: Device, taken: dict[str, Quantity], living: Collection[PlainShare]) -> dict[str, Quantity]:
    if device.remainder != "GiveToLast":
        return taken
    consumed = [name for name in taken if not _policy(device, name).zero_consumption]
    left_over = {name: _left(device, name, (*living, taken)) for name in consumed}
    if not any(taken[name] > Quantity.ZERO and _is_end(device, name, left_over[name]) for name in consumed):
        return taken
    return {name: amount + left_over[name] if name in left_over else amount for name, amount in taken.items()}


def _is_end(device: Device, name: str, left: Quantity) -> bool:
    """True if nobody can ask for something and get no more than is left."""
    policy = _policy(device, name)
    tiny = Quantity.parse("1n")
    whole = DeviceCapacity(value=Quantity.parse("1000000"), request_policy=_ordinary(policy))
    least = charge_for({name: whole}, {name: tiny}, fractional_ranges=False)
    amounts = [amount for amount in least.amounts if amount is not None] if isinstance(least, Charge) else []
    amounts += [policy.default] if policy.default is not None else []
    return all(amount > left for amount in amounts if amount > Quantity.ZERO)
