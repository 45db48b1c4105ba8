"""A whole cluster in one process and in virtual time, in which one seed decides everything.

Every component runs its real code over a faulty network of its own. Each, also the server, can be killed between any two
of its writes and started again with other feature gates. The store survives.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from random import Random
from typing import Final
from uuid import UUID

from dralloc.access.users import ADMINISTRATOR
from dralloc.api.batch_v1 import Job
from dralloc.api.codec import decode
from dralloc.api.core_v1 import Node
from dralloc.api.pod_v1 import Pod
from dralloc.api.registry import DEVICE_CLASS, DEVICE_TAINT_RULE, JOB, NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE, Kind
from dralloc.api.resource_v1 import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dralloc.apiserver.http.application import ApiApplication
from dralloc.apiserver.http.authentication import Authenticator
from dralloc.apiserver.http.messages import HttpResponse
from dralloc.apiserver.objects.api_resources import prefix_of
from dralloc.assembly.api_server import running_api_server
from dralloc.client.api_calls import ApiCalls
from dralloc.client.async_client import AsyncClient
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.typed_resource import Object
from dralloc.controllers.controller_set import ControllerSet
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.leader_loop import SchedulerLoop
from dralloc.scheduler.settings import SchedulerSettings
from dralloc.simulator.checkers import StoredObjects
from dralloc.simulator.conflict_injector import ConflictInjector
from dralloc.simulator.network_faults import Faults, FaultyTransport
from dralloc.simulator.pod_runner import PodRunner
from dralloc.simulator.virtual_time import VirtualClock
from dralloc.store.interface import HistoryLimits, Page
from dralloc.store.memory import MemoryStore

TOKEN: Final = "simulation"
STANDBY: Final = "standby"
# So short that a watch that was interrupted finds its revision compacted.
SHORT_HISTORY: Final = HistoryLimits(events_max=50)
UNREACHABLE: Final = Faults(lose_request=1.0)
REGISTRY: Final = "/registry/"


class SimulatedCluster:
    """Server, schedulers, controllers and nodes. `client` is the user's and has no faults.

    With `elected`, the first scheduler has a standby, and leader election decides between them.
    """

    def __init__(self, random: Random, faults: Faults, *, schedulers: int = 1, elected: bool = False) -> None:
        self._random = random
        # A generator of its own, so that actions of users do not depend on the number of writes of components.
        self._ids = Random(random.random())
        self._faults = faults
        self._schedulers = schedulers
        self._elected = elected
        self._store = MemoryStore(limits=SHORT_HISTORY)
        self.clock = VirtualClock(asyncio.get_running_loop())
        self._serving = AsyncExitStack()
        self._application: ApiApplication | None = None
        # By component; the last is in use, and late requests of earlier ones may still arrive.
        self._networks: dict[str, list[FaultyTransport]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self.client = AsyncClient(InProcessTransport(self, token=TOKEN))

    @classmethod
    @asynccontextmanager
    async def started(
        cls, random: Random, faults: Faults, *, schedulers: int = 1, elected: bool = False
    ) -> AsyncIterator[SimulatedCluster]:
        cluster = cls(random, faults, schedulers=schedulers, elected=elected)
        await cluster.restart_server(FeatureGates.defaults())
        for name in cluster.component_names:
            cluster.start(name, FeatureGates.defaults())
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
        return (*self.scheduler_names, *standby, "controllers", "nodes", "conflict-injector")

    async def answer(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[bytes, bytes], body: bytes
    ) -> HttpResponse:
        """Hands the request to the current server."""
        assert self._application is not None
        return await self._application.answer(method, path, query, headers, body)

    async def objects(self) -> StoredObjects:
        """The objects that the checkers need, all at one revision."""
        page = await self._store.list_prefix(REGISTRY)
        return StoredObjects(
            nodes=_stored(page, NODE, Node),
            slices=_stored(page, RESOURCE_SLICE, ResourceSlice),
            classes=_stored(page, DEVICE_CLASS, DeviceClass),
            rules=_stored(page, DEVICE_TAINT_RULE, DeviceTaintRule),
            claims=_stored(page, RESOURCE_CLAIM, ResourceClaim),
            pods=_stored(page, POD, Pod),
            jobs=_stored(page, JOB, Job),
        )

    def _new_uid(self) -> str:
        return str(UUID(int=self._ids.getrandbits(128), version=4))

    async def restart_server(self, gates: FeatureGates) -> None:
        """Start the server again on the same store; every watch breaks."""
        await self._serving.aclose()
        server = await self._serving.enter_async_context(
            running_api_server(self._store, clock=self.clock, gates=gates, new_uid=self._new_uid)
        )
        self._application = ApiApplication(server, Authenticator({TOKEN: ADMINISTRATOR}))

    def start(self, name: str, gates: FeatureGates) -> None:
        sound = InProcessTransport(self, token=TOKEN)
        network = FaultyTransport(sound, Random(self._random.random()), self._faults)
        self._networks.setdefault(name, []).append(network)
        self._running[name] = asyncio.ensure_future(self._component(name, network, gates)())

    async def kill(self, name: str) -> None:
        """End a component at once. Raises the error if it had died by itself."""
        task = self._running.pop(name)
        if task.done():
            task.result()
        self._networks[name][-1].faults = UNREACHABLE
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def check(self) -> None:
        """Raise the error of a component that died."""
        for task in self._running.values():
            if task.done():
                task.result()

    async def heal(self) -> None:
        """End all faults, and wait for late requests."""
        self._faults = Faults()
        for network in self._all_networks():
            network.faults = self._faults
            await network.all_arrived()

    def _all_networks(self) -> list[FaultyTransport]:
        return [network for networks in self._networks.values() for network in networks]

    def _component(self, name: str, network: FaultyTransport, gates: FeatureGates) -> Callable[[], Awaitable[None]]:
        calls = ApiCalls(network, field_manager=name)
        match name:
            case "controllers":
                return ControllerSet(network, clock=self.clock, gates=gates).run
            case "nodes":
                return PodRunner(calls, self.clock).run
            case "conflict-injector":
                return ConflictInjector(calls, Random(self._random.random())).run
            case _:
                return self._scheduler(name, network, gates)

    def _scheduler(self, name: str, network: FaultyTransport, gates: FeatureGates) -> Callable[[], Awaitable[None]]:
        first = self.scheduler_names[0]
        settings = SchedulerSettings(
            names=frozenset({first if name == STANDBY else name}),
            identity=name,
            gates=gates,
            new_share_id=self._new_uid,
        )
        terms = SchedulerLoop(network, clock=self.clock, settings=settings)
        return partial(terms.run_elected, name) if self._elected and name in (first, STANDBY) else terms.run

    async def _stop(self) -> None:
        for network in self._all_networks():
            await network.all_arrived()
        for name in list(self._running):
            await self.kill(name)
        await self._serving.aclose()
        await self._store.close()


def _stored(page: Page, kind: Kind, object_type: type[Object]) -> tuple[Object, ...]:
    prefix = prefix_of(kind)
    return tuple(decode(record.value, object_type) for record in page.records if record.key.startswith(prefix))
