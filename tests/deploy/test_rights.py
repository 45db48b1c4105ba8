"""Least privilege, tested in both directions: every component runs with the roles of `deploy/`, and uses everything
that they grant.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dralloc.api.batch_v1 import Job
from dralloc.api.core_v1 import Event
from dralloc.api.pod_claims import pod_reference
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import DeviceClass, DeviceTaint, DeviceTaintRule, DeviceToleration, ResourceClaim
from dralloc.apiserver.credentials.kubeconfig import write_kubeconfig
from dralloc.apiserver.http.listener import ListenAddress, listen
from dralloc.assembly.components import Components
from dralloc.client.async_client import AsyncClient
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.transport import ClientRequest, Transport
from dralloc.controllers.controller_set import ControllerSet
from dralloc.driver import DriverFunctions
from dralloc.driver import device as plain_device
from dralloc.driver.plugin import Plugin
from dralloc.driver_kit.caller import ClaimName, calling
from dralloc.driver_kit.claim_maker import ClaimMaker, exactly
from dralloc.fleet.fleet import Fleet, FleetSettings
from dralloc.fleet.profiles import load_profile, read_profile
from dralloc.node.agent import Agent, AgentSettings
from dralloc.node.node_object import NodeShape
from dralloc.node.simulated_runtime import PREFIX
from dralloc.primitives.clock import Clock
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.leader_loop import SchedulerLoop
from dralloc.scheduler.settings import NAME, SchedulerSettings
from dralloc.simulator.virtual_time import VirtualClock, run_virtual
from dralloc.system_clock import SystemClock
from dralloc.testing.builders import allocation, claim, device, device_class, held, request, resource_slice, taint_rule
from dralloc.testing.driver_bench import bench_settings
from tests.support.api_server import TOKEN, api_server
from tests.support.node_cluster import QUICK, replace_uid, short_directory
from tests.support.node_process import kill
from tests.support.rights import Grant, GuardedApplication, account_name, grants_of, rights_needed
from tests.support.scripted_driver import ScriptedDriver
from tests.support.scripted_transport import Loss, ScriptedTransport
from tests.support.workloads import claim_template, existing, job, pod, quota, template

DEPLOY = Path(__file__).parents[2] / "deploy"
SCHEDULER, CONTROLLERS, NODE, FAKE_NODES, READER = (
    account_name("dralloc-system", f"dralloc-{name}")
    for name in ("scheduler", "controllers", "node", "fake-nodes", "read-only")
)
DRIVERS = DEPLOY.parent / "examples" / "drivers"
GPU = "gpu.example.com"

pytestmark = pytest.mark.slow


def granted(user: str) -> frozenset[Grant]:
    """The manifests' grants for a user: ours, or those of an example driver."""
    *_, namespace, name = user.split(":")
    is_ours = namespace == "dralloc-system"
    file = DEPLOY / name.removeprefix("dralloc-") / "rbac.yaml" if is_ours else DRIVERS / name / "manifests/driver.yaml"
    return grants_of(user, yaml.safe_load_all(file.read_text()))


class LosesFirstAnswers:
    """Drops the first answer of each kind of write, so that the writer has to check the result."""

    def __init__(self) -> None:
        self._seen: set[object] = set()

    def __call__(self, request: ClientRequest) -> Loss:
        kind = tuple(right for right, _ in rights_needed(request.method, request.path, request.query))
        if request.method == "GET" or kind in self._seen:
            return Loss.NOTHING
        self._seen.add(kind)
        return Loss.ANSWER


@dataclass
class World:
    """A cluster whose components are restricted to their roles."""

    application: GuardedApplication
    clock: VirtualClock

    @property
    def client(self) -> AsyncClient:
        return AsyncClient(InProcessTransport(self.application, token=TOKEN))

    def transport_of(self, user: str) -> Transport:
        return ScriptedTransport(InProcessTransport(self.application, token=user), LosesFirstAnswers())

    async def until(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        """Waits, in virtual time, until the condition holds."""
        for _ in range(1000):
            if await holds():
                return
            await asyncio.sleep(1)
        raise AssertionError(f"not so: {what}")

    async def pod_in(self, name: str, phase: str) -> None:
        async def is_in() -> bool:
            return any(p.metadata.name == name and p.status.phase == phase for p in await self.client.list(Pod))

        await self.until(is_in, f"pod {name} is {phase}")

    async def until_all_is_used(self, user: str) -> None:
        async def is_used() -> bool:
            return self.application.used[user] == granted(user)

        try:
            await self.until(is_used, "all rights are used")
        except AssertionError:
            unused = granted(user) - self.application.used[user]
            pytest.fail(f"{user} does not need {sorted(unused)}")


@asynccontextmanager
async def guarded(clock: Clock, *users: str) -> AsyncIterator[GuardedApplication]:
    """A server that restricts these users to their roles."""
    async with api_server(clock=clock) as server:
        yield GuardedApplication(server, {user: granted(user) for user in users})


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        clock = VirtualClock(asyncio.get_running_loop())
        made = World(await stack.enter_async_context(guarded(clock, SCHEDULER, CONTROLLERS)), clock)
        components = await stack.enter_async_context(Components())
        gates = FeatureGates.defaults()
        scheduler = SchedulerLoop(
            made.transport_of(SCHEDULER), clock=clock, settings=SchedulerSettings(names=frozenset({NAME}), gates=gates)
        )
        controllers = ControllerSet(made.transport_of(CONTROLLERS), clock=clock, gates=gates)
        fleet = FleetSettings(profile=load_profile("gpu"), profile_name="gpu", count=2, prefix="node")
        ready = asyncio.Event()
        admin = InProcessTransport(made.application, token=TOKEN)
        components.start("nodes", lambda: Fleet(admin, fleet, clock).run(ready.set))
        components.start("scheduler", lambda: scheduler.run_elected("scheduler-1"))
        components.start("controllers", lambda: controllers.run_elected("controllers-1"))
        await components.guard(ready.wait())
        yield made


def gpu_pod(name: str, *sources: tuple[str, dict[str, Any]], runs_s: int = 100_000, **options: Any) -> dict[str, Any]:
    document = pod(name, dict(sources), **{"scheduler": NAME, **options})
    document["metadata"]["annotations"] = {f"{PREFIX}run-seconds": str(runs_s)}
    return document


async def shared_claims_and_templates(here: World) -> None:
    """Existing claims, claims from templates, pods that finish and pods without a scheduler."""
    create = here.client.create
    await create(replace_uid(claim("mine", request(device_class=GPU))))
    await create(claim_template("gpus", request(device_class=GPU)))
    await create(gpu_pod("user", ("gpu", existing("mine"))))
    await create(gpu_pod("short", ("gpu", template("gpus")), runs_s=10))
    await here.pod_in("user", "Running")
    await here.pod_in("short", "Succeeded")
    # Bound by hand to an allocated claim: the controller adds it to reservedFor.
    await create(gpu_pod("forced", ("gpu", existing("mine")), node="node-0"))

    async def is_listed() -> bool:
        found = await here.client.get(ResourceClaim, "mine")
        return "forced" in {each.name for each in found.status.reserved_for}

    await here.until(is_listed, "the pod without a scheduler is on the list of its claim")


async def waiting_in_vain(here: World) -> None:
    """A pod that is pending for one reason, for another, and for the first again: a repeated event is counted."""
    create = here.client.create
    await create(replace_uid(claim("none", request(device_class="rare"))))
    await create(gpu_pod("waits", ("gpu", existing("none"))))

    async def reason() -> str:
        found = await here.client.get(Pod, "waits")
        return "; ".join(condition.message for condition in found.status.conditions)

    async def changes(before: str) -> str:
        async def has_changed() -> bool:
            return await reason() != before

        await here.until(has_changed, "the pod waits for another reason")
        return await reason()

    rare: dict[str, Any] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "rare"},
        "spec": {"selectors": [{"cel": {"expression": "false"}}]},
    }
    without = await changes("")
    for _ in range(2):
        await create(rare)
        within = await changes(without)
        await here.client.delete(DeviceClass, "rare")
        assert await changes(within) == without


async def evictions(here: World) -> None:
    """Devices of running pods get a taint. One pod is evicted at once, another tolerates it long enough to stay, and
    again.
    """
    create = here.client.create
    patient = request(device_class=GPU, tolerations=[DeviceToleration(operator="Exists", toleration_seconds=600)])
    await create(replace_uid(claim("borne", patient)))
    await create(gpu_pod("bears", ("gpu", existing("borne"))))
    await here.pod_in("bears", "Running")
    taint = DeviceTaint(key="broken", effect="NoExecute")

    async def break_device(of: str) -> None:
        found = await here.client.get(ResourceClaim, of)
        assert found.status.allocation is not None
        (result,) = found.status.allocation.devices.results
        await create(taint_rule(of, taint, driver=result.driver, pool=result.pool, device=result.device))

    async def is_gone() -> bool:
        return "user" not in {each.metadata.name for each in await here.client.list(Pod)}

    async def is_pending() -> bool:
        conditions = (await here.client.get(DeviceTaintRule, "borne")).status.conditions
        return any(each.reason == "PodsPendingEviction" for each in conditions or ())

    async def is_called_off() -> bool:
        found = await here.client.list(Event)
        return any(each.involved_object.name == "bears" and each.message == "Cancelling deletion" for each in found)

    await break_device("mine")
    await here.until(is_gone, "the pod is evicted")
    for _ in range(2):
        await break_device("borne")
        await here.until(is_pending, "an eviction is awaited")
        await here.client.delete(DeviceTaintRule, "borne")
        await here.until(is_called_off, "it is called off")


async def jobs(here: World) -> None:
    """Jobs that finish and are deleted, that scale down, and that share one claim which outlives them for a moment."""
    create = here.client.create
    specs: dict[str, dict[str, Any]] = {
        "done": {"ttlSecondsAfterFinished": 5},
        "shrinks": {"parallelism": 2},
        "shares": {},
    }
    for name, spec in specs.items():
        claims = {"gpu": existing("shared")} if name == "shares" else {}
        annotations = {"dralloc.io/shared-claims": "shared=gpus"} if name == "shares" else {}
        document = job(name, claims, annotations=annotations, **spec)
        runs_s = "5" if name == "done" else "100000"
        document["spec"]["template"]["metadata"] = {"annotations": {f"{PREFIX}run-seconds": runs_s}}
        document["spec"]["template"]["spec"]["schedulerName"] = NAME
        await create(document)

    async def pods_of(name: str) -> int:
        found = await here.client.list(Pod, labels=f"job-name={name}")
        return len([each for each in found if each.status.phase == "Running"])

    async def are_running() -> bool:
        return await pods_of("shrinks") == 2 and await pods_of("shares") == 1

    await here.until(are_running, "the pods of the jobs run")
    await here.client.patch(Job, "shrinks", {"spec": {"parallelism": 1}})
    await here.client.delete(Job, "shares")


def test_scheduler_and_controllers_use_exactly_their_permissions() -> None:
    async def scenario() -> None:
        async with world() as here:
            await here.client.create(quota("limit", {"count/pods": "100"}))
            await waiting_in_vain(here)
            await shared_claims_and_templates(here)
            await jobs(here)
            await evictions(here)
            for user in (SCHEDULER, CONTROLLERS):
                await here.until_all_is_used(user)
            assert dict(here.application.refused) == {}

    run_virtual(scenario())


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
            assert dict(application.refused) == {}

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
            assert dict(application.refused) == {}

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
            assert dict(application.refused) == {}

    with short_directory() as directory:
        asyncio.run(scenario(directory))


def test_read_only_commands_use_exactly_their_permissions(tmp_path: Path) -> None:
    commands = (
        "top devices",
        "explain pod default/p",
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
            assert dict(application.refused) == {}

    asyncio.run(scenario())
