"""Feature gates as a value that is passed as an argument; nothing in the project reads a global switch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from msgspec import Struct


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate: its default, whether it is locked, and the gates that it depends on. `beta`: off by default, but not alpha; `ga`: neither."""

    name: str
    default: bool
    locked: bool = False
    requires: tuple[str, ...] = ()
    beta: bool = False
    ga: bool = False

    @property
    def stage(self) -> str:
        """As Kubernetes' metrics have it: empty for features that are generally available."""
        return "" if self.ga else "BETA" if self.default or self.beta else "ALPHA"


_DRA: Final = ("DynamicResourceAllocation",)
_CAPACITY: Final = ("DRAConsumableCapacity",)
_GROUPS: Final = ("GenericWorkload",)

# A setting for all alpha gates that the same settings do not name, except those that need a beta gate which is off. A
# gate that is off by default is alpha, unless it says otherwise.
ALL_ALPHA: Final = "AllAlpha"

# The gates of Kubernetes 1.37, then our own. `DRAPrioritizedList` is locked there; here it can be turned off, because
# KEP-4816 describes that upgrade path.
GATES: Final[Mapping[str, Gate]] = {
    gate.name: gate
    for gate in (
        Gate("DynamicResourceAllocation", default=True, locked=True, ga=True),
        Gate("DRAAdminAccess", default=True, requires=_DRA, ga=True),
        Gate("DRAPrioritizedList", default=True, requires=_DRA, ga=True),
        Gate("DRAResourceClaimDeviceStatus", default=True, ga=True),
        Gate(
            "DRAResourceClaimGranularStatusAuthorization",
            default=True,
            requires=(*_DRA, "DRAResourceClaimDeviceStatus"),
        ),
        Gate("DRAConsumableCapacity", default=True, requires=_DRA),
        Gate("DRAFractionalCapacityRange", default=False, requires=_CAPACITY, beta=True),
        Gate("DRAPartitionableDevices", default=True, requires=_DRA),
        Gate("DRAResourcePoolStatus", default=False, requires=_DRA),
        Gate(
            "DRAPartitionableDevicesType",
            default=False,
            requires=(*_DRA, "DRAPartitionableDevices", "DRAResourcePoolStatus"),
        ),
        Gate("DRADeviceCompatibilityGroups", default=False, requires=(*_DRA, "DRAPartitionableDevices")),
        Gate("DRADeviceTaints", default=True, requires=_DRA, ga=True),
        Gate("DRADeviceTaintRules", default=True, requires=("DRADeviceTaints",), ga=True),
        Gate("DRADeviceBindingConditions", default=True, requires=(*_DRA, "DRAResourceClaimDeviceStatus")),
        Gate("DRAExtendedResource", default=True, requires=_DRA, ga=True),
        Gate("DRAListTypeAttributes", default=False, requires=_DRA),
        Gate("DRANodeAllocatableResources", default=False, requires=_DRA),
        Gate("DRAOptionalNodeOperations", default=False, requires=_DRA),
        Gate("DRADerivedAttributes", default=False, requires=_DRA),
        Gate("DRASchedulerFilterTimeout", default=True, requires=_DRA),
        Gate("ResourceHealthStatus", default=True, requires=_DRA),
        Gate("GenericWorkload", default=False, beta=True),
        Gate("DRAWorkloadResourceClaims", default=False, requires=(*_DRA, *_GROUPS), beta=True),
        Gate("TopologyAwareWorkloadScheduling", default=False, requires=_GROUPS),
        Gate("WorkloadWithJob", default=False, requires=_GROUPS),
        Gate("PodGroupPreemptionPolicy", default=False, requires=_GROUPS),
        Gate("DRAReservedForWorkloads", default=True, requires=_DRA),
        Gate("DRACapacityLimits", default=False, requires=_CAPACITY),
        Gate("DRAAggregatedCapacity", default=False, requires=_CAPACITY),
        Gate("DRACapacityStrategies", default=False, requires=_CAPACITY),
        Gate("DRANamedRequestPolicies", default=False, requires=_CAPACITY),
        Gate("DRAZeroConsumption", default=False, requires=_CAPACITY),
        Gate("DRACapacityRemainder", default=False, requires=_CAPACITY),
        Gate("DRADevicePreference", default=False, requires=_CAPACITY),
        Gate("DRADistinctAttributes", default=False, requires=_CAPACITY),
        Gate("DRAPreemption", default=False, requires=_DRA),
    )
}


class UnknownGate(ValueError):
    """A gate that does not exist, is locked, or is on without the gates that it depends on."""


class FeatureGates(Struct, frozen=True):
    """The features that are on."""

    enabled: frozenset[str]

    @classmethod
    def defaults(cls) -> Self:
        return cls(frozenset(gate.name for gate in GATES.values() if gate.default))

    @classmethod
    def only(cls, names: Iterable[str]) -> Self:
        """Turns on exactly these gates, regardless of the defaults; for recorded cases and tests."""
        return cls(frozenset(names))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns the defaults with the overrides of `A=true,B=false` applied."""
        return cls.defaults().override(parse_settings(text))

    def override(self, settings: Mapping[str, bool]) -> Self:
        settings = _with_alpha_gates(settings)
        for name, value in settings.items():
            _check_setting(name, value)
        enabled = (self.enabled | {name for name, on in settings.items() if on}) - {
            name for name, on in settings.items() if not on
        }
        for name in sorted(enabled):
            if missing := [needed for needed in GATES[name].requires if needed not in enabled]:
                raise UnknownGate(f"feature gate {name} is on but needs {', '.join(missing)}")
        return type(self)(frozenset(enabled))

    def __contains__(self, name: str) -> bool:
        assert name in GATES, f"not a feature gate: {name}"
        return name in self.enabled


def parse_settings(text: str) -> dict[str, bool]:
    """The settings in `A=true,B=false`; raises UnknownGate for what is no setting. The gates need not exist."""
    settings: dict[str, bool] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, separator, value = entry.partition("=")
        if not separator or value.lower() not in ("true", "false"):
            raise UnknownGate(f"feature gate {entry!r}: write NAME=true or NAME=false")
        settings[name] = value.lower() == "true"
    return settings


def _with_alpha_gates(settings: Mapping[str, bool]) -> Mapping[str, bool]:
    if ALL_ALPHA not in settings:
        return settings
    named = {name: on for name, on in settings.items() if name != ALL_ALPHA}
    alpha = (gate for gate in GATES.values() if not gate.default and not gate.beta and not _lacks_beta(gate, named))
    return {gate.name: settings[ALL_ALPHA] for gate in alpha} | named


def _lacks_beta(gate: Gate, settings: Mapping[str, bool]) -> bool:
    """True if the gate needs a beta gate that is off by default, and that the settings do not turn on."""
    return any(GATES[needed].beta and not settings.get(needed, False) for needed in gate.requires)


def _check_setting(name: str, value: bool) -> None:
    gate = GATES.get(name)
    if gate is None:
        raise UnknownGate(f"there is no feature gate {name!r}; known: {', '.join(sorted(GATES))}")
    if gate.locked and value != gate.default:
        raise UnknownGate(f"feature gate {name} is locked to {str(gate.default).lower()}")
