"""The feature gates of simulated components: the defaults, and the alpha features that simulated devices and claims use."""

from __future__ import annotations

from typing import Final

from dralloc.primitives.features import FeatureGates

GATES: Final = FeatureGates.parse(
    "DRACapacityLimits=true,DRACapacityStrategies=true,DRAZeroConsumption=true,"
    "DRANamedRequestPolicies=true,DRACapacityRemainder=true,"
    "DRAAggregatedCapacity=true,DRADevicePreference=true,DRADistinctAttributes=true,DRAPreemption=true,"
    "GenericWorkload=true,DRAWorkloadResourceClaims=true,TopologyAwareWorkloadScheduling=true,WorkloadWithJob=true"
)


def switched(gate: str, on: bool) -> FeatureGates:
    """The gates with one switched. What needs a feature that is off is off, too."""
    base = FeatureGates.defaults() if gate in ("DRAConsumableCapacity", "GenericWorkload") and not on else GATES
    return base.override({gate: on})
