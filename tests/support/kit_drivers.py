"""Drivers for the tests of the driver kit: one that has every feature, and variants with a fault in their devices or health."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from dralloc.driver import (
    AllocatedClaim,
    DeviceHealth,
    Driver,
    Health,
    Pool,
    PreparedDevice,
    capacity,
    counter_set,
    device,
)
from dralloc.testing.driver_bench import NODE


@dataclass(frozen=True)
class Hardware:
    """The devices that were lost."""

    lost: set[str] = field(default_factory=set)

    async def lose(self, pool: str, device: str) -> None:
        self.lost.add(device)

    async def restore(self, pool: str, device: str) -> bool:
        self.lost.discard(device)
        return True


class GoodDriver(Driver):
    """A driver with two shareable cards, a card with two partitions, and health."""

    name = "gpu.example.com"
    partition_memory = "40Gi"

    def __init__(self, hardware: Hardware, *names: str) -> None:
        self._hardware = hardware
        self._names = names or ("gpu-0", "gpu-1")
        self._halves = ("half-0", "half-1")

    def devices(self) -> Iterable[Pool]:
        memory = capacity("80Gi", default="10Gi", minimum="1Gi", step="1Gi")
        cards = [device(name, shareable=True, capacity={"memory": memory}) for name in self._names]
        halves = [device(name, draws={"card": {"memory": self.partition_memory}}) for name in self._halves]
        return [Pool(name=NODE, devices=(*cards, *halves), counters=(counter_set("card", memory="80Gi"),))]

    def prepare(self, claim: AllocatedClaim) -> Iterable[PreparedDevice]:
        return [found.prepared(env={"GPU": found.name}) for found in claim.devices]

    def health(self) -> Iterable[DeviceHealth]:
        return [
            DeviceHealth(device=name, health=Health.UNHEALTHY if name in self._hardware.lost else Health.HEALTHY)
            for name in (*self._names, *self._halves)
        ]


class TooLargePartitions(GoodDriver):
    partition_memory = "90Gi"


class AlwaysHealthy(GoodDriver):
    def health(self) -> Iterable[DeviceHealth]:
        return [replace(each, health=Health.HEALTHY) for each in super().health()]
