"""Consumable capacity (KEP-5075): how much of a device's capacity a request consumes.

A requested amount is rounded up to what the capacity's request policy allows; without a request, the policy's default is
consumed, or else everything. Every capacity of the device is consumed, requested or not, unless its policy says that nothing
is. A limit is not consumed: the device must have it. Where other shares matter, `devices/share_terms` decides what a share
really takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from dralloc.devices.share_terms import Amounts
from dralloc.kube.resource_v1 import (
    BLOCK_OR_SHARE,
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    DeviceCapacity,
)
from dralloc.primitives.quantity import INT64_MAX, NANOS, NANOS_PER_MILLI, Quantity, quantity_like


class CapacityError(ValueError):
    """An amount that is negative or that Kubernetes cannot represent."""


class Charge(Struct, frozen=True, gc=False):
    """What one allocation consumes of a device, in the order of the device's capacities; `nanos` are the same amounts.

    An amount is None where a share does not consume the capacity. `unasked` is the mask of capacities that are not requested.
    A charge is partial if the search decides what is consumed of the capacities that are requested.
    """

    amounts: tuple[Quantity | None, ...]
    nanos: tuple[int, ...]
    unasked: int = 0
    is_partial: bool = False

    def taking(self, nanos: Amounts, capacities: Iterable[DeviceCapacity]) -> Charge:
        """The charge with other amounts, in the notation of the charge or, where they differ, of the capacity."""
        entries = zip(self.amounts, nanos, capacities, strict=True)
        amounts = tuple(
            None
            if taken is None
            else amount
            if amount is not None and amount.nanos == taken
            else quantity_like(capacity.value, taken)
            for amount, taken, capacity in entries
        )
        return Charge(amounts, tuple(taken or 0 for taken in nanos), self.unasked)


NO_CHARGE = Charge((), ())


def charge_for(
    capacities: Mapping[str, DeviceCapacity],
    asked: Mapping[str, Quantity],
    *,
    limits: Mapping[str, Quantity] | None = None,
    fractional_ranges: bool,
    skips_negative_amounts: bool = False,
) -> Charge | str:
    """What a request consumes of a device, or why even an unused device cannot serve it.

    `capacities` have the policies that apply to them. A capacity in `limits` is also in `asked`.
    Raises CapacityError before any comparison with the capacity, as Kubernetes does. With `skips_negative_amounts`, a negative
    amount that the device itself states is only a reason not to use the device.
    """
    for name in asked:
        if name not in capacities:
            return f"has no capacity {name}"
    if not capacities:
        return NO_CHARGE
    try:
        amounts = tuple(
            _amount(name, capacity, asked.get(name), fractional_ranges) for name, capacity in capacities.items()
        )
    except CapacityError:
        for name, capacity in capacities.items() if skips_negative_amounts else ():
            if name not in asked and (amount := default_amount(capacity)).nanos < 0:
                return f"negative amount {amount} of {name}"
        raise
    for (name, capacity), amount in zip(capacities.items(), amounts, strict=True):
        refusal = _refusal(name, capacity, amount, asked.get(name), fractional_ranges)
        if refusal:
            return refusal
    for name, limit in limits.items() if limits else ():
        if limit > capacities[name].value:
            return f"insufficient {name}: limit {limit}, capacity {capacities[name].value}"
    unasked = sum(1 << index for index, name in enumerate(capacities) if name not in asked)
    return Charge(amounts, tuple([amount.nanos for amount in amounts]), unasked)


def _refusal(
    name: str, capacity: DeviceCapacity, amount: Quantity, asked: Quantity | None, fractional_ranges: bool
) -> str:
    """Why the device cannot give the amount that a request for `asked` consumes; empty if it can."""
    policy = capacity.request_policy
    if policy is None:
        if capacity.request_policy_name is not None:
            return f"has no request policy {capacity.request_policy_name}"
    elif policy.zero_consumption:
        # What is asked is only a condition.
        if asked is not None and asked > capacity.value:
            return f"insufficient {name}: requested {asked}, capacity {capacity.value}"
        return ""
    elif not _allows(policy, amount, fractional_ranges) or (
        policy.strategy == BLOCK_OR_SHARE and asked is not None and not amount
    ):
        return f"request policy of {name} does not allow {amount}"
    if amount > capacity.value:
        return f"insufficient {name}: requested {amount}, capacity {capacity.value}"
    return ""


def base_charge(
    capacities: Mapping[str, DeviceCapacity],
    totals: Mapping[str, Quantity],
    *,
    fractional_ranges: bool,
    skips_negative_amounts: bool = False,
) -> Charge | str:
    """What a request that takes a part of the totals consumes of the other capacities of a device."""
    for name in totals:
        if name not in capacities:
            return f"has no capacity {name}"
    others = {name: capacity for name, capacity in capacities.items() if name not in totals}
    charge = charge_for(others, {}, fractional_ranges=fractional_ranges, skips_negative_amounts=skips_negative_amounts)
    if isinstance(charge, str):
        return charge
    amounts = dict(zip(others, charge.amounts, strict=True))
    every = tuple(amounts.get(name) or Quantity.ZERO for name in capacities)
    unasked = sum(1 << index for index, name in enumerate(capacities) if name in others)
    return Charge(every, tuple(amount.nanos for amount in every), unasked, is_partial=True)


def default_amount(capacity: DeviceCapacity) -> Quantity:
    """The amount that a request consumes if it does not name the capacity."""
    policy = capacity.request_policy
    if policy is not None and policy.zero_consumption:
        return Quantity.ZERO
    return policy.default if policy is not None and policy.default is not None else capacity.value


def _amount(name: str, capacity: DeviceCapacity, asked: Quantity | None, fractional_ranges: bool) -> Quantity:
    policy = capacity.request_policy
    if asked is None:
        amount = default_amount(capacity)
    else:
        amount = asked if policy is None else _rounded_up(policy, asked, fractional_ranges)
    if amount.nanos < 0:
        raise CapacityError(f"negative amount {amount} of {name}")
    return amount


def _rounded_up(policy: CapacityRequestPolicy, asked: Quantity, fractional_ranges: bool) -> Quantity:
    """The least amount that the policy allows and that is not less than requested; if there is none, the requested one."""
    if policy.zero_consumption:
        return Quantity.ZERO
    if (allowed := policy.valid_range) is not None:
        if allowed.min is None:
            return asked
        if asked < allowed.min:
            return allowed.min
        return (
            asked if allowed.step is None else _next_step(allowed, allowed.min, allowed.step, asked, fractional_ranges)
        )
    return next((value for value in policy.valid_values if value >= asked), asked)


def _next_step(
    allowed: CapacityRequestPolicyRange, least: Quantity, step: Quantity, asked: Quantity, fractional_ranges: bool
) -> Quantity:
    unit = _unit(allowed, fractional_ranges)
    if unit == NANOS_PER_MILLI and asked.milli is None:
        raise CapacityError(f"{asked} is not a whole number of thousandths")
    start, stride, wanted = _units(least, unit), _units(step, unit), _units(asked, unit)
    if wanted > INT64_MAX or stride <= 0:
        raise CapacityError(f"{asked} cannot be rounded up to steps of {step}")
    rounded = start + -(-(wanted - start) // stride) * stride
    if rounded > INT64_MAX:
        raise CapacityError(f"{asked}, rounded up to steps of {step}, is too large")
    return Quantity.of(rounded, step.format) if unit == NANOS else Quantity.of_milli(rounded, step.format)


def _allows(policy: CapacityRequestPolicy, amount: Quantity, fractional_ranges: bool) -> bool:
    if policy.default is not None and amount == policy.default:
        return True
    if (allowed := policy.valid_range) is not None:
        if allowed.max is not None and amount > allowed.max:
            return False
        if allowed.step is None or allowed.min is None:
            return True
        unit = _unit(allowed, fractional_ranges)
        stride = _units(allowed.step, unit)
        return stride > 0 and (_units(amount, unit) - _units(allowed.min, unit)) % stride == 0
    return not policy.valid_values or amount in policy.valid_values


def _unit(allowed: CapacityRequestPolicyRange, fractional_ranges: bool) -> int:
    """The unit, in nanos, for the steps of a range: whole units, unless fractional ranges are enabled and exact."""
    stated = [bound for bound in (allowed.min, allowed.max, allowed.step) if bound is not None]
    is_fractional = fractional_ranges and all(bound.milli is not None for bound in stated)
    if is_fractional and allowed.step is not None and allowed.step.nanos >= NANOS_PER_MILLI:
        return NANOS_PER_MILLI
    return NANOS


def _units(quantity: Quantity, unit: int) -> int:
    """The number of units, rounded up."""
    return -(-quantity.nanos // unit)
