"""The devices of the simulated nodes: network cards shared by bandwidth, and partitions that consume counters.

Capacities and counters never change, so the checkers can compare allocations with them at any time.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

NIC: Final = "nic.example.com"
PARTITION: Final = "partition.example.com"
# Slots that each partition consumes; together more than the card has.
SLOTS: Final = 8
PARTITIONS: Final = {"whole": 8, "half-0": 4, "half-1": 4, "quarter-0": 2, "quarter-1": 2, "quarter-2": 2}


class RandomDevices:
    """Slices as drivers publish them, with random differences each time."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def slices(self, node: str, generation: int) -> list[dict[str, Any]]:
        counters = {"name": "card", "counters": {"slots": {"value": str(SLOTS)}}}
        cards = [self._card(number) for number in range(3)]
        partitions = [_partition(name, slots) for name, slots in PARTITIONS.items()]
        return [
            _slice(f"{node}-nic", NIC, node, generation, 1, devices=cards),
            _slice(f"{node}-counters", PARTITION, node, generation, 2, sharedCounters=[counters]),
            _slice(f"{node}-partitions", PARTITION, node, generation, 2, devices=partitions),
        ]

    def _card(self, number: int) -> dict[str, Any]:
        card: dict[str, Any] = {"name": f"eth{number}", "capacity": {"bandwidth": {"value": "10G"}}}
        if self._random.random() < 0.8:
            card["allowMultipleAllocations"] = True
            policy = {"default": "1G", "validRange": {"min": "1G", "step": "1G"}}
            card["capacity"]["bandwidth"]["requestPolicy"] = policy
        if self._random.random() < 0.1:
            effect = self._random.choice(("NoSchedule", "NoExecute"))
            card["taints"] = [{"key": "example.com/sick", "effect": effect}]
        return card


def _partition(name: str, slots: int) -> dict[str, Any]:
    draws = [{"counterSet": "card", "counters": {"slots": {"value": str(slots)}}}]
    return {"name": name, "consumesCounters": draws}


def _slice(name: str, driver: str, node: str, generation: int, of: int, **members: Any) -> dict[str, Any]:
    pool = {"name": node, "generation": generation, "resourceSliceCount": of}
    spec = {"driver": driver, "nodeName": node, "pool": pool, **members}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}
