"""A whole cluster in this process: API server, scheduler, controllers and simulated nodes, connected without sockets.

    async with cluster_in_process(ClusterSettings(fleets=(fleet("gpu", 4),))) as cluster:
        await cluster.client.create(pod)

Its time is that of the event loop, real or virtual; `clock` must agree with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from dralloc.client.api_calls import ApiCalls
from dralloc.client.async_client import AsyncClient
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.known_resources import resource_for
from dralloc.client.leader_election import LeaderElection
from dralloc.client.transport import Transport
from dralloc.client.typed_resource import ObjectKey
from dralloc.controllers.controller_set import CONTROLLERS, ControllerSet
from dralloc.kube.coordination_v1 import Lease
from dralloc.node.simulated.fleet import Fleet, FleetSettings
from dralloc.node.simulated.fleet_calls import FIELD_MANAGER, FleetCalls, TransportOfNode
from dralloc.node.simulated.manifest_nodes import ManifestNodes
from dralloc.node.simulated.profiles import load_profile
from dralloc.node.simulated.simulated_pods import SimulatedPods
from dralloc.node.timings import DEFAULT_TIMINGS
from dralloc.primitives.clock import Clock
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.decide.strategy_choice import SPREADING, StrategySettings
from dralloc.scheduler.leader_loop import SchedulerLoop
from dralloc.scheduler.report.fragmentation import FragmentationHistory
from dralloc.scheduler.report.stranded_devices import IdleDevices
from dralloc.scheduler.settings import ONLY_SCHEDULER_NAMES, SchedulerSettings
from dralloc.server.access.users import ADMINISTRATOR, User
from dralloc.server.http.application import ApiApplication
from dralloc.server.http.authentication import Authenticator
from dralloc.server.server import ApiServer
from dralloc.server.store.interface import Store
from dralloc.server.store.memory import MemoryStore
from dralloc.system_clock import SystemClock
from dralloc.testing.api_server import running_api_server
from dralloc.testing.component_rights import ComponentAccount, grant_rights, node_user
from dralloc.testing.components import Components, Run

__all__ = ["ClusterSettings", "InProcessCluster", "cluster_in_process", "fleet"]

TOKEN: Final = "in-process"

# How many devices are idle, by driver.
ReadIdleDevices = Callable[[], Awaitable[Mapping[str, IdleDevices]]]
# Starts scheduler and controllers in other processes.
StartApart = Callable[[Components, ApiApplication], ReadIdleDevices]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """The components of a cluster, and what they share.

    With an `identity`, each component runs only while it is the leader among the processes that use the same store.
    """

    gates: FeatureGates = field(default_factory=FeatureGates.defaults)
    clock: Clock = field(default_factory=SystemClock)
    scheduler_names: frozenset[str] = ONLY_SCHEDULER_NAMES
    controllers: tuple[str, ...] = tuple(CONTROLLERS)
    fleets: tuple[FleetSettings, ...] = ()
    identity: str | None = None
    strategies: StrategySettings = SPREADING
    # For the web page.
    fragmentation: FragmentationHistory | None = None

    @property
    def scheduler(self) -> SchedulerSettings:
        """The settings of the scheduler that follow from these."""
        return SchedulerSettings(names=self.scheduler_names, gates=self.gates, strategies=self.strategies)


def fleet(profile: str, count: int) -> FleetSettings:
    """Simulated nodes `PROFILE-0`, `PROFILE-1`, … of a built-in profile or a file; raises BadProfile."""
    name = Path(profile).stem
    return FleetSettings(profile=load_profile(profile), profile_name=name, count=count, prefix=name)


@dataclass(frozen=True, slots=True)
class InProcessCluster:
    """A running cluster. Wait with `components.guard`, which raises an error if a component dies."""

    application: ApiApplication
    transport: Transport
    components: Components
    # Set as soon as all simulated nodes are ready.
    nodes_ready: asyncio.Event
    # Closed after the components have ended, because a server that stops listening ends all watches.
    _sockets: AsyncExitStack

    @property
    def client(self) -> AsyncClient:
        """A client of the administrator. It need not be closed."""
        return AsyncClient(self.transport)

    async def listen(self) -> str:
        """Serve other programs, too, on a free port of loopback; returns the URL."""
        # Imported late: most clusters do not listen, and start faster without it.
        from dralloc.server.http.listener import ListenAddress, listen

        return await self._sockets.enter_async_context(listen(self.application, ListenAddress()))


@asynccontextmanager
async def cluster_in_process(
    settings: ClusterSettings | None = None, *, store: Store | None = None
) -> AsyncIterator[InProcessCluster]:
    """A cluster inside the block, with all nodes ready. The default store is in memory; a given one stays open."""
    settings = settings or ClusterSettings()
    async with (
        MemoryStore() as memory,
        running_api_server(
            ApiServer(store or memory, clock=settings.clock, gates=settings.gates, enforces_roles=True)
        ) as server,
    ):
        # Clients are in this process, or on this machine after `listen`; kubectl sends no token without TLS.
        authenticator = Authenticator({TOKEN: ADMINISTRATOR}, without_credential=ADMINISTRATOR)
        async with components_on(ApiApplication(server, authenticator), TOKEN, settings) as cluster:
            await cluster.components.guard(cluster.nodes_ready.wait())
            yield cluster


@asynccontextmanager
async def components_on(
    application: ApiApplication,
    token: str,
    settings: ClusterSettings,
    apart: StartApart | None = None,
    *,
    starts_again: bool = False,
) -> AsyncIterator[InProcessCluster]:
    """All components but the server, inside the block, on a running server; nodes may not be ready yet.

    Scheduler and controllers run in this process, unless they are started `apart`. With `starts_again`, the components are started again
    after the server was restored from a backup; otherwise that ends them.
    """
    transport = InProcessTransport(application, token=token)
    clock = settings.clock
    await grant_rights(AsyncClient(transport), settings.gates)

    def transport_as(user: User) -> Transport:
        return InProcessTransport(application.acting_as(user))

    def transport_of_node(name: str) -> Transport:
        return transport_as(node_user(name))

    nodes = transport_as(ComponentAccount.SIMULATED_NODES.user)
    async with AsyncExitStack() as sockets, Components(starts_again=starts_again) as components:
        if apart is not None:
            idle = apart(components, application)
        else:
            idle = _start_inside(components, application, settings, transport_as)
        if settings.fragmentation is not None:
            components.start("fragmentation", partial(settings.fragmentation.run, idle, clock))
        nodes_ready = asyncio.Event()
        run_manifest_nodes = partial(_run_manifest_nodes, transport_of_node=transport_of_node)
        components.start(
            "manifest nodes", _with_leader_election("dralloc-manifest-nodes", nodes, settings, run_manifest_nodes)
        )
        if settings.fleets:
            run_fleets = partial(_run_fleets, transport_of_node=transport_of_node, is_ready=nodes_ready)
            components.start("nodes", _with_leader_election("dralloc-fake-nodes", nodes, settings, run_fleets))
        if settings.identity or not settings.fleets:
            nodes_ready.set()
        yield InProcessCluster(application, transport, components, nodes_ready, sockets)


def _start_inside(
    components: Components,
    application: ApiApplication,
    settings: ClusterSettings,
    transport_as: Callable[[User], Transport],
) -> ReadIdleDevices:
    """Start scheduler and controllers in this process."""
    identity = settings.identity
    terms = SchedulerLoop(
        transport_as(ComponentAccount.SCHEDULER.user), clock=settings.clock, settings=settings.scheduler
    )
    application.metrics.include(terms.metrics.all)
    components.start("scheduler", partial(terms.run_elected, identity) if identity else terms.run)
    if settings.controllers:
        account = transport_as(ComponentAccount.CONTROLLERS.user)
        controllers = ControllerSet(account, clock=settings.clock, gates=settings.gates, only=settings.controllers)
        application.metrics.include(controllers.metrics.all)
        components.start("controllers", partial(controllers.run_elected, identity) if identity else controllers.run)

    async def idle() -> Mapping[str, IdleDevices]:
        return terms.metrics.idle()

    return idle


RunNodes = Callable[[Transport, ClusterSettings], Coroutine[Any, Any, None]]


def _with_leader_election(lease: str, transport: Transport, settings: ClusterSettings, run_nodes: RunNodes) -> Run:
    """Runs simulated nodes; with an identity, only while this process is the leader."""
    run = partial(run_nodes, transport, settings)
    if settings.identity is None:
        return run
    election = LeaderElection(
        ApiCalls(transport, field_manager=FIELD_MANAGER),
        resource_for(Lease),
        ObjectKey("kube-system", lease),
        identity=settings.identity,
        clock=settings.clock,
    )
    return partial(election.run, run)


async def _run_manifest_nodes(
    transport: Transport, settings: ClusterSettings, transport_of_node: TransportOfNode
) -> None:
    await ManifestNodes(transport, settings.clock, settings.gates, transport_of_node=transport_of_node).run()


async def _run_fleets(
    transport: Transport, settings: ClusterSettings, transport_of_node: TransportOfNode, is_ready: asyncio.Event
) -> None:
    """All fleets, with one watch of pods for all of them."""
    fleets = [Fleet(transport, each, settings.clock, transport_of_node=transport_of_node) for each in settings.fleets]
    async with asyncio.TaskGroup() as coming:
        for each in fleets:
            coming.create_task(each.come_up())
    names = chain.from_iterable(each.names for each in fleets)
    calls = FleetCalls(transport, transport_of_node)
    pods = SimulatedPods(calls, settings.clock, DEFAULT_TIMINGS, settings.gates, names)
    async with asyncio.TaskGroup() as living:
        await pods.start(living)
        for each in fleets:
            each.start_heartbeats(living)
        is_ready.set()
