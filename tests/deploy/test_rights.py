"""Least privilege, tested in both directions: every component runs with the roles of `deploy/`, and uses everything
that they grant.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Callable, Coroutine
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import dralloc.testing
from dralloc.client.async_client import AsyncClient
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.transport import Transport
from dralloc.driver import DriverFunctions
from dralloc.driver import device as plain_device
from dralloc.driver.plugin import Plugin
from dralloc.driver_kit.caller import ClaimName, calling
from dralloc.driver_kit.claim_maker import ClaimMaker, exactly
from dralloc.kube.pod_claims import pod_reference
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.registry import KINDS
from dralloc.kube.resource_v1 import (
    ResourceClaim,
)
from dralloc.node.agent import Agent, AgentSettings
from dralloc.node.node_object import NodeShape
from dralloc.node.simulated.fleet import Fleet, FleetSettings
from dralloc.node.simulated.manifest_nodes import MANIFEST
from dralloc.node.simulated.profiles import PROFILE_LABEL, load_profile, read_profile
from dralloc.primitives.clock import Clock
from dralloc.primitives.features import FeatureGates
from dralloc.server.access.authorizer import AccessRequest
from dralloc.server.http.listener import ListenAddress, listen
from dralloc.server.identity.kubeconfig import write_kubeconfig
from dralloc.system_clock import SystemClock
from dralloc.testing.builders import allocation, claim, device, device_class, held, request, resource_slice
from dralloc.testing.cluster import ClusterSettings, components_on
from dralloc.testing.component_rights import ComponentAccount, component_manifests
from dralloc.testing.components import Components
from dralloc.testing.driver_bench import bench_settings
from dralloc.testing.virtual_time import VirtualClock, run_virtual
from tests.support.api_server import TOKEN
from tests.support.deployed_roles import (
    CONTROLLERS,
    DEPLOY,
    FAKE_NODES,
    NODE,
    PAGE,
    READER,
    SCHEDULER,
    SIMULATED_NODES,
    granted,
    guarded,
    read_all,
)
from tests.support.node_cluster import QUICK, replace_uid, short_directory
from tests.support.node_process import kill
from tests.support.restricted_cluster import GPU, everything, world
from tests.support.rights import (
    Grant,
    GuardedApplication,
    Right,
    account_name,
    account_user,
    grants_of,
    guarded_server,
)
from tests.support.scripted_driver import ScriptedDriver
from tests.support.scripted_transport import LosesFirstAnswers, ScriptedTransport
from tests.support.workloads import claim_template, existing, pod

pytestmark = pytest.mark.slow


def test_components_in_the_servers_process_have_the_roles_of_the_manifests() -> None:
    """One source: what a server grants its components at its start is what `deploy/` has for other clusters."""
    rights = Path(dralloc.testing.__file__).parent / "rights"
    for account in ComponentAccount:
        copy = DEPLOY / account.value / "rbac.yaml"
        assert copy.read_text() == (rights / f"{account.value}.yaml").read_text(), f"copy {copy} from testing/rights"
        of_account = grants_of(account_name("dralloc-system", f"dralloc-{account.value}"), read_all(copy))
        assert grants_of(account.user.name, component_manifests(account)) == of_account
    assert (DEPLOY / "preemption" / "rbac.yaml").read_text() == (rights / "preemption.yaml").read_text()
    with_preemption = component_manifests(ComponentAccount.SCHEDULER, FeatureGates.parse("DRAPreemption=true"))
    assert grants_of(ComponentAccount.SCHEDULER.user.name, with_preemption) == granted_without_leases()


def granted_without_leases() -> frozenset[Grant]:
    files = (DEPLOY / "scheduler" / "rbac.yaml", DEPLOY / "preemption" / "rbac.yaml")
    return grants_of(SCHEDULER, [document for file in files for document in read_all(file)])


def test_scheduler_and_controllers_need_exactly_their_permissions() -> None:
    """Without any one of its rights, a component would be refused something that it does in these scenarios."""

    async def scenario() -> None:
        async with world() as here:
            await everything(here)
            for user in (SCHEDULER, CONTROLLERS):
                await here.until_all_is_used(user)
                assert here.application.not_needed(user) == set()
            assert here.application.refused == {}

    run_virtual(scenario())


EVERY_RIGHT = [
    Right(verb, kind.group, f"{kind.plural}/{subresource}" if subresource else kind.plural)
    for kind in KINDS
    for subresource in ("", *sorted({*kind.subresources, "binding", "driver", "token", "eviction"}))
    for verb in ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "escalate", "bind")
] + [Right("impersonate", "", resource) for resource in ("users", "groups", "serviceaccounts")]
PATHS = ("/", "/metrics", "/logs", "/debug/pprof", "/dralloc")
# What every authenticated user may create: questions about itself.
ABOUT_ITSELF = {"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}


@pytest.mark.parametrize("user", [SCHEDULER, CONTROLLERS, NODE, FAKE_NODES, SIMULATED_NODES, PAGE, READER])
def test_nothing_else_can_be_reached(user: str) -> None:
    """All verbs on all resources, in the namespaces of the manifests and in others, by the server's own decision."""
    grants = granted(user)
    namespaces = {"", "default", "kube-system", "kube-node-lease", *(each.namespace for each in grants)}
    names = {"", "other", *(each.name for each in grants)}

    async def scenario() -> None:
        async with guarded(SystemClock(), user) as application:
            server = application.server
            for right in EVERY_RIGHT:
                resource, _, subresource = right.resource.partition("/")
                for namespace, name in product(namespaces, names):
                    asked = AccessRequest(
                        user=account_user(user),
                        verb=right.verb,
                        group=right.group,
                        resource=resource,
                        subresource=subresource,
                        namespace=namespace,
                        name=name,
                    )
                    expected = any(each.covers(right, namespace, name) for each in grants)
                    is_own = right.verb == "create" and right.resource in ABOUT_ITSELF
                    assert (await server._access.decide(asked)).allowed is (expected or is_own), asked
            for path in PATHS:
                asked = AccessRequest(user=account_user(user), verb="get", path=path)
                expected = any(each.covers(Right("get", "", path), "", "") for each in grants)
                assert (await server._access.decide(asked)).allowed is expected, path

    asyncio.run(scenario())


# --- Nodes and readers --------------------------------------------------------------------------------------------


async def used_up(application: GuardedApplication, user: str, grants: frozenset[Grant]) -> None:
    """Waits until the user has used all of these."""
    try:
        async with asyncio.timeout(60):
            while not grants <= application.used[user]:
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"{user} does not need {sorted(grants - application.used[user])}")


def test_a_node_uses_exactly_its_permissions() -> None:
    async def scenario(directory: Path) -> None:
        async with guarded(SystemClock(), NODE) as application, ScriptedDriver(directory) as driver:
            client = AsyncClient(InProcessTransport(application, token=TOKEN))
            # Left by an earlier run: the node exists already, and so do its slices.
            await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}})
            await client.create(resource_slice("stale", device("gpu-0")))
            await client.create(device_class())
            await client.create(replace_uid(claim("claim", request())))
            status = {"allocation": allocation(held("gpu-0"))}
            await client.patch(ResourceClaim, "claim", {"status": status}, subresource="status")
            settings = AgentSettings(
                shape=NodeShape(name="node-a", capacity={"pods": "10"}),
                directory=directory,
                runs_processes=False,
                timings=replace(QUICK, node_status_s=0.5),
            )
            # Rejected at first, because the claim is not reserved: the repeated event is counted.
            made = await client.create(pod("pod", {"gpu": existing("claim")}, node="node-a"))
            transport = ScriptedTransport(InProcessTransport(application, token=NODE), LosesFirstAnswers())
            async with Components() as components:
                components.start("node", Agent(transport, settings, SystemClock()).run)
                living = frozenset(grant for grant in granted(NODE) if grant.right.verb != "delete")
                await components.guard(used_up(application, NODE, living))
                reserved = {"status": {"reservedFor": [pod_reference(made)]}}
                await client.patch(ResourceClaim, "claim", reserved, subresource="status")
                await components.guard(driver.until(lambda: len(driver.prepared) == 1, timeout_s=60))
                await client.delete(Pod, "pod")
                await components.guard(used_up(application, NODE, granted(NODE)))
            assert application.used[NODE] == granted(NODE)
            assert application.refused == {}

    with short_directory() as directory:
        asyncio.run(scenario(directory))


TWO_SLICES = """
classes: [{metadata: {name: gpu.example.com}, spec: {}}]
nodes: [{pools: [{driver: gpu.example.com, slices: [{devices: [{name: a}]}, {devices: [{name: b}]}]}]}]
"""
ONE_SLICE = TWO_SLICES.replace("{devices: [{name: a}]}, ", "")


async def run_fleet(
    transport: Transport, clock: Clock, profile: str, meanwhile: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """A simulated node with this profile that runs while the other task does."""
    settings = FleetSettings(profile=read_profile(profile, "p"), profile_name="p", count=1, beats=True)
    ready = asyncio.Event()
    async with Components() as components:
        components.start("nodes", lambda: Fleet(transport, settings, clock).run(ready.set))
        await components.guard(ready.wait())
        await components.guard(meanwhile())


def test_simulated_nodes_use_exactly_their_permissions() -> None:
    async def scenario() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        async with guarded(clock, FAKE_NODES) as application:
            client = AsyncClient(InProcessTransport(application, token=TOKEN))
            transport = ScriptedTransport(InProcessTransport(application, token=FAKE_NODES), LosesFirstAnswers())
            await client.create(replace_uid(claim("claim", request(device_class=GPU))))
            # Its claim never becomes ready, which is reported and counted; then it is deleted.
            await client.create(pod("pod", {"gpu": existing("claim")}, node="fake-0"))
            # The profile changes after the first start: one slice less, and a different device in the other.
            await run_fleet(transport, clock, TWO_SLICES, lambda: asyncio.sleep(60))

            async def end_pod() -> None:
                await client.delete(Pod, "pod")
                await used_up(application, FAKE_NODES, granted(FAKE_NODES))

            await run_fleet(transport, clock, ONE_SLICE, end_pod)
            assert application.used[FAKE_NODES] == granted(FAKE_NODES)
            assert application.refused == {}

    run_virtual(scenario())


SHARED_POOLS = """
classes: [{metadata: {name: gpu.example.com}, spec: {}}]
nodes: [{pools: [{driver: gpu.example.com, slices: [{devices: [{name: a}]}]}]}]
cluster: [{driver: nic.example.com, name: fabric, allNodes: true, slices: [{devices: [{name: a}]}, {devices: [{name: b}]}]}]
"""
CHANGED_POOLS = SHARED_POOLS.replace("{devices: [{name: a}]}, ", "")


def test_simulated_nodes_of_a_cluster_use_exactly_their_permissions_and_those_of_nodes() -> None:
    """As `dralloc up` runs them with several replicas: nodes of profiles and of manifests, each as itself."""

    async def scenario() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        roles = {account.user.name: tuple(component_manifests(account)) for account in ComponentAccount}
        nodes = ComponentAccount.SIMULATED_NODES.user.name
        async with guarded_server(clock, roles) as application:
            client = AsyncClient(InProcessTransport(application, token=TOKEN))
            await client.create(replace_uid(claim("claim", request(device_class=GPU))))
            # Its claim never becomes ready, which is reported and counted; then it is deleted.
            await client.create(pod("pod", {"gpu": existing("claim")}, node="fake-0"))
            labels = {PROFILE_LABEL: MANIFEST}
            await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "own", "labels": labels}})
            await client.create(pod("by-hand", {}, node="own"))
            for replica, profile in enumerate((SHARED_POOLS, CHANGED_POOLS)):
                fleet = FleetSettings(profile=read_profile(profile, "p"), profile_name="p", count=1, beats=True)
                settings = ClusterSettings(clock=clock, fleets=(fleet,), identity=f"replica-{replica}")
                async with components_on(application, TOKEN, settings) as cluster:
                    await cluster.components.guard(asyncio.sleep(120))
                    if replica:
                        await client.delete(Pod, "pod")
                        await cluster.components.guard(asyncio.sleep(60))
            assert {each.metadata.name: each.status.phase for each in await client.list(Pod)} == {"by-hand": "Running"}
            assert application.used[nodes] == granted(SIMULATED_NODES)
            assert application.refused == {}

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("account", "name"), [("gpu-memory", GPU), ("nic-qos", "nic.example.com"), ("cpu-cores", "cpu.example.com")]
)
def test_a_driver_uses_exactly_its_permissions(account: str, name: str) -> None:
    user, names = account_name("kube-system", account), [f"d-{number}" for number in range(300)]
    driver = DriverFunctions(name)
    driver.devices(lambda: [plain_device(each) for each in names])
    driver.prepare(lambda claim: [found.prepared(data={"ready": True}) for found in claim.devices])

    async def scenario(directory: Path) -> None:
        async with guarded(SystemClock(), user) as application:
            client = AsyncClient(InProcessTransport(application, token=TOKEN))
            await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}})
            settings = bench_settings(directory)
            plugin = Plugin(driver.driver(), settings, InProcessTransport(application, token=user))
            claims = ClaimMaker(client, name, settings.node_name)
            async with plugin.running(), calling(settings.sockets(name).service) as node:
                await plugin.published()
                await claims.create_class()
                made = await claims.allocated("c", (exactly("device", claims.class_name),), ())
                await node.prepare([ClaimName("default", "c", made.metadata.uid)])
                # Two slices less, and another one changed.
                names[:] = names[1:50]
                await plugin.republish()
                await used_up(application, user, granted(user))
            assert application.refused == {}

    with short_directory() as directory:
        asyncio.run(scenario(directory))


def test_read_only_commands_use_exactly_their_permissions(tmp_path: Path) -> None:
    commands = (
        "top devices",
        "explain pod default/p",
        "doctor",
        "allocate",
        f"dump --output {tmp_path / 'dump.yaml'}",
        f"record --output {tmp_path / 'profile.yaml'}",
    )

    async def scenario() -> None:
        async with guarded(SystemClock(), READER) as application, listen(application, ListenAddress()) as url:
            admin = InProcessTransport(application, token=TOKEN)
            fleet = FleetSettings(profile=load_profile("gpu"), profile_name="gpu", count=2)
            await Fleet(admin, fleet, SystemClock()).publish()
            client = AsyncClient(admin)
            await client.create(claim_template("gpus", request(device_class=GPU)))
            await client.create(replace_uid(claim("c", request(device_class=GPU))))
            await client.create(pod("p", {"gpu": existing("c")}))
            kubeconfig = tmp_path / "kubeconfig"
            write_kubeconfig(kubeconfig, server=url, authority_pem=None, token=READER)
            for command in commands:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "dralloc", *command.split(), "--kubeconfig", str(kubeconfig)),
                    stdout=PIPE,
                    stderr=STDOUT,
                )
                said, _ = await process.communicate()
                assert process.returncode == 0, f"{command}: {said.decode()}"
            following = ("top", "devices", "--watch", "--kubeconfig", str(kubeconfig))
            process = await asyncio.create_subprocess_exec(sys.executable, "-m", "dralloc", *following, stdout=PIPE)
            try:
                await used_up(application, READER, granted(READER))
            finally:
                await kill(process)
            assert application.used[READER] == granted(READER)
            assert application.refused == {}

    asyncio.run(scenario())
