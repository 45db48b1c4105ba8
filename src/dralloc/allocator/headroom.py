"""The largest amount that a device can still give: what a request could ask for, after rounding to the policy.

The counterpart of `consumable_capacity`, for messages that say what would fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dralloc.allocator.consumable_capacity import CapacityError, Charge, charge_for
from dralloc.api.resource_v1 import CapacityRequestPolicy, DeviceCapacity
from dralloc.primitives.quantity import NANOS, NANOS_PER_MILLI, Quantity, quantity_like


def largest_request(
    capacities: Mapping[str, DeviceCapacity], name: str, free: Sequence[int], *, fractional_ranges: bool
) -> Quantity | None:
    """The most of one capacity that a request could get of a device, if it asks for as little as it can of the others.

    `free` is what is left, in nanos, in the order of the capacities. None where no request fits: of another capacity even
    the least is more than is left, or the policy has no amount that is small enough.
    """
    left = dict(zip(capacities, free, strict=True))
    if any(_least(capacity) > left[other] for other, capacity in capacities.items() if other != name):
        return None
    for amount in _amounts_within(capacities[name], min(left[name], capacities[name].value.nanos)):
        if amount.nanos >= 0 and _fits(name, capacities[name], amount, left[name], fractional_ranges):
            return amount
    return None


def _least(capacity: DeviceCapacity) -> int:
    """The least that a request can take, in nanos."""
    policy = capacity.request_policy
    if policy is None:
        return 0
    if policy.valid_range is not None:
        return policy.valid_range.min.nanos if policy.valid_range.min is not None else 0
    return min((value.nanos for value in policy.valid_values), default=0)


def _fits(name: str, capacity: DeviceCapacity, amount: Quantity, left: int, fractional_ranges: bool) -> bool:
    try:
        charge = charge_for({name: capacity}, {name: amount}, fractional_ranges=fractional_ranges)
    except CapacityError:
        return False
    return isinstance(charge, Charge) and charge.nanos[0] <= left


def _amounts_within(capacity: DeviceCapacity, have: int) -> list[Quantity]:
    """The amounts worth trying, largest first."""
    policy = capacity.request_policy
    if policy is None:
        return [quantity_like(capacity.value, have)]
    if policy.valid_range is not None:
        return _amounts_in_range(policy, capacity.value, have)
    if policy.valid_values:
        return sorted((value for value in policy.valid_values if value.nanos <= have), reverse=True)
    return [quantity_like(capacity.value, have)]


def _amounts_in_range(policy: CapacityRequestPolicy, model: Quantity, have: int) -> list[Quantity]:
    allowed = policy.valid_range
    assert allowed is not None
    if allowed.max is not None:
        have = min(have, allowed.max.nanos)
    least = allowed.min
    if least is None:
        return [quantity_like(model, have)]
    if have < least.nanos:
        return []
    if allowed.step is None or allowed.step.nanos <= 0:
        return [quantity_like(model, have), least]
    amounts = [quantity_like(least, least.nanos + (have - least.nanos) // allowed.step.nanos * allowed.step.nanos)]
    # Kubernetes rounds the bounds up to whole units before it counts steps, unless fractions are on.
    for unit in (NANOS_PER_MILLI, NANOS):
        start, stride = (-(-bound.nanos // unit) for bound in (least, allowed.step))
        steps = (have // unit - start) // stride
        amounts += [quantity_like(least, (start + steps * stride) * unit)] if steps >= 0 else []
    return [*sorted(amounts, reverse=True), least]
