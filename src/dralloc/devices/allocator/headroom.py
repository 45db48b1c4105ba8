"""The largest amount that a device can still give: what a request could ask for, after rounding to the policy.

The counterpart of `consumable_capacity`, for messages that say what would fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from dralloc.devices.allocator.consumable_capacity import CapacityError, Charge, charge_for
from dralloc.devices.allocator.features import Features
from dralloc.devices.device_usage import DeviceUsage
from dralloc.devices.share_terms import Refusal, ShareTerms, capacities_of, terms_of
from dralloc.kube.resource_v1 import CapacityRequestPolicy, Device, DeviceCapacity
from dralloc.primitives.quantity import NANOS, NANOS_PER_MILLI, Quantity, quantity_like

_LEAST: Final = Quantity.parse("1n")


class Room(Struct, frozen=True, gc=False):
    """What shares leave of a device: in nanos, in the order of the capacities; with `terms`, the state of the device.

    `capacities` have the policies that apply to them.
    """

    capacities: Mapping[str, DeviceCapacity]
    state: Sequence[int]
    terms: ShareTerms | None = None
    fractional_ranges: bool = False

    @classmethod
    def of(cls, device: Device, usage: DeviceUsage, features: Features) -> Room:
        capacities = capacities_of(device)
        terms = terms_of(device) if features.consumable_capacity else None
        left = [each.value.nanos - usage.consumed.get(name, 0) for name, each in capacities.items()]
        state = left if terms is None else terms.state(usage)
        return cls(capacities, state, terms, features.fractional_ranges)

    def largest_request(self, name: str) -> Quantity | None:
        """The most of one capacity that a request could get of a device, if it asks for as little as it can of the others.

        None if no request fits: of another capacity even the least is more than is left, or the policy has no amount that
        is small enough, or the capacity is not consumable.
        """
        if not all(self._accepts(other) for other in self.capacities if other != name):
            return None
        capacity = self.capacities[name]
        have = self.state[list(self.capacities).index(name)]
        policy = capacity.request_policy
        if policy is not None and policy.zero_consumption:
            have = capacity.value.nanos
        for amount in _amounts_within(capacity, min(have, capacity.value.nanos)):
            if amount.nanos >= 0 and self._fits(name, amount):
                return amount
        return None

    def accepts_something(self) -> bool:
        """True if some request takes no more than is left of each capacity."""
        return all(map(self._accepts, self.capacities))

    def fits_unasked(self) -> bool:
        """True if a request that names no amounts takes no more than is left."""
        return all(self._fits(name, None) for name in self.capacities)

    def accepts_nothing(self) -> bool:
        """True if the policy of a capacity names zero as an amount, and such a request fits."""
        return any(
            _names_zero(capacity.request_policy) and self._fits(name, Quantity.ZERO)
            for name, capacity in self.capacities.items()
        )

    def _accepts(self, name: str) -> bool:
        """True if a request without an amount, or with the least amount, takes no more of the capacity than is left."""
        policy = self.capacities[name].request_policy
        amounts = [None, Quantity.ZERO]
        if policy is not None:
            amounts += policy.valid_values
        if self.terms is not None:
            # A strategy can exclude an amount of zero.
            amounts.append(_LEAST)
        return any(self._fits(name, amount) for amount in amounts)

    def _fits(self, name: str, amount: Quantity | None) -> bool:
        """True if a request for the amount, or without one, takes no more than is left."""
        asked = {} if amount is None else {name: amount}
        try:
            charge = charge_for({name: self.capacities[name]}, asked, fractional_ranges=self.fractional_ranges)
        except CapacityError:
            return False
        if not isinstance(charge, Charge):
            return False
        index = list(self.capacities).index(name)
        if self.terms is None:
            return charge.nanos[0] <= self.state[index]
        taken = self.terms.amount(index, tuple(self.state), charge.nanos[0], is_asked=amount is not None)
        return not isinstance(taken, Refusal)


def _names_zero(policy: CapacityRequestPolicy | None) -> bool:
    if policy is None:
        return False
    least = policy.valid_range.min if policy.valid_range is not None else None
    return (least is not None and not least) or any(not value for value in policy.valid_values)


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


# --- Device capacities ----------------------------------------------------------------------------------------------
# What is used and left of the capacities of a device, and the most that one more request can get of each.


@dataclass(frozen=True, slots=True)
class CapacityReport:
    """`free` is what claims can get, nothing of a device that is blocked. `largest` is the most that one more request can get,
    after rounding; None if none fits."""

    name: str
    value: Quantity
    used: Quantity
    free: Quantity
    largest: Quantity | None

    @property
    def is_exhausted(self) -> bool:
        """True if nothing is left; a request for nothing may still fit."""
        return not self.free and bool(self.value)


def capacities_left(
    device: Device, usage: DeviceUsage, features: Features, *, is_open: bool
) -> tuple[tuple[CapacityReport, ...], bool]:
    """The capacities, and whether they have room for a request. Of a device that is not open, nothing can be claimed."""
    room = Room.of(device, usage, features)
    has_room = _has_room(room, usage, features)
    reports: list[CapacityReport] = []
    for (name, capacity), nanos in zip(device.capacity.items(), room.state, strict=False):
        used = capacity.value if usage.dedicated else quantity_like(capacity.value, capacity.value.nanos - nanos)
        free, largest = quantity_like(capacity.value, 0), None
        if is_open and has_room:
            largest = room.largest_request(name)
            # No request gets any of a capacity that is not consumable.
            is_available = largest is not None or room.terms is None
            free = quantity_like(capacity.value, nanos if is_available else 0)
        reports.append(CapacityReport(name, capacity.value, used, free, largest))
    return tuple(reports), has_room


def _has_room(room: Room, usage: DeviceUsage, features: Features) -> bool:
    """True if a request for something fits, or one that names no amounts, or one for nothing where a policy names zero."""
    if not features.consumable_capacity:
        return True
    if not room.accepts_something():
        return False
    pairs = list(zip(room.capacities.values(), room.state, strict=False))
    is_exhausted = bool(pairs) and all(not nanos and capacity.value for capacity, nanos in pairs)
    return not (usage.shares and is_exhausted) or room.fits_unasked() or room.accepts_nothing()
