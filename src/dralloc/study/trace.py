"""Traces: pods in the order in which they arrive, with times and durations where these are known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from dralloc.kube.codec import encode
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim

# Amounts of devices are in thousandths of a device.
WHOLE_DEVICE: Final = 1000


@dataclass(frozen=True, slots=True)
class PodShape:
    """What a pod of a table requests. `milli` is the part of each device, in thousandths; parts below 1000 are shares.

    `models`: the models of devices that will do; empty for any. `nic_percent`: the part of a network card.
    `group` and `per_node_max`: at most so many pods of the group may be on one node.
    """

    cpu_milli: int = 0
    memory_mib: int = 0
    devices: int = 0
    milli: int = WHOLE_DEVICE
    models: tuple[str, ...] = ()
    nic_percent: int = 0
    disk_mib: int = 0
    group: str = ""
    per_node_max: int | None = None

    @property
    def requested_milli(self) -> int:
        """What the pod requests, in thousandths of a device."""
        return self.devices * self.milli


@dataclass(frozen=True, slots=True)
class ManifestPod:
    """A pod of a manifest with its own claims; claims of `shared` are used by other pods, too."""

    pod: Pod
    claims: tuple[ResourceClaim, ...] = ()
    shared: tuple[ResourceClaim, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod that arrives `at_s` seconds after the start, and leaves `duration_s` after it was placed, if ever."""

    name: str
    load: PodShape | ManifestPod
    at_s: float = 0.0
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """Pods in the order of their arrival."""

    name: str
    arrivals: tuple[Arrival, ...]

    @classmethod
    def of(cls, name: str, arrivals: Iterable[Arrival]) -> Trace:
        """The trace with its arrivals in order; those at the same time keep theirs."""
        return cls(name, tuple(sorted(arrivals, key=lambda each: each.at_s)))

    @property
    def has_departures(self) -> bool:
        """True if pods of the trace end."""
        return any(each.duration_s is not None for each in self.arrivals)

    def for_seed(self, seed: int) -> Trace:  # noqa: ARG002  # the same for every seed
        """The trace itself; traces that are drawn differ by seed."""
        return self

    @property
    def digest(self) -> str:
        """Equal for traces with equal content, whatever their name."""
        found = sha256()
        for each in self.arrivals:
            load = each.load if isinstance(each.load, PodShape) else encode(each.load)
            found.update(repr((each.name, load, each.at_s, each.duration_s)).encode())
        return found.hexdigest()


def size_of(devices: int, milli: int) -> str:
    """The class of sizes that a request for devices belongs to, for tables."""
    if not devices or not milli:
        return "none"
    if devices == 1 and milli < WHOLE_DEVICE:
        return "≤ ½" if 2 * milli <= WHOLE_DEVICE else "½ – 1"
    upper = 1
    while upper < devices:
        upper *= 2
    return str(devices) if devices <= 2 else f"{upper // 2 + 1} – {upper}"


SIZES: Final = ("none", "≤ ½", "½ – 1", "1", "2", "3 – 4", "5 – 8")
