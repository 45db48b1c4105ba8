"""Allocates CPU cores: each claim gets exclusive cores on one NUMA node.

A device is a NUMA node with its cores as capacity. The scheduler counts cores; the driver chooses which ones a claim gets, and
the SDK stores them with the claim, so the cores in use are known after a restart.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from dralloc.driver import (
    AllocatedClaim,
    AllocatedDevice,
    Device,
    DeviceHealth,
    Driver,
    Health,
    PreparedDevice,
    capacity,
    device,
    run,
)


class NoCoresLeft(Exception):
    """More cores are allocated than exist: the published devices do not match the machine."""


class CpuCoresDriver(Driver):
    name = "cpu.example.com"

    def __init__(self, sysfs: Path, reserved: frozenset[int]) -> None:
        self._sysfs = sysfs
        self._reserved = reserved
        self._published: dict[str, frozenset[int]] = {}

    def devices(self) -> Iterable[Device]:
        self._published = self._nodes()
        return [
            device(
                name,
                attributes={"numa": int(name.removeprefix("numa-"))},
                capacity={"cores": capacity(len(cores), default=1, minimum=1, step=1)},
                shareable=True,
            )
            for name, cores in self._published.items()
        ]

    def health(self) -> Iterable[DeviceHealth]:
        """A NUMA node with published cores that are offline is unhealthy."""
        file = self._sysfs / "cpu" / "online"
        online = parse_cores(file.read_text()) if file.exists() else None
        return [_health(name, cores, online) for name, cores in self._published.items()]

    def prepare(self, claim: AllocatedClaim) -> Iterable[PreparedDevice]:
        # Keep the cores that the claim had: after a reboot, pods get their cores back.
        before = {prepared.key: frozenset(prepared.state) for prepared in claim.prepared}
        taken = {core for other in claim.others for prepared in other.prepared for core in prepared.state}
        prepared = []
        for share in claim.devices:
            cores = before.get(share.key) or self._choose(share, taken)
            taken |= cores
            prepared.append(_ready(share, sorted(cores)))
        return prepared

    def _choose(self, share: AllocatedDevice, taken: set[int]) -> frozenset[int]:
        count = share.consumed["cores"].value
        free = sorted(self._nodes()[share.name] - taken)
        if len(free) < count:
            raise NoCoresLeft(f"{count} cores of {share.name} are allocated, but only {len(free)} are free")
        return frozenset(free[:count])

    def _nodes(self) -> dict[str, frozenset[int]]:
        """The allocatable cores of each NUMA node."""
        nodes = sorted((self._sysfs / "node").glob("node[0-9]*"), key=lambda path: int(path.name.removeprefix("node")))
        return {
            path.name.replace("node", "numa-"): parse_cores((path / "cpulist").read_text()) - self._reserved
            for path in nodes
        }


def _ready(share: AllocatedDevice, cores: list[int]) -> PreparedDevice:
    name = f"CPU_CORES_{(share.share_id or share.name)[:8].upper()}"
    return share.prepared(env={name: ",".join(map(str, cores))}, data={"cores": cores}, state=cores)


def _health(name: str, cores: frozenset[int], online: frozenset[int] | None) -> DeviceHealth:
    if online is None:
        return DeviceHealth(device=name, health=Health.UNKNOWN)
    if offline := sorted(cores - online):
        message = f"offline cores: {','.join(map(str, offline))}"
        return DeviceHealth(device=name, health=Health.UNHEALTHY, message=message)
    return DeviceHealth(device=name, health=Health.HEALTHY)


def parse_cores(text: str) -> frozenset[int]:
    """The numbers in a list such as `0-3,8`."""
    cores: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return frozenset(cores)


if __name__ == "__main__":
    run(
        CpuCoresDriver(
            Path(os.environ.get("CPU_CORES_SYSFS", "/sys/devices/system")),
            parse_cores(os.environ.get("CPU_CORES_RESERVED", "")),
        )
    )
