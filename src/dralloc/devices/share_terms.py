"""What a share consumes of a device where that depends on the other shares: strategies and the remainder.

- `ConsumedOrNever`: the first share decides. Without a request, the capacity is not consumable while the share lives: later
  shares do not request it either. With a request, every later share consumes it. A share that does not consume the capacity
  has no entry for it in `consumedCapacity`, so that the living shares alone tell which it is.
- `BlockOrShare`: a first share without a request takes all of the capacity. Every share takes some of it.
- `GiveToLast`: a share that leaves too little of a capacity for another one gets the rest of all that it consumes.

Amounts are in nanos. The states of a device are tuples, so that a search can keep, compare and restore them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from dralloc.devices.device_usage import DeviceUsage
from dralloc.kube.resource_v1 import (
    ALWAYS_CONSUMED,
    BLOCK_OR_SHARE,
    CONSUMED_OR_NEVER,
    GIVE_TO_LAST,
    CapacityRequestPolicy,
    Device,
    DeviceCapacity,
)

# What is left of each capacity, followed by the mode of each.
State = tuple[int, ...]
# What a share takes of each capacity; None where it does not consume it.
Amounts = tuple[int | None, ...]

# Modes of a capacity, from the living shares: there is none; all consume it; none does; some do.
UNDECIDED: Final = 0
CONSUMED: Final = 1
NEVER: Final = 2
MIXED: Final = 3


class RefusalCause(Enum):
    SHORT = "too little is left"
    NOT_CONSUMABLE = "the first share does not consume it, so no share does"
    DIVIDED = "some shares consume it and others do not"


class Refusal(NamedTuple):
    """Why a share cannot have a capacity that it would take `needed` of."""

    cause: RefusalCause
    needed: int


class CapacityTerms(Struct, frozen=True, gc=False):
    """One capacity: what the device has of it, and the least positive amount that its policy gives."""

    name: str
    value: int
    strategy: str
    least: int
    is_consumable: bool


class ShareTerms(Struct, frozen=True, gc=False):
    """The rules of one device, in the order of its capacities."""

    capacities: tuple[CapacityTerms, ...]
    gives_rest: bool

    def state(self, usage: DeviceUsage) -> State:
        left = [terms.value - usage.consumed.get(terms.name, 0) for terms in self.capacities]
        return (*left, *(_mode(terms, usage) for terms in self.capacities))

    def amounts(self, state: State, requested: tuple[int, ...], unasked: int) -> Amounts | None:
        """What a share takes in this state; None if the device has no room for it.

        `requested` is what the share would take without these rules, and `unasked` the mask of the capacities that it does
        not request.
        """
        taken: list[int | None] = []
        for index, nanos in enumerate(requested):
            amount = self.amount(index, state, nanos, is_asked=not unasked >> index & 1)
            if isinstance(amount, Refusal):
                return None
            taken.append(amount)
        return self._with_rest(state, taken) if self.gives_rest else tuple(taken)

    def amount(self, index: int, state: State, requested: int, *, is_asked: bool) -> int | Refusal | None:
        """What a share takes of one capacity, the remainder aside, or why it cannot have any."""
        terms, mode = self.capacities[index], state[len(self.capacities) + index]
        amount = requested
        if terms.strategy == CONSUMED_OR_NEVER:
            if mode == MIXED or (mode == NEVER and is_asked):
                return Refusal(RefusalCause.DIVIDED if mode == MIXED else RefusalCause.NOT_CONSUMABLE, requested)
            if mode != CONSUMED and not is_asked:
                return None
        elif terms.strategy == BLOCK_OR_SHARE:
            amount = terms.value if mode == UNDECIDED and not is_asked else requested
        is_too_much = amount > state[index] or (terms.strategy == BLOCK_OR_SHARE and not amount)
        return Refusal(RefusalCause.SHORT, amount) if is_too_much else amount

    def after(self, state: State, amounts: Amounts) -> State:
        """The state with one more share."""
        count = len(self.capacities)
        left = (state[index] - (amount or 0) for index, amount in enumerate(amounts))
        modes = (
            NEVER if amount is None else max(state[count + index], CONSUMED) for index, amount in enumerate(amounts)
        )
        return (*left, *modes)

    def least(self, requested: tuple[int, ...], unasked: int) -> tuple[int, ...]:
        """What a share takes at least, in any state."""
        return tuple(
            0 if terms.strategy == CONSUMED_OR_NEVER and unasked >> index & 1 else requested[index]
            for index, terms in enumerate(self.capacities)
        )

    def _with_rest(self, state: State, taken: list[int | None]) -> Amounts:
        is_last = any(
            terms.is_consumable and amount and have - amount < terms.least
            for terms, have, amount in zip(self.capacities, state, taken, strict=False)
        )
        if not is_last:
            return tuple(taken)
        return tuple(
            have if terms.is_consumable and amount is not None else amount
            for terms, have, amount in zip(self.capacities, state, taken, strict=False)
        )


def _mode(terms: CapacityTerms, usage: DeviceUsage) -> int:
    if not usage.shares:
        return UNDECIDED
    if terms.strategy != CONSUMED_OR_NEVER:
        return CONSUMED
    if terms.name not in usage.consumed:
        return NEVER
    return MIXED if terms.name in usage.without else CONSUMED


def terms_of(device: Device) -> ShareTerms | None:
    """None if what a share of the device consumes does not depend on other shares."""
    if not device.allow_multiple_allocations or not device.capacity:
        return None
    gives_rest = device.remainder == GIVE_TO_LAST
    if not gives_rest and all(strategy_of(policy) == ALWAYS_CONSUMED for policy in _policies(device)):
        return None
    return ShareTerms(tuple(_capacity_terms(device)), gives_rest)


def _policies(device: Device) -> Iterator[CapacityRequestPolicy | None]:
    return (capacity.request_policy for capacity in capacities_of(device).values())


def _capacity_terms(device: Device) -> Iterator[CapacityTerms]:
    for name, capacity in capacities_of(device).items():
        policy = capacity.request_policy
        is_consumable = policy is None or not policy.zero_consumption
        yield CapacityTerms(name, capacity.value.nanos, strategy_of(policy), least_amount(policy), is_consumable)


def least_amount(policy: CapacityRequestPolicy | None) -> int:
    """The least positive amount that a request can get, in nanos."""
    if policy is None:
        return 1
    amounts = [policy.default] if policy.default is not None else []
    if (allowed := policy.valid_range) is not None:
        if allowed.min is None:
            return 1
        amounts.append(allowed.min)
        if allowed.min.nanos <= 0:
            if allowed.step is None:
                return 1
            amounts.append(allowed.min + allowed.step)
    elif policy.valid_values:
        amounts += policy.valid_values
    else:
        return 1
    return min((amount.nanos for amount in amounts if amount.nanos > 0), default=1)


# --- Request policies -----------------------------------------------------------------------------------------------
# The request policies of a device's capacities, and the feature gates that they need.
#
# A capacity has a policy of its own, or names one of the device's. `capacities_of` is the only place that looks
# policies up.


STRATEGIES_GATE: Final = "DRACapacityStrategies"
NAMED_POLICIES_GATE: Final = "DRANamedRequestPolicies"
ZERO_CONSUMPTION_GATE: Final = "DRAZeroConsumption"
REMAINDER_GATE: Final = "DRACapacityRemainder"


def capacities_of(device: Device) -> Mapping[str, DeviceCapacity]:
    """The device's capacities, each with the policy that applies to it."""
    if not device.request_policies:
        return device.capacity
    return {name: _resolved(device, capacity) for name, capacity in device.capacity.items()}


def _resolved(device: Device, capacity: DeviceCapacity) -> DeviceCapacity:
    """The capacity with the policy that it names. It keeps a name without a policy, which nothing can be requested of."""
    policy = device.request_policies.get(capacity.request_policy_name or "")
    return capacity if policy is None else replace(capacity, request_policy=policy, request_policy_name=None)


def strategy_of(policy: CapacityRequestPolicy | None) -> str:
    return (policy.strategy if policy is not None else "") or ALWAYS_CONSUMED


def gates_needed(device: Device) -> Iterator[str]:
    """The feature gates without which it is unknown how much a share of the device consumes."""
    if device.request_policies or any(each.request_policy_name is not None for each in device.capacity.values()):
        yield NAMED_POLICIES_GATE
    policies = [each.request_policy for each in device.capacity.values() if each.request_policy is not None]
    policies += device.request_policies.values()
    if any(strategy_of(policy) != ALWAYS_CONSUMED for policy in policies):
        yield STRATEGIES_GATE
    if any(policy.zero_consumption for policy in policies):
        yield ZERO_CONSUMPTION_GATE
    if device.remainder == GIVE_TO_LAST:
        yield REMAINDER_GATE
