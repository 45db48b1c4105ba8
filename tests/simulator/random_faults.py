"""Random faults: restarts, other feature gates, pauses, cut links, clocks that jump, storage that fails or is restored."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

from tests.simulator.cluster import SimulatedCluster
from tests.simulator.simulated_gates import GATES, switched

SWITCHED: Final = (
    "DRAConsumableCapacity",
    "DRAPrioritizedList",
    "DRAReservedForWorkloads",
    "DRAPartitionableDevices",
    "DRADeviceTaintRules",
    "GenericWorkload",
    "DRAWorkloadResourceClaims",
    "DRAPreemption",
)


class RandomFaults:
    """Random faults of one cluster. Each returns a line that says what it did."""

    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random

    async def restart_component(self) -> str:
        name = self._random.choice(self._cluster.component_names)
        await self._cluster.kill(name)
        self._cluster.start(name, GATES)
        return f"restarted {name}"

    async def restart_server(self) -> str:
        server = self._random.choice(self._cluster.servers)
        await server.kill()
        await asyncio.sleep(self._random.choice((0, 0, 1, 10)))
        server.start(GATES)
        return f"restarted {server.name}"

    async def change_gates(self) -> str:
        """Restart the server or another component with other feature gates."""
        gate, on = self._random.choice(SWITCHED), self._random.random() < 0.6
        gates = switched(gate, on)
        name = self._random.choice(("server", *self._cluster.component_names))
        if name == "server":
            for server in self._cluster.servers:
                await server.kill()
                server.start(gates)
        else:
            await self._cluster.kill(name)
            self._cluster.start(name, gates)
        return f"{name} with {gate}={on}"

    async def pause(self) -> str:
        name, seconds = self._any_process(), self._random.uniform(1, 60)
        self._cluster.pause(name, seconds)
        return f"paused {name} for {seconds:.0f} s"

    async def cut(self) -> str:
        name, seconds = self._random.choice(self._cluster.component_names), self._random.uniform(1, 60)
        server = self._random.choice(self._cluster.servers).name
        self._cluster.network.cut(name, server, seconds)
        return f"cut {name} from {server} for {seconds:.0f} s"

    async def jump_clock(self) -> str:
        name, seconds = self._any_process(), self._random.choice((-3600.0, -60.0, -1.0, 1.0, 60.0, 3600.0))
        self._cluster.clock_of(name).jump(seconds)
        return f"the clock of {name} jumped by {seconds:.0f} s"

    async def storage_fault(self) -> str:
        faults = self._cluster.backend.faults()
        if not faults:
            return "nothing can happen to the storage"
        _, fault = self._random.choice(faults)
        return fault()

    async def back_up(self) -> str:
        return "backed up" if await self._cluster.backend.back_up() else "no back-up of this store"

    async def restore(self) -> str:
        if not self._cluster.backend.has_back_up:
            return "no back-up to restore"
        await self._cluster.restore()
        return "restored the back-up"

    def _any_process(self) -> str:
        servers = (server.name for server in self._cluster.servers)
        return self._random.choice((*servers, *self._cluster.component_names))
