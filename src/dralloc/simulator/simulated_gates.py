"""The feature gates of simulated components: the defaults, and the alpha features that simulated devices and claims use."""

from __future__ import annotations

from typing import Final

from dralloc.primitives.features import FeatureGates

GATES: Final = FeatureGates.parse(
    "DRACapacityLimits=true,DRACapacityStrategies=true,DRAZeroConsumption=true,"
    "DRANamedRequestPolicies=true,DRACapacityRemainder=true,"
    "DRAAggregatedCapacity=true,DRADevicePreference=true,DRADistinctAttributes=true,DRAPreemption=true"
)


def switched(gate: str, on: bool) -> FeatureGates:
    """The gates with one switched. Without consumable capacity, the features that need it are off, too."""
    base = FeatureGates.defaults() if gate == "DRAConsumableCapacity" and not on else GATES
    return base.override({gate: on})
