"""Hours of a cluster's life in seconds: random acts, faults and restarts, with the checkers looking on after every step."""

from __future__ import annotations

import asyncio
from collections import deque
from random import Random
from typing import Final

from dralloc.api.core_v1 import Node, Pod
from dralloc.api.resource_v1 import ResourceClaim, ResourceSlice
from dralloc.client.client import AsyncClient
from dralloc.primitives.features import FeatureGates
from dralloc.simulator.checkers import World, leaks, violations
from dralloc.simulator.cluster import SimulatedCluster
from dralloc.simulator.workload import Workload
from dralloc.testing.faults import Faults

CALM: Final = Faults()
HARSH: Final = Faults(lose_request=0.02, lose_answer=0.02, break_stream=0.01, slow=0.02, late=0.005)
STEP_MAX_S: Final = 60.0
# Long enough for every back-off, every parked pod and every time-out to have had its turn.
REST_S: Final = 1200.0
EVENTS_SHOWN: Final = 30


class SoakFailed(AssertionError):
    """An invariant did not hold; the message has the seed and what happened last."""


async def soak(seed: int, *, hours: float, faults: Faults = HARSH, schedulers: int = 2) -> int:
    """Live through the hours; returns the number of acts. Raises `SoakFailed`."""
    random = Random(seed)
    story: deque[str] = deque(maxlen=EVENTS_SHOWN)
    async with SimulatedCluster.started(random, faults, schedulers=schedulers) as cluster:
        workload = Workload(cluster, random)
        await workload.prepare()
        loop = asyncio.get_running_loop()
        acts = 0
        while loop.time() < hours * 3600:
            story.append(f"{loop.time():9.1f} s  {await workload.act()}")
            acts += 1
            await asyncio.sleep(random.uniform(0, STEP_MAX_S))
            cluster.check()
            _judge(seed, story, violations(await world_of(cluster.client)))
        await _come_to_rest(cluster)
        _judge(seed, story, leaks(await world_of(cluster.client)))
        await _give_everything_back(cluster, workload, seed, story)
    return acts


async def world_of(client: AsyncClient) -> World:
    return World(
        nodes=await client.list(Node),
        slices=await client.list(ResourceSlice),
        claims=await client.list(ResourceClaim),
        pods=await client.list(Pod),
    )


def _judge(seed: int, story: deque[str], found: object) -> None:
    faults = list(found)  # type: ignore[call-overload]
    if faults:
        raise SoakFailed(f"seed {seed}: " + "; ".join(faults) + "\n" + "\n".join(story))


async def _come_to_rest(cluster: SimulatedCluster) -> None:
    """Everything works and has all its features, nobody meddles, and nothing happens any more."""
    await cluster.heal()
    await cluster.restart_server(FeatureGates.defaults())
    for name in cluster.component_names:
        await cluster.kill(name)
        if name != "meddler":
            cluster.start(name, FeatureGates.defaults())
    await asyncio.sleep(REST_S)
    cluster.check()


async def _give_everything_back(cluster: SimulatedCluster, workload: Workload, seed: int, story: deque[str]) -> None:
    """When users want nothing any more nobody holds a device, and what can go goes."""
    await workload.end_all()
    await asyncio.sleep(REST_S)
    await workload.give_up_trainings()
    await asyncio.sleep(REST_S)
    cluster.check()
    world = await world_of(cluster.client)
    held = (f"claim {claim.metadata.name} still holds devices" for claim in world.claims if claim.status.allocation)
    _judge(seed, story, (*held, *(f"pod {pod.metadata.name} is still there" for pod in world.pods), *leaks(world)))
