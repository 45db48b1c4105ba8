"""The devices of the simulated nodes: network cards shared by bandwidth, and partitions that consume counters.

Capacities and counters never change, so the checkers can compare allocations with them at any time.
"""

from __future__ import annotations

from random import Random
from typing import Final

from dralloc.driver.devices import Pool, counter_set, device, taint
from dralloc.kube.device_parts import capacity, request_policy
from dralloc.kube.resource_v1 import Device

NIC: Final = "nic.example.com"
PARTITION: Final = "partition.example.com"
# Its devices belong to no node: all nodes reach them.
FABRIC: Final = "fabric.example.com"
DRIVERS: Final = (NIC, PARTITION, FABRIC)
# Slots that each partition consumes; together more than the card has.
SLOTS: Final = 8
PARTITIONS: Final = {"whole": 8, "half-0": 4, "half-1": 4, "quarter-0": 2, "quarter-1": 2, "quarter-2": 2}
CAPACITIES: Final = {"bandwidth": "10G", "queues": "16", "speed": "100G"}
ATTRIBUTES: Final = ("card", "port")
# By the number of the card. They never change, so that the shares of a card are all of one kind.
STRATEGIES: Final = ("AlwaysConsumed", "ConsumedOrNever", "BlockOrShare")


class RandomDevices:
    """The devices that drivers publish, with random differences each time."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def pools(self, node: str) -> dict[str, Pool]:
        """By driver."""
        cards = tuple(self._card(number) for number in range(3))
        partitions = tuple(device(name, draws={"card": {"slots": slots}}) for name, slots in PARTITIONS.items())
        return {
            NIC: Pool(name=node, devices=cards),
            PARTITION: Pool(name=node, devices=partitions, counters=(counter_set("card", slots=SLOTS),)),
        }

    def _card(self, number: int) -> Device:
        is_shareable = self._random.random() < 0.8
        sick = self._random.random() < 0.1
        effect = self._random.choice(("NoSchedule", "NoExecute"))
        taints = [taint("example.com/sick", effect=effect)] if sick else []
        attributes = dict(zip(ATTRIBUTES, (number // 2, number % 2), strict=True))
        if not is_shareable:
            return device(f"eth{number}", attributes=attributes, capacity=CAPACITIES, taints=taints)
        capacities = {
            "bandwidth": capacity(CAPACITIES["bandwidth"], policy_name="steps"),
            "queues": capacity(CAPACITIES["queues"], default="1"),
            "speed": capacity(CAPACITIES["speed"], consumed=False),
        }
        policy = request_policy(default="1G", minimum="1G", step="1G", strategy=STRATEGIES[number])
        return device(
            f"eth{number}",
            attributes=attributes,
            capacity=capacities,
            shareable=True,
            taints=taints,
            policies={"steps": policy},
            remainder="GiveToLast",
        )
