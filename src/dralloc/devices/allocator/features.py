"""The optional behaviour of the allocator, from feature gates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, lru_cache

from dralloc.devices.pools import Visibility
from dralloc.devices.share_terms import (
    NAMED_POLICIES_GATE,
    REMAINDER_GATE,
    STRATEGIES_GATE,
    ZERO_CONSUMPTION_GATE,
)
from dralloc.primitives.features import FeatureGates


@dataclass(frozen=True, slots=True)
class Features:
    admin_access: bool = True
    prioritized_list: bool = True
    consumable_capacity: bool = True
    fractional_ranges: bool = False
    partitionable_devices: bool = True
    compatibility_groups: bool = False
    device_taints: bool = True
    taint_rules: bool = True
    binding_conditions: bool = True
    list_attributes: bool = False
    optional_node_operations: bool = False
    derived_attributes: bool = False
    capacity_limits: bool = False
    aggregated_capacity: bool = False
    capacity_strategies: bool = False
    named_request_policies: bool = False
    zero_consumption: bool = False
    capacity_remainder: bool = False
    device_preference: bool = False
    distinct_attributes: bool = False
    # Kubernetes allocates a device with shares in use whole, if the device is not shareable any more and has enough left. The
    # scheduler does not: the owners of the shares keep the device.
    keeps_shares_whole: bool = False
    # Kubernetes ends the search with an error at a device whose policy default or capacity is negative. The scheduler skips the
    # device, so that one faulty device does not stop its whole class.
    skips_negative_amounts: bool = False

    @classmethod
    def of(cls, gates: FeatureGates) -> Features:
        return _features_of(gates)

    def of_scheduler(self) -> Features:
        """The same features, with what the scheduler does otherwise than Kubernetes."""
        return replace(self, keeps_shares_whole=True, skips_negative_amounts=True)

    def taken(self, dedicated: int, shared: int, shareable: int) -> int:
        """The devices that are unavailable, given the masks of dedicated, shared and shareable devices."""
        if not self.consumable_capacity:
            return dedicated | shared
        return dedicated | (shared & ~shareable if self.keeps_shares_whole else 0)

    @property
    def device_gates_off(self) -> frozenset[str]:
        """The gates that are off and without which devices that need them are left alone."""
        return _gates_off(
            (STRATEGIES_GATE, self.capacity_strategies),
            (NAMED_POLICIES_GATE, self.named_request_policies),
            (ZERO_CONSUMPTION_GATE, self.zero_consumption),
            (REMAINDER_GATE, self.capacity_remainder),
        )

    @property
    def visibility(self) -> Visibility:
        return _visibility(self.partitionable_devices, self.compatibility_groups)

    @property
    def is_experimental(self) -> bool:
        """True if a feature is on that makes Kubernetes use its experimental allocator, the only one for skipNodeOperations."""
        return (
            self.list_attributes
            or self.optional_node_operations
            or self.compatibility_groups
            or self.derived_attributes
        )


# One instance of each: it is part of the cache key of views.
_visibility = cache(Visibility)


@cache
def _gates_off(*states: tuple[str, bool]) -> frozenset[str]:
    return frozenset(gate for gate, is_on in states if not is_on)


@lru_cache(maxsize=64)
def _features_of(gates: FeatureGates) -> Features:
    return Features(
        admin_access="DRAAdminAccess" in gates,
        prioritized_list="DRAPrioritizedList" in gates,
        consumable_capacity="DRAConsumableCapacity" in gates,
        fractional_ranges="DRAFractionalCapacityRange" in gates,
        partitionable_devices="DRAPartitionableDevices" in gates,
        compatibility_groups="DRADeviceCompatibilityGroups" in gates,
        device_taints="DRADeviceTaints" in gates,
        taint_rules="DRADeviceTaintRules" in gates,
        binding_conditions="DRADeviceBindingConditions" in gates and "DRAResourceClaimDeviceStatus" in gates,
        list_attributes="DRAListTypeAttributes" in gates,
        optional_node_operations="DRAOptionalNodeOperations" in gates,
        derived_attributes="DRADerivedAttributes" in gates,
        capacity_limits="DRACapacityLimits" in gates,
        aggregated_capacity="DRAAggregatedCapacity" in gates,
        capacity_strategies="DRACapacityStrategies" in gates,
        named_request_policies="DRANamedRequestPolicies" in gates,
        zero_consumption="DRAZeroConsumption" in gates,
        capacity_remainder="DRACapacityRemainder" in gates,
        device_preference="DRADevicePreference" in gates,
        distinct_attributes="DRADistinctAttributes" in gates,
    )
