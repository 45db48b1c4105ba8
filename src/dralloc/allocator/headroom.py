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

    `free` is what is left, in nanos, in the order of the capacities. None if no request fits: of another capacity even
    the least is more than is left, or the policy has no amount that is small enough.
    """
    left = dict(zip(capacities, free, strict=True))
    others = (other for other in capacities if other != name)
    if not all(accepts(capacities[other], left[other], fractional_ranges=fractional_ranges) for other in others):
        return None
    for amount in _amounts_within(capacities[name], min(left[name], capacities[name].value.nanos)):
        if amount.nanos >= 0 and _fits(name, capacities[name], amount, left[name], fractional_ranges):
            return amount
    return None


def accepts(capacity: DeviceCapacity, left: int, *, fractional_ranges: bool) -> bool:
    """True if some request takes no more of the capacity than is left: one without an amount, or with the least amount."""
    policy = capacity.request_policy
    amounts = [None, Quantity.ZERO]
    if policy is not None:
        amounts += policy.valid_values
    return any(_fits("", capacity, amount, left, fractional_ranges) for amount in amounts)


def fits_unasked(capacities: Mapping[str, DeviceCapacity], left: Sequence[int], *, fractional_ranges: bool) -> bool:
    """True if a request that names no amounts takes no more than is left."""
    return all(
        _fits("", capacity, None, nanos, fractional_ranges)
        for capacity, nanos in zip(capacities.values(), left, strict=True)
    )


def _fits(name: str, capacity: DeviceCapacity, amount: Quantity | None, left: int, fractional_ranges: bool) -> bool:
    """True if a request for the amount, or without one, takes no more than is left."""
    asked = {} if amount is None else {name: amount}
    try:
        charge = charge_for({name: capacity}, asked, fractional_ranges=fractional_ranges)
    except CapacityError:
        return False
    return isinstance(charge, Charge) and charge.nanos[0] <= left


def _amounts_within(capacity: DeviceCapacity, have: int) -> list[Quantity]:
    """The amounts worth trying, largest first."""
    policy = capacity.request_policy
    if policy is None or (policy.valid_range is None and not policy.valid_values):
        return [quantity_like(capacity.value, have)]
    # The default is allowed, whatever else the policy says.
    amounts = [policy.default] if policy.default is not None and policy.default.nanos <= have else []
    if policy.valid_range is not None:
        amounts += _amounts_in_range(policy, capacity.value, have)
    else:
        amounts += (value for value in policy.valid_values if value.nanos <= have)
    return sorted(amounts, reverse=True)


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
    return [*amounts, least]
