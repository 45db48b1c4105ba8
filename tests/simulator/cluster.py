"""A whole cluster in one process and in virtual time, in which one seed decides everything.

Every component runs its real code in a simulated process of its own and reaches the API servers over a faulty network. Each can be
paused, or killed between any two of its writes, and started again with other feature gates.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final
from uuid import UUID

from dralloc.client.api_calls import ApiCalls
from dralloc.client.async_client import AsyncClient
from dralloc.client.informer import history_change
from dralloc.client.typed_resource import Object
from dralloc.controllers.controller_set import ControllerSet
from dralloc.kube.batch_v1 import Job
from dralloc.kube.codec import decode
from dralloc.kube.core_v1 import Node
from dralloc.kube.kind import Kind
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.registry import (
    DEVICE_CLASS,
    DEVICE_TAINT_RULE,
    JOB,
    LEASE,
    NODE,
    POD,
    POD_GROUP,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
)
from dralloc.kube.resource_v1 import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.leader_loop import SchedulerLoop
from dralloc.scheduler.settings import SchedulerSettings
from dralloc.server.read.api_resources import prefix_of
from dralloc.testing.components import RESTART_S
from dralloc.testing.virtual_time import SimulatedProcess, VirtualClock
from tests.simulator.conflict_injector import ConflictInjector
from tests.simulator.gang_checker import GangChecker
from tests.simulator.history import CommittedChange, StoreHistory
from tests.simulator.idle_checks import StoredObjects
from tests.simulator.machines import Machine
from tests.simulator.network import Faults, Network
from tests.simulator.network_transport import NetworkTransport
from tests.simulator.plugin_network import PluginNetwork
from tests.simulator.register_clients import CLIENTS, RegisterClient, RegisterHistory
from tests.simulator.safety_checker import SafetyChecker
from tests.simulator.simulated_gates import GATES
from tests.simulator.simulated_server import SimulatedServer
from tests.simulator.store_backends import EtcdBackend, MemoryBackend, StoreBackend
from tests.simulator.watch_observer import WatchObserver

STANDBY: Final = "standby"
CONFLICT_INJECTOR: Final = "conflict-injector"
USER: Final = "user"
NODES: Final = ("node-a", "node-b", "node-c")
# After the name of a node: the process of its drivers.
DRIVERS: Final = "-drivers"
OBSERVED: Final = {
    "/api/v1/pods": POD,
    "/apis/resource.k8s.io/v1/resourceclaims": RESOURCE_CLAIM,
    "/apis/coordination.k8s.io/v1/leases": LEASE,
}
# Files of agents and drivers lose nothing in a simulation, so their syncs need not wait for a disk.
MEMORY_FILES: Final = Path("/dev/shm")


class SimulatedCluster:
    """Servers, schedulers, controllers and nodes. `client` is the user's, whose messages are not lost.

    With `elected`, the first scheduler has a standby, and leader election decides between them.
    """

    def __init__(
        self, random: Random, faults: Faults, *, store: str = "memory", schedulers: int = 1, elected: bool = False
    ) -> None:
        self._random = random
        # A generator of its own, so that actions of users do not depend on the number of writes of components.
        self._ids = Random(random.random())
        self._schedulers = schedulers
        self._elected = elected
        self._directory = TemporaryDirectory(
            prefix="dralloc-simulation-",
            ignore_cleanup_errors=True,
            dir=MEMORY_FILES if MEMORY_FILES.is_dir() else None,
        )
        self.history = StoreHistory(self._directory.name)
        self.safety = SafetyChecker()
        self.gangs = GangChecker()
        self.registers = RegisterHistory()
        self.history.subscribe(self.safety.on_change, self._on_restored)
        self.history.subscribe(self.gangs.on_change, lambda: None)
        self.network = Network(Random(random.random()), faults)
        self.backend = self._backend(store)
        self.servers = [
            SimulatedServer(f"server-{number}", self.backend, self.new_uid)
            for number in range(self.backend.servers_max)
        ]
        self.clock = VirtualClock(asyncio.get_running_loop())
        self._components: dict[str, _Component] = {}
        self.observers: list[WatchObserver] = []
        plugins = PluginNetwork(self.network)
        self._machines = {
            name: Machine(name, Path(self._directory.name) / name, plugins, Random(random.random())) for name in NODES
        }
        user = NetworkTransport(self.network, USER, self.servers, Random(random.random()), is_reliable=True)
        self.client = AsyncClient(user)

    @classmethod
    @asynccontextmanager
    async def started(
        cls, random: Random, faults: Faults, *, store: str = "memory", schedulers: int = 1, elected: bool = False
    ) -> AsyncIterator[SimulatedCluster]:
        cluster = cls(random, faults, store=store, schedulers=schedulers, elected=elected)
        for server in cluster.servers:
            server.start(GATES)
        await asyncio.gather(*(server.ready.wait() for server in cluster.servers))
        for name in cluster.component_names:
            cluster.start(name, GATES)
        cluster._start_checking_clients()
        try:
            yield cluster
        finally:
            await cluster._stop()

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        """Each scheduler has pods of its own; devices and claims are shared."""
        return tuple(f"scheduler-{number}" for number in range(self._schedulers))

    @property
    def component_names(self) -> tuple[str, ...]:
        standby = (STANDBY,) if self._elected else ()
        machines = (each for name in NODES for each in (name, name + DRIVERS))
        return (*self.scheduler_names, *standby, "controllers", *machines, CONFLICT_INJECTOR)

    @property
    def machines(self) -> Collection[Machine]:
        return self._machines.values()

    def violations(self) -> list[str]:
        """What the checkers have found so far."""
        lists = [*(observer.violations for observer in self.observers), *(each.violations for each in self.machines)]
        told = [violation for violations in lists for violation in violations]
        return [
            *self.safety.violations,
            *self.gangs.violations,
            *self.history.violations,
            *self.registers.violations,
            *told,
        ]

    def digest(self) -> str:
        """The same for two runs in which the same was stored in the same order."""
        found = hashlib.blake2b(self.history.digest.encode(), digest_size=8)
        for content in self.backend.files():
            found.update(content)
        return found.hexdigest()

    def objects(self) -> StoredObjects:
        """The objects that checkers of an idle cluster need, all at one revision."""
        return StoredObjects(
            nodes=self.stored(NODE, Node),
            slices=self.stored(RESOURCE_SLICE, ResourceSlice),
            classes=self.stored(DEVICE_CLASS, DeviceClass),
            rules=self.stored(DEVICE_TAINT_RULE, DeviceTaintRule),
            claims=self.stored(RESOURCE_CLAIM, ResourceClaim),
            pods=self.stored(POD, Pod),
            jobs=self.stored(JOB, Job),
            groups=self.stored(POD_GROUP, PodGroup),
        )

    def stored(self, kind: Kind, object_type: type[Object]) -> tuple[Object, ...]:
        """The objects of a kind as they are, in the order of their keys."""
        return tuple(decode(self.history.state[key].value, object_type) for key in self.keys(kind))

    def object(self, key: str, object_type: type[Object]) -> Object:
        return decode(self.history.state[key].value, object_type)

    def keys(self, kind: Kind) -> list[str]:
        return self.history.keys(prefix_of(kind))

    def new_uid(self) -> str:
        return str(UUID(int=self._ids.getrandbits(128), version=4))

    # --- components ---------------------------------------------------------------------------------------

    def start(self, name: str, gates: FeatureGates) -> None:
        component = _Component(name, gates)
        network = self._transport(name)
        component.task = component.process.start(_run(self._component(component, network)))
        component.task.add_done_callback(lambda _: asyncio.ensure_future(self._start_again(component)))
        self._components[name] = component
        self.gangs.restarted(self.scheduler_names[0] if name == STANDBY else name)

    async def _start_again(self, component: _Component) -> None:
        """As a supervisor does it with a process that has ended because of a restored backup."""
        if component.saw_restore:
            await component.process.kill()
            await asyncio.sleep(RESTART_S)
            if self._components.get(component.name) is component:
                self.start(component.name, component.gates)

    async def kill(self, name: str) -> None:
        """End a component at once. Raises the error if it had died by itself."""
        component = self._components.pop(name)
        component.check()
        await component.process.kill()

    def pause(self, name: str, seconds: float) -> None:
        """Stop a component or a server for some time."""
        processes = {server.name: server.process for server in self.servers}
        process = self._components[name].process if name in self._components else processes[name]
        process.pause()
        asyncio.get_running_loop().call_later(seconds, process.resume)

    def clock_of(self, name: str) -> VirtualClock:
        clocks = {server.name: server.clock for server in self.servers}
        return self._components[name].clock if name in self._components else clocks[name]

    def time_passed(self, seconds: float) -> None:
        """Tells the checkers that do not only look at changes."""
        self.gangs.tick(seconds, self._is_undisturbed)

    def _is_undisturbed(self, scheduler: str) -> bool:
        """True if the scheduler, its standby and all servers can work, with all features."""
        if self.backend.is_disturbed or not all(each.ready.is_set() for each in self.servers):
            return False
        if any(self._is_stopped(each.process, each.gates) for each in self.servers):
            return False
        names = (scheduler, STANDBY) if self._elected else (scheduler,)
        components = [self._components[name] for name in names if name in self._components]
        links = [(name, server.name) for name in names for server in self.servers]
        return (
            bool(components)
            and not any(self._is_stopped(each.process, each.gates) for each in components)
            and not any(self.network.is_cut(*link) for link in links)
        )

    @staticmethod
    def _is_stopped(process: SimulatedProcess, gates: FeatureGates) -> bool:
        return process.dead or process.paused or gates != GATES

    def check(self) -> None:
        """Raise the error of a component that died."""
        for component in self._components.values():
            component.check()

    async def heal(self) -> None:
        """End all faults, wait for late requests, and start again what runs with unusual feature gates."""
        self.backend.heal()
        for component in self._components.values():
            component.process.resume()
            component.clock.correct()
        for server in self.servers:
            server.process.resume()
            server.clock.correct()
        await self.network.heal()
        defaults = GATES
        for server in self.servers:
            if server.process.dead or server.gates != defaults or self.backend.needs_restart:
                await server.kill()
                server.start(defaults)
        await asyncio.gather(*(server.ready.wait() for server in self.servers))
        for component in list(self._components.values()):
            if component.gates != defaults or component.name == CONFLICT_INJECTOR:
                await self.kill(component.name)
                if component.name != CONFLICT_INJECTOR:
                    self.start(component.name, defaults)

    async def restore(self) -> None:
        """Put the last back-up in place of the store. Servers are stopped meanwhile if they must be; everything else goes on."""
        if self.backend.restores_under_servers and self._random.random() < 0.5:
            self.backend.restore()
            return
        for server in self.servers:
            await server.kill()
        await self.network.all_arrived()
        self.backend.restore()
        for server in self.servers:
            server.start(server.gates)
        await asyncio.gather(*(server.ready.wait() for server in self.servers))

    def _on_restored(self) -> None:
        state = [
            CommittedChange(version.revision, key, version.value, None) for key, version in self.history.state.items()
        ]
        self.safety.reset(state)
        self.gangs.reset(state)
        self.registers.restore(asyncio.get_running_loop().time())

    def _backend(self, store: str) -> StoreBackend:
        match store:
            case "memory":
                return MemoryBackend(self.history)
            case "etcd":
                return EtcdBackend(self.history, self.network, Random(self._random.random()))
            case "sqlite":
                # The simulated disk needs a library that only developers have.
                from tests.simulator.sqlite_backend import SqliteBackend

                return SqliteBackend(self.history, Random(self._random.random()))
            case _:
                raise ValueError(f"no store is called {store!r}")

    def _transport(self, name: str, *, without_duplicates: bool = False) -> NetworkTransport:
        random = Random(self._random.random())
        return NetworkTransport(self.network, name, self.servers, random, without_duplicates=without_duplicates)

    def _component(self, component: _Component, network: NetworkTransport) -> Callable[[], Awaitable[None]]:
        name, gates = component.name, component.gates
        if machine := self._machines.get(name):
            return machine.agent(name, network, component.clock, gates)
        if machine := self._machines.get(name.removesuffix(DRIVERS)):
            return machine.drivers(network, component.clock)
        match name:
            case "controllers":
                return ControllerSet(network, clock=component.clock, gates=gates).run
            case "conflict-injector":
                calls = ApiCalls(network, field_manager=name)
                return ConflictInjector(calls, Random(self._random.random())).run
            case _:
                return self._scheduler(component, network)

    def _scheduler(self, component: _Component, network: NetworkTransport) -> Callable[[], Awaitable[None]]:
        name, first = component.name, self.scheduler_names[0]
        settings = SchedulerSettings(
            names=frozenset({first if name == STANDBY else name}),
            identity=name,
            gates=component.gates,
            new_share_id=self.new_uid,
        )
        terms = SchedulerLoop(network, clock=component.clock, settings=settings)
        return partial(terms.run_elected, name) if self._elected and name in (first, STANDBY) else terms.run

    def _start_checking_clients(self) -> None:
        for number in range(CLIENTS):
            component = _Component(f"register-client-{number}", GATES)
            random = Random(self._random.random())
            # A doubled deletion is told that there is nothing to delete: no answer to rely on.
            network = self._transport(component.name, without_duplicates=True)
            client = RegisterClient(network, random, self.registers)
            component.task = component.process.start(client.run())
            self._components[component.name] = component
        for path, kind in OBSERVED.items():
            component = _Component(f"observer-{kind.plural}", GATES)
            random = Random(self._random.random())
            observer = WatchObserver(self._transport(component.name), random, self.history, path, prefix_of(kind))
            self.observers.append(observer)
            component.task = component.process.start(observer.run())
            self._components[component.name] = component

    async def _stop(self) -> None:
        await self.network.heal()
        components, self._components = self._components, {}
        for component in components.values():
            await component.process.kill()
        for server in self.servers:
            await server.kill()
        await self.backend.close()
        self._directory.cleanup()


async def _run(start: Callable[[], Awaitable[None]]) -> None:
    await start()


class _Component:
    """A running component."""

    def __init__(self, name: str, gates: FeatureGates) -> None:
        self.name = name
        self.gates = gates
        self.process = SimulatedProcess(name)
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.task: asyncio.Task[Any] | None = None

    @property
    def saw_restore(self) -> bool:
        if self.task is None or not self.task.done() or self.task.cancelled():
            return False
        error = self.task.exception()
        return error is not None and history_change(error) is not None

    def check(self) -> None:
        if self.task is not None and self.task.done() and not self.saw_restore:
            self.task.result()
