"""A server in this process with schedulers that run against it, in virtual time, over a network that may lose things.

The rest of a cluster is played by the test: `release` does what a controller does when a claim is not used any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from dralloc.api.core_v1 import Event
from dralloc.api.pod_v1 import Pod, PodCondition
from dralloc.api.resource_v1 import ResourceClaim
from dralloc.client.api_calls import ApiCalls
from dralloc.client.async_client import AsyncClient
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.known_resources import resource_for
from dralloc.client.transport import Transport
from dralloc.client.typed_resource import ObjectKey
from dralloc.devices.deallocation import DEALLOCATED
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.scheduler import Scheduler
from dralloc.scheduler.settings import NAME, SchedulerSettings
from dralloc.simulator.network_faults import Faults, FaultyTransport
from dralloc.simulator.virtual_time import VirtualClock, run_virtual
from tests.support.api_server import TOKEN, api_application
from tests.support.workloads import Document, existing, pod

# Long enough, in virtual time, for everything that is not meant to wait.
SETTLED_S = 3.0


def node(
    name: str,
    *,
    cpu: str = "4",
    memory: str = "32Gi",
    pods: str = "110",
    labels: Mapping[str, str] | None = None,
    taints: tuple[Document, ...] = (),
    unschedulable: bool = False,
    **more: str,
) -> Document:
    """A node with room; `more` are other resources that it has."""
    amounts = {"cpu": cpu, "memory": memory, "pods": pods, **more}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {"taints": list(taints), "unschedulable": unschedulable},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def our_pod(name: str, *claims: str, **more: Any) -> Document:
    """A pod for our scheduler that uses these claims."""
    return pod(name, {claim: existing(claim) for claim in claims}, scheduler=NAME, **more)


def in_cluster(
    gates: str = "", schedulers: int = 1
) -> Callable[[Callable[[ScheduledCluster], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """Run a test in virtual time, in a cluster of its own."""

    def decorate(test: Callable[[ScheduledCluster], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        async def main() -> None:
            async with scheduled_cluster(gates=FeatureGates.parse(gates), schedulers=schedulers) as cluster:
                await test(cluster)

        def run() -> None:
            run_virtual(main())

        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        return run

    return decorate


class ScheduledCluster:
    """The cluster as a test sees it. `client` loses nothing."""

    def __init__(self, client: AsyncClient, network: FaultyTransport) -> None:
        self.client = client
        self.network = network
        self.schedulers: list[Scheduler] = []
        self._running: list[asyncio.Task[None]] = []

    def start(self, settings: SchedulerSettings) -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        scheduler = Scheduler(ApiCalls(self.network), clock, settings)
        self.schedulers.append(scheduler)
        self._running.append(asyncio.create_task(scheduler.run()))

    async def kill(self) -> None:
        """End all schedulers wherever they are."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._running.clear()

    async def restart(self, gates: str = "") -> None:
        """Other schedulers, with other features, in place of those that run."""
        await self.kill()
        self.start(SchedulerSettings(gates=FeatureGates.parse(gates)))

    async def settle(self, seconds: float = SETTLED_S) -> None:
        """Let virtual time pass, and see that the schedulers are alive."""
        await asyncio.sleep(seconds)
        for task in self._running:
            if task.done():
                task.result()

    async def create(self, *items: Any) -> None:
        for item in items:
            await self.client.create(item)

    # --- Reading ----------------------------------------------------------------------------------------------------

    async def node_of(self, name: str) -> str:
        """The node that a pod has; empty where it has none."""
        return (await self.client.get(Pod, name)).spec.node_name

    async def condition(self, name: str) -> PodCondition:
        """What the pod is told about its scheduling."""
        conditions = (await self.client.get(Pod, name)).status.conditions
        return next(condition for condition in conditions if condition.type == "PodScheduled")

    async def claim(self, name: str) -> ResourceClaim:
        return await self.client.get(ResourceClaim, name)

    async def devices_of(self, name: str) -> list[str]:
        """The devices that a claim has, in order."""
        allocation = (await self.claim(name)).status.allocation
        return [result.device for result in allocation.devices.results] if allocation is not None else []

    async def events_of(self, name: str) -> list[Event]:
        return [event for event in await self.client.list(Event) if event.involved_object.name == name]

    # --- What others do ---------------------------------------------------------------------------------------------

    async def delete_pod(self, name: str) -> None:
        key = ObjectKey("default", name)
        await self.client.calls.delete(resource_for(Pod), key, grace_period_s=0)

    async def release(self, claim: str) -> None:
        """Take everybody off a claim's list and give back its devices."""
        await self.client.patch(ResourceClaim, claim, {"status": DEALLOCATED}, subresource="status")


@asynccontextmanager
async def scheduled_cluster(
    *,
    schedulers: int = 1,
    gates: FeatureGates | None = None,
    seed: int = 0,
    wrap: Callable[[Transport], Transport] = lambda transport: transport,
) -> AsyncIterator[ScheduledCluster]:
    """A server and schedulers that run inside the block. The network is sound until the test changes `faults`."""
    clock = VirtualClock(asyncio.get_running_loop())
    async with api_application(clock=clock) as application:
        sound = InProcessTransport(application, token=TOKEN)
        network = FaultyTransport(wrap(sound), Random(seed), Faults())
        cluster = ScheduledCluster(AsyncClient(sound), network)
        for number in range(schedulers):
            identity = f"scheduler-{number}"
            cluster.start(SchedulerSettings(gates=gates or FeatureGates.defaults(), identity=identity))
        try:
            yield cluster
        finally:
            await cluster.kill()
