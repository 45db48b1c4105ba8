"""A cluster with schedulers and nothing else, in virtual time. The test plays controllers and nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from dralloc.client.api_calls import ApiCalls
from dralloc.client.batch_transport import BatchTransport
from dralloc.client.transport import Transport
from dralloc.kube.resource_v1 import ResourceClaim, ResourceSlice
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.scheduler import Scheduler
from dralloc.scheduler.settings import NAME, SchedulerSettings
from dralloc.testing.builders import device, resource_slice
from dralloc.testing.virtual_time import run_virtual
from tests.support.cluster import TestCluster, cluster_on
from tests.support.workloads import Document, existing, pod

# Long enough, in virtual time, for everything that does not wait on purpose.
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


def gpus(node_name: str, count: int = 1, *, attributes: Mapping[str, Any] | None = None) -> ResourceSlice:
    """The pool of a node: devices that are alike."""
    devices = [device(f"gpu-{number}", attributes=attributes) for number in range(count)]
    return resource_slice(f"gpus-of-{node_name}", *devices, pool=node_name, node_name=node_name)


def our_pod(name: str, *claims: str, **more: Any) -> Document:
    """A pod for our scheduler that uses these claims."""
    return pod(name, {claim: existing(claim) for claim in claims}, scheduler=NAME, **more)


def of_priority(name: str, priority: str, *claims: str, **more: Any) -> Document:
    document = our_pod(name, *claims, **more)
    return {**document, "spec": {**document["spec"], "priorityClassName": priority}}


def in_cluster(
    gates: str = "", schedulers: int = 1
) -> Callable[[Callable[[ScheduledCluster], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """Decorates a test that runs in virtual time, in a cluster of its own."""

    def decorate(test: Callable[[ScheduledCluster], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        async def main() -> None:
            async with scheduled_cluster(gates=FeatureGates.parse(gates), schedulers=schedulers) as cluster:
                await test(cluster)

        def run() -> None:
            run_virtual(main())

        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        return run

    return decorate


class ScheduledCluster(TestCluster):
    """A cluster whose only components are schedulers. They send writes together if it `is_batched`, as those of a process do."""

    def __init__(self, transport: Transport, *, is_batched: bool = False, **network: Any) -> None:
        super().__init__(transport, **network)
        self._is_batched = is_batched
        self.schedulers: list[Scheduler] = []
        self._running: list[str] = []

    def start(self, settings: SchedulerSettings) -> None:
        calls = ApiCalls(BatchTransport(self.network), field_manager="") if self._is_batched else self.calls()
        scheduler = Scheduler(calls, self.clock, settings)
        name = f"scheduler {len(self.schedulers)}"
        self.components.start(name, scheduler.run)
        self.schedulers.append(scheduler)
        self._running.append(name)

    async def kill(self) -> None:
        """End all schedulers, wherever they are."""
        while self._running:
            await self.components.end(self._running.pop())

    async def restart(self, gates: str = "") -> None:
        """Replace all schedulers by one with other feature gates."""
        await self.kill()
        self.start(SchedulerSettings(gates=FeatureGates.parse(gates)))

    async def settle(self, seconds: float = SETTLED_S) -> None:
        await super().settle(seconds)

    async def release(self, claim: str) -> None:
        """Remove all reservations and the allocation of the claim, as its controller does."""
        status = {"allocation": None, "reservedFor": None, "devices": None}
        await self.client.patch(ResourceClaim, claim, {"status": status}, subresource="status")


@asynccontextmanager
async def scheduled_cluster(
    *, schedulers: int = 1, gates: FeatureGates | None = None, **network: Any
) -> AsyncIterator[ScheduledCluster]:
    """A cluster with schedulers that run inside the block; `network` are `seed` and `wrap` of `TestCluster`, and `is_batched`.

    The server has the gates of the schedulers if it is to serve PodGroups, and otherwise its defaults.
    """
    served = gates if gates is not None and "GenericWorkload" in gates else None
    async with cluster_on(partial(ScheduledCluster, **network), gates=served) as cluster:
        for number in range(schedulers):
            identity = f"scheduler-{number}"
            cluster.start(SchedulerSettings(gates=gates or FeatureGates.defaults(), identity=identity))
        yield cluster
