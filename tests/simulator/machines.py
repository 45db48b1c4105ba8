"""The machines of a simulation: their devices, the drivers of these devices, and the state that outlives agent and drivers.

Node agents and the driver SDK are the real ones; only containers, devices and sockets are simulated. The files of both are real and
never damaged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Final, cast

import grpc.aio

from dralloc.client.transport import Transport
from dralloc.client.typed_resource import ObjectKey
from dralloc.driver.claims import AllocatedClaim, DeviceKey, PreparedDevice
from dralloc.driver.devices import Pool
from dralloc.driver.driver import Driver
from dralloc.driver.plugin import Plugin
from dralloc.driver.settings import Settings
from dralloc.kube.pod_claims import claims_of
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.node.agent import Agent, AgentSettings
from dralloc.node.kubelet.plugin_sockets import PLUGINS, REGISTRY
from dralloc.node.node_object import NodeShape
from dralloc.node.timings import Timings
from dralloc.primitives.clock import Clock
from dralloc.primitives.features import FeatureGates
from tests.simulator.plugin_network import PluginChannel, PluginNetwork
from tests.simulator.random_devices import DRIVERS, RandomDevices

CAPACITY: Final = {"cpu": "64", "memory": "256Gi", "pods": "110"}
WORKERS: Final = 8
# The directory of sockets is a real one, which is read less often than by a kubelet.
TIMINGS: Final = Timings(poll_s=5.0)
PREPARE_MAX_S: Final = 3.0


class Machine:
    """One machine. `violations` gets what drivers were asked to do that no device can."""

    def __init__(self, name: str, directory: Path, plugins: PluginNetwork, random: Random) -> None:
        self.name = name
        self.violations: list[str] = []
        self._directory = directory
        self._plugins = plugins
        self._random = random
        self._devices = RandomDevices(random)
        self._pools = self._devices.pools(name)
        self._running: list[Plugin] = []
        # By driver and claim: what is prepared, also while no driver runs.
        self._prepared: dict[tuple[str, str], tuple[str, frozenset[DeviceKey]]] = {}

    def agent(
        self, name: str, transport: Transport, clock: Clock, gates: FeatureGates
    ) -> Callable[[], Awaitable[None]]:
        """The node agent, as a program."""
        settings = AgentSettings(
            shape=NodeShape(name=self.name, capacity=CAPACITY),
            directory=self._directory,
            runs_processes=False,
            gates=gates,
            workers=WORKERS,
            timings=TIMINGS,
        )

        def connect(endpoint: str) -> grpc.aio.Channel:
            return cast("grpc.aio.Channel", PluginChannel(self._plugins, name, endpoint))

        async def run() -> None:
            await Agent(transport, settings, clock, connect).run()

        return run

    def drivers(self, transport: Transport, clock: Clock) -> Callable[[], Awaitable[None]]:
        """All drivers of the machine, as one program."""
        settings = Settings(
            node_name=self.name,
            plugins_dir=self._directory / PLUGINS,
            registry_dir=self._directory / REGISTRY,
            cdi_dir=self._directory / "cdi",
        )

        async def run() -> None:
            async with AsyncExitStack() as stack:
                for name in DRIVERS:
                    driver = _SimulatedDriver(name, self)
                    plugin = Plugin(driver, settings, transport, clock=clock, listen=self._plugins.listening)
                    await stack.enter_async_context(plugin.running())
                    self._running.append(plugin)
                    stack.callback(partial(self._running.remove, plugin))
                working = [plugin.work for plugin in self._running if plugin.work is not None]
                await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
                for work in working:
                    if work.done():
                        work.result()

        return run

    async def change_devices(self) -> None:
        """Other taints, shareable or not."""
        self._pools = self._devices.pools(self.name)
        for plugin in tuple(self._running):
            await plugin.republish()

    def pools(self, driver: str) -> list[Pool]:
        """What the driver publishes here."""
        return [self._pools[driver]] if driver in self._pools else []

    def unready(self, pods: Iterable[Pod], claims: Mapping[ObjectKey, ResourceClaim]) -> Iterator[str]:
        """The running pods of this machine with a device that is not prepared for them."""
        for pod in pods:
            if pod.spec.node_name != self.name or pod.status.phase != "Running":
                continue
            for use in claims_of(pod):
                claim = claims.get(ObjectKey(pod.metadata.namespace, use.claim))
                for driver, key in _allocated(claim):
                    _, keys = self._prepared.get((driver, claim.metadata.uid if claim else ""), ("", frozenset()))
                    if key not in keys:
                        yield f"pod {pod.metadata.name} runs on {self.name}, and {key} of claim {use.claim} is not prepared"

    def left(self) -> Iterator[str]:
        """What is still prepared in a cluster without pods."""
        for (driver, _), (claim, _) in self._prepared.items():
            yield f"{driver} on {self.name} has not unprepared claim {claim}"

    async def work(self) -> None:
        await asyncio.sleep(self._random.random() * PREPARE_MAX_S)

    def prepare(self, driver: str, claim: AllocatedClaim) -> None:
        keys = frozenset(device.key for device in claim.devices)
        for (other_driver, uid), (name, others) in self._prepared.items():
            if other_driver == driver and uid != claim.uid and (both := tuple(_in_common(keys, others))):
                self.violations.append(
                    f"{driver} on {self.name} prepares {both[0]} for claim {claim.name}; it is prepared for claim {name}"
                )
        self._prepared[driver, claim.uid] = (claim.name, keys)

    def unprepare(self, driver: str, claim: AllocatedClaim) -> None:
        self._prepared.pop((driver, claim.uid), None)


class _SimulatedDriver(Driver):
    def __init__(self, name: str, machine: Machine) -> None:
        self.name = name
        self._machine = machine

    async def devices(self) -> Iterable[Pool]:
        return self._machine.pools(self.name)

    async def prepare(self, claim: AllocatedClaim) -> Iterable[PreparedDevice]:
        self._machine.prepare(self.name, claim)
        await self._machine.work()
        return [PreparedDevice(key=device.key, requests=(device.request,)) for device in claim.devices]

    async def unprepare(self, claim: AllocatedClaim) -> None:
        await self._machine.work()
        self._machine.unprepare(self.name, claim)


def _allocated(claim: ResourceClaim | None) -> Iterator[tuple[str, DeviceKey]]:
    allocation = claim.status.allocation if claim is not None else None
    for result in allocation.devices.results if allocation is not None else ():
        yield result.driver, DeviceKey(result.pool, result.device, result.share_id)


def _in_common(keys: Iterable[DeviceKey], others: Iterable[DeviceKey]) -> Iterator[DeviceKey]:
    """Devices of both that are not shared."""
    for key in keys:
        for other in others:
            if (key.pool, key.device) == (other.pool, other.device) and None in (key.share_id, other.share_id):
                yield key
