"""The request policies of a device's capacities, and the feature gates that they need.

A capacity has a policy of its own, or names one of the device's. `capacities_of` is the only place that looks policies up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from dralloc.api.resource_v1 import (
    ALWAYS_CONSUMED,
    GIVE_TO_LAST,
    CapacityRequestPolicy,
    Device,
    DeviceCapacity,
)

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
