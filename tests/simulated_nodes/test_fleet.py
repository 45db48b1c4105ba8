"""Simulated nodes in virtual time: pods run as their annotations say, and claims are checked."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dralloc.client.async_client import AsyncClient
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.known_resources import resource_for
from dralloc.client.transport import ClientRequest, ClientResponse
from dralloc.client.typed_resource import ObjectKey
from dralloc.kube.codec import encode
from dralloc.kube.core_v1 import Event, Node
from dralloc.kube.pod_claims import pod_reference
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim, ResourceSlice
from dralloc.node.pod_view import NODE_PODS, NodePod
from dralloc.node.simulated.fleet import Fleet, FleetSettings
from dralloc.node.simulated.profiles import load_profile, profile_names
from dralloc.node.simulated_runtime import PREFIX, Behaviour, read_behaviour
from dralloc.node.timings import DEFAULT_TIMINGS
from dralloc.testing.builders import allocation, claim, device_class, held, request
from dralloc.testing.virtual_time import VirtualClock, run_virtual
from tests.simulator.network import Faults
from tests.support.api_server import TOKEN, api_application
from tests.support.faulty_transport import FaultyTransport
from tests.support.node_cluster import replace_uid
from tests.support.restorable_cluster import restorable_cluster
from tests.support.scripted_transport import LosesFirst, ScriptedTransport
from tests.support.workloads import existing
from tests.support.workloads import pod as pod_document


@dataclass
class World:
    client: AsyncClient
    network: FaultyTransport
    clock: VirtualClock
    fleet: Fleet
    running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        ready = asyncio.Event()
        self.running = asyncio.create_task(self.fleet.run(ready.set))
        await ready.wait()

    async def stop(self) -> None:
        assert self.running is not None
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)

    async def run_pod(self, name: str, *claims: str, node: str = "fake-0", **annotations: str) -> Pod:
        document = pod_document(name, {each: existing(each) for each in claims}, node=node)
        prefixed = {f"fake.dralloc.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
        document["metadata"]["annotations"] = prefixed
        if "failures" in annotations:
            document["spec"]["restartPolicy"] = "OnFailure"
        created: Pod = await self.client.create(document)
        return created

    async def pod(self, name: str) -> NodePod:
        return await self.client.calls.get(NODE_PODS, ObjectKey("default", name))

    async def phase_after(self, seconds: float, name: str) -> str:
        await asyncio.sleep(seconds)
        return (await self.pod(name)).status.phase

    async def phases(self) -> list[str]:
        return sorted(pod.status.phase for pod in await self.client.list(Pod))


@asynccontextmanager
async def world(count: int = 3, faults: Faults = Faults(), seed: int = 0) -> AsyncIterator[World]:  # noqa: B008 - immutable
    clock = VirtualClock(asyncio.get_running_loop())
    async with api_application(clock=clock) as application:
        sound = InProcessTransport(application, token=TOKEN)
        network = FaultyTransport(sound, Random(seed), Faults())
        settings = FleetSettings(profile=load_profile("gpu"), profile_name="gpu", count=count)
        made = World(AsyncClient(sound), network, clock, Fleet(network, settings, clock))
        await made.start()
        network.faults = faults
        try:
            yield made
        finally:
            await made.stop()


def play(scenario: Callable[[World], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        async with world(**options) as made:
            await scenario(made)

    run_virtual(run())


def test_nodes_and_their_devices_are_published() -> None:
    async def scenario(made: World) -> None:
        nodes = await made.client.list(Node)
        assert {node.metadata.name for node in nodes} == {"fake-0", "fake-1", "fake-2"}
        assert {condition.status for node in nodes for condition in node.status.conditions} == {"True"}
        assert {str(node.status.allocatable["cpu"]) for node in nodes} == {"96"}
        slices = await made.client.list(ResourceSlice)
        assert [len(item.spec.devices or ()) for item in slices] == [8, 8, 8]
        assert {item.metadata.owner_references[0].uid for item in slices} == {node.metadata.uid for node in nodes}

    play(scenario)


def test_pods_run_as_their_annotations_say() -> None:
    async def scenario(made: World) -> None:
        await made.run_pod("forever")
        await made.run_pod("slow", start_seconds="10")
        await made.run_pod("short", run_seconds="60")
        await made.run_pod("bad", run_seconds="60", exit_code="3")
        await made.run_pod("elsewhere", node="real-node")
        assert await made.phase_after(5, "forever") == "Running"
        assert await made.phase_after(0, "slow") == "Pending"
        assert await made.phase_after(10, "slow") == "Running"
        assert await made.phase_after(40, "short") == "Running"
        assert await made.phase_after(10, "short") == "Succeeded"
        assert await made.phase_after(0, "bad") == "Failed"
        assert await made.phase_after(3600, "forever") == "Running"
        assert await made.phase_after(0, "elsewhere") == "Pending"
        (status,) = (await made.pod("bad")).status.container_statuses
        assert status.state.terminated is not None
        assert status.state.terminated.exit_code == 3

    play(scenario)


def test_a_failing_pod_is_restarted_with_backoff() -> None:
    async def scenario(made: World) -> None:
        await made.run_pod("pod", failures="3", run_seconds="1000")
        await asyncio.sleep(5)
        (status,) = (await made.pod("pod")).status.container_statuses
        assert (status.restart_count, status.ready) == (1, False)
        assert status.state.waiting is not None
        assert status.state.waiting.reason == "CrashLoopBackOff"
        await asyncio.sleep(40)
        (status,) = (await made.pod("pod")).status.container_statuses
        assert (status.restart_count, status.ready) == (3, True)
        assert await made.phase_after(1000, "pod") == "Succeeded"

    play(scenario)


def test_a_deletion_takes_the_stop_time_limited_by_the_grace_period() -> None:
    async def scenario(made: World) -> None:
        for name, stop in (("quick", "0"), ("slow", "20"), ("stubborn", "1000")):
            await made.run_pod(name, stop_seconds=stop)
        await asyncio.sleep(1)
        for name in ("quick", "slow", "stubborn"):
            await made.client.delete(Pod, name)
        left = []
        for seconds in (1, 18, 2, 8, 2):
            await asyncio.sleep(seconds)
            left.append(len(await made.client.list(Pod)))
        assert left == [2, 2, 1, 1, 0]

    play(scenario)


def test_invalid_annotations_are_reported() -> None:
    async def scenario(made: World) -> None:
        await made.run_pod("pod", run_seconds="soon")
        await asyncio.sleep(2)
        (status,) = (await made.pod("pod")).status.container_statuses
        assert status.state.waiting is not None
        assert status.state.waiting.reason == "CreateContainerConfigError"
        assert "'soon' is not a number of seconds" in status.state.waiting.message

    play(scenario)


@pytest.mark.parametrize(
    ("annotations", "behaviour"),
    [
        ({}, Behaviour()),
        ({"other/run-seconds": "x"}, Behaviour()),
        ({"fake.dralloc.io/run-seconds": "1.5", "fake.dralloc.io/exit-code": "2"}, Behaviour(run_s=1.5, exit_code=2)),
        ({"fake.dralloc.io/stop-seconds": "1"}, Behaviour(stop_s=1.0, stop_code=143)),
        ({"fake.dralloc.io/stop-code": "0"}, Behaviour(stop_code=0)),
    ],
)
def test_behaviours(annotations: dict[str, str], behaviour: Behaviour) -> None:
    assert read_behaviour(annotations) == behaviour


@pytest.mark.parametrize(
    "annotation",
    [("run-seconds", "-1"), ("run-seconds", "nan"), ("run-seconds", "inf"), ("exit-code", "1.5"), ("run-minutes", "1")],
)
def test_invalid_behaviours(annotation: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match=annotation[0]):
        read_behaviour({f"fake.dralloc.io/{annotation[0]}": annotation[1]})


def test_a_pod_waits_for_its_claim_and_any_pod_may_use_a_shared_one() -> None:
    async def scenario(made: World) -> None:
        await made.client.create(device_class("gpu"))
        pod = await made.run_pod("pod", "claim")
        assert await made.phase_after(1, "pod") == "Pending"
        await made.client.create(replace_uid(claim("claim", request("request"))))
        assert await made.phase_after(1, "pod") == "Pending"
        status: dict[str, Any] = {"allocation": allocation(held("gpu-0")), "reservedFor": []}
        await made.client.patch(ResourceClaim, "claim", {"status": status}, subresource="status")
        assert await made.phase_after(1, "pod") == "Pending"
        messages = [event.message for event in await made.client.list(Event)]
        assert any("is not allowed to use ResourceClaim claim" in message for message in messages)
        status["reservedFor"] = [pod_reference(pod)]
        await made.client.patch(ResourceClaim, "claim", {"status": status}, subresource="status")
        # Woken by the change of the claim, not by the retry.
        assert await made.phase_after(0.1, "pod") == "Running"

    play(scenario)


@pytest.mark.parametrize("seed", range(3))
def test_pods_complete_over_a_lossy_network(seed: int) -> None:
    async def scenario(made: World) -> None:
        names = [f"pod-{number}" for number in range(30)]
        for number, name in enumerate(names):
            await made.run_pod(name, node=f"fake-{number % 3}", run_seconds=str(number % 7 * 10))
        await asyncio.sleep(60)
        for name in names[::3]:
            await made.client.calls.delete(resource_for(Pod), ObjectKey("default", name))
        await asyncio.sleep(600)
        made.network.faults = Faults()
        await asyncio.sleep(600)
        assert await made.phases() == ["Succeeded"] * 20

    play(scenario, faults=Faults(lose_request=0.1, lose_answer=0.1, break_stream=0.1), seed=seed)


def test_a_restarted_fleet_continues_with_its_pods() -> None:
    async def scenario(made: World) -> None:
        await made.run_pod("short", run_seconds="60")
        await made.run_pod("forever")
        assert await made.phase_after(30, "short") == "Running"
        await made.stop()
        assert await made.phase_after(100, "short") == "Running"
        await made.start()
        assert await made.phase_after(1, "short") == "Succeeded"
        (status,) = (await made.pod("forever")).status.container_statuses
        assert (status.ready, status.restart_count) == (True, 0)

    play(scenario)


async def shown(client: AsyncClient) -> dict[str, tuple[str, list[str]]]:
    """By node, readiness and taints."""
    return {
        node.metadata.name: (
            next(each.status for each in node.status.conditions if each.type == "Ready"),
            [f"{taint.key}:{taint.effect}" for taint in node.spec.taints],
        )
        for node in await client.list(Node)
    }


def test_nodes_are_not_ready_while_no_fleet_runs() -> None:
    """Otherwise pods would be scheduled to them that never run."""

    async def scenario(made: World) -> None:
        mine = {"spec": {"taints": [{"key": "mine", "effect": "NoExecute"}]}}
        await made.client.patch(Node, "fake-1", mine)
        left = "node.kubernetes.io/not-ready:NoSchedule"
        for _ in range(2):
            await made.stop()
            assert await shown(made.client) == {
                "fake-0": ("False", [left]),
                "fake-1": ("False", ["mine:NoExecute", left]),
                "fake-2": ("False", [left]),
            }
            assert {str(node.status.allocatable["cpu"]) for node in await made.client.list(Node)} == {"96"}
            await made.start()
            assert await shown(made.client) == {
                "fake-0": ("True", []),
                "fake-1": ("True", ["mine:NoExecute"]),
                "fake-2": ("True", []),
            }

    play(scenario)


def test_a_contradiction_that_was_lost_is_repeated_soon() -> None:
    async def main() -> None:
        async with restorable_cluster(only=("quota",)) as (cluster, server):
            transport = ScriptedTransport(server, LosesFirst("/nodes/fake-0/status", 2))
            settings = FleetSettings(profile=load_profile("gpu"), profile_name="gpu", count=1)
            cluster.components.start("fleet", Fleet(transport, settings, cluster.clock).run)
            await cluster.settle()
            unknown = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
            await cluster.client.patch(Node, "fake-0", unknown, subresource="status")
            await cluster.settle(60)
            assert await shown(cluster.client) == {"fake-0": ("True", [])}

    run_virtual(main())


def test_nodes_of_another_process_stay_ready() -> None:
    async def scenario(made: World) -> None:
        await asyncio.sleep(60)
        settings = FleetSettings(profile=load_profile("gpu"), profile_name="gpu", count=2)
        await Fleet(made.network, settings, made.clock).come_up()
        await made.stop()
        assert {name: ready for name, (ready, _) in (await shown(made.client)).items()} == {
            "fake-0": "True",
            "fake-1": "True",
            "fake-2": "False",
        }

    play(scenario)


class KeepsTaints(InProcessTransport):
    """As in a cluster in which only a controller may change taints."""

    async def send(self, request: ClientRequest) -> ClientResponse:
        if b'"taints"' in request.body:
            refusal = {"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403}
            return ClientResponse(status=403, body=encode(refusal))
        return await super().send(request)


def test_nodes_work_without_permission_to_change_taints() -> None:
    async def scenario() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        async with api_application(clock=clock) as application:
            client = AsyncClient(InProcessTransport(application, token=TOKEN))
            settings = FleetSettings(profile=load_profile("gpu"), profile_name="gpu", count=1)
            taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
            tainted = {"metadata": {"name": "fake-0"}, "spec": {"taints": [taint]}}
            await client.create({"apiVersion": "v1", "kind": "Node", **tainted})
            ready = asyncio.Event()
            transport = KeepsTaints(application, token=TOKEN)
            running = asyncio.create_task(Fleet(transport, settings, clock).run(ready.set))
            await ready.wait()
            # The server's taint follows the condition.
            assert await shown(client) == {"fake-0": ("True", [])}
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            assert await shown(client) == {"fake-0": ("False", ["node.kubernetes.io/not-ready:NoSchedule"])}

    run_virtual(scenario())


class WritesNoStatus(InProcessTransport):
    """Hangs on status writes after `hang` is set."""

    is_busy = False

    async def send(self, request: ClientRequest) -> ClientResponse:
        if self.is_busy and request.path.endswith("/status"):
            await asyncio.Event().wait()
        return await super().send(request)


@pytest.mark.slow
def test_all_nodes_are_tainted_before_any_status_is_written() -> None:
    """There may be thousands of nodes, and little time."""

    async def scenario() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        async with api_application(clock=clock) as application:
            transport, ready = WritesNoStatus(application, token=TOKEN), asyncio.Event()
            settings = FleetSettings(profile=load_profile("gpu"), profile_name="gpu", count=80)
            running = asyncio.create_task(Fleet(transport, settings, clock).run(ready.set))
            await ready.wait()
            transport.is_busy = True
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            shown_by_all = await shown(AsyncClient(InProcessTransport(application, token=TOKEN)))
            left = ("True", ["node.kubernetes.io/not-ready:NoSchedule"])
            assert list(shown_by_all.values()) == [left] * 80

    run_virtual(scenario())


def test_the_shutdown_is_bounded_if_the_api_server_does_not_answer() -> None:
    async def scenario(made: World) -> None:
        made.network.faults = Faults(slow=1.0, delay_max_s=100_000)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await made.stop()
        assert loop.time() - begun <= DEFAULT_TIMINGS.leave_s

    play(scenario)


def test_the_page_about_simulated_nodes_lists_all_annotations_and_profiles() -> None:
    page = (Path(__file__).parents[2] / "docs" / "simulated-nodes.md").read_text()
    told = set(re.findall(rf"^\| `{re.escape(PREFIX)}([a-z-]+)` \|", page, re.M))
    with pytest.raises(ValueError, match="unknown annotation") as known:
        read_behaviour({f"{PREFIX}unheard-of": ""})
    assert sorted(told) == str(known.value).rpartition("known are ")[2].split(", ")
    assert sorted(re.findall(r"^\| `(\w+)` \| (?:two|four|eight)", page, re.M)) == profile_names()
