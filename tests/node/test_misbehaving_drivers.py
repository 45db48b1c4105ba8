"""The agent survives misbehaving drivers, reports the error, and continues when the driver recovers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from dralloc.node.timings import Timings
from dralloc.rpc.plugin_services import (
    DRA_V1,
    DRA_V1BETA1,
    NODE_PREPARE_RESOURCES,
    NODE_UNPREPARE_RESOURCES,
    REGISTRATION,
    PluginService,
)
from dralloc.testing.builders import allocation, held
from tests.support.node_cluster import QUICK, NodeCluster, node_cluster, short_directory
from tests.support.scripted_driver import ScriptedDriver

pytestmark = pytest.mark.slow

Scenario = Callable[[NodeCluster, ScriptedDriver], Awaitable[None]]


# For drivers that hang.
IMPATIENT = replace(QUICK, notify_s=0.5, call_s=0.5)


def play(scenario: Scenario, *, timings: Timings = QUICK, **driver: Any) -> None:
    """Run a scenario with an agent with simulated containers, and one registered driver."""

    async def run() -> None:
        with short_directory() as directory:
            async with (
                node_cluster(directory, timings=timings, runs_processes=False) as world,
                ScriptedDriver(directory, **driver) as scripted,
            ):
                await scripted.until(lambda: (True, "") in scripted.registrations)
                await scenario(world, scripted)

    asyncio.run(run())


async def pod_that_waits(world: NodeCluster, text: str, name: str = "pod") -> None:
    """The pod is Pending, with an event that has the reason."""
    event = await world.event_where(lambda event: event.involved_object.name == name and text in event.message)
    assert event.reason == "FailedPrepareDynamicResources"
    assert event.message.startswith("Failed to prepare dynamic resources: prepare dynamic resources: ")
    assert (await world.pod_where(name, lambda pod: bool(pod.status.phase))).status.phase == "Pending"


async def fails(service: PluginService, request: Any, context: Any) -> Any:
    answer = service.messages.NodePrepareResourceResponse(error="the device is on fire")
    return service.messages.NodePrepareResourcesResponse(claims={claim.uid: answer for claim in request.claims})


async def aborts(service: PluginService, request: Any, context: Any) -> Any:
    await context.abort(grpc.StatusCode.INTERNAL, "out of luck")


async def raises(service: PluginService, request: Any, context: Any) -> Any:
    raise RuntimeError("a bug")


async def hangs(service: PluginService, request: Any, context: Any) -> Any:
    await asyncio.Event().wait()


async def answers_for_another_claim(service: PluginService, request: Any, context: Any) -> Any:
    answer = service.messages.NodePrepareResourceResponse()
    return service.messages.NodePrepareResourcesResponse(claims={"another-claim": answer})


async def answers_for_no_claim(service: PluginService, request: Any, context: Any) -> Any:
    return service.messages.NodePrepareResourcesResponse()


async def sends_garbage(service: PluginService, request: Any, context: Any) -> Any:
    return b"\xff\xff\xff no message"


async def answers_too_much(service: PluginService, request: Any, context: Any) -> Any:
    ids = [f"example.com/gpu={'x' * 1000}{number}" for number in range(5000)]
    device = service.messages.Device(pool_name="pool-a", device_name="gpu-0", cdi_device_ids=ids)
    answer = service.messages.NodePrepareResourceResponse(devices=[device])
    return service.messages.NodePrepareResourcesResponse(claims={claim.uid: answer for claim in request.claims})


async def answers_with_a_hundred_thousand_devices(service: PluginService, request: Any, context: Any) -> Any:
    devices = [service.messages.Device(pool_name="pool-a", device_name=f"gpu-{number}") for number in range(100_000)]
    answer = service.messages.NodePrepareResourceResponse(devices=devices)
    return service.messages.NodePrepareResourcesResponse(claims={claim.uid: answer for claim in request.claims})


async def fails_with_a_long_story(service: PluginService, request: Any, context: Any) -> Any:
    answer = service.messages.NodePrepareResourceResponse(error="and then " * 400_000)
    return service.messages.NodePrepareResourcesResponse(claims={claim.uid: answer for claim in request.claims})


@pytest.mark.parametrize(
    ("behaviour", "text"),
    [
        pytest.param(answers_too_much, "RESOURCE_EXHAUSTED", id="answers too much"),
        pytest.param(
            answers_with_a_hundred_thousand_devices,
            "bytes for ResourceClaim claim; an answer for one claim has at most 65,536 bytes",
            id="many devices",
        ),
        pytest.param(fails_with_a_long_story, "and then " * 50, id="long story"),
        pytest.param(fails, "NodePrepareResources failed for ResourceClaim claim: the device is on fire", id="fails"),
        pytest.param(aborts, "INTERNAL: out of luck", id="aborts"),
        pytest.param(raises, "UNKNOWN", id="raises"),
        pytest.param(hangs, "DEADLINE_EXCEEDED", id="hangs"),
        pytest.param(answers_for_another_claim, "'another-claim', which was not in the call", id="wrong claim"),
        pytest.param(sends_garbage, "the answer cannot be decoded", id="sends garbage"),
        pytest.param(answers_for_no_claim, "NodePrepareResources skipped 1 ResourceClaims (claim)", id="no claim"),
    ],
)
def test_a_pod_waits_while_its_driver_misbehaves_and_runs_after_it_recovers(behaviour: Any, text: str) -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        driver.on_prepare = behaviour
        await world.create_claim("claim")
        await world.run_pod("pod", "claim")
        await pod_that_waits(world, text)
        # Other pods are not blocked.
        await world.run_pod("without-claims")
        await world.pod_in("Running", "without-claims")
        driver.on_prepare = None
        await world.pod_in("Running")
        assert not driver.overlaps

    play(scenario, timings=IMPATIENT if behaviour is hangs else QUICK)


def test_a_driver_that_dies_during_a_call_leaves_the_pod_waiting_for_the_next_instance() -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        driver.on_prepare = hangs
        await world.create_claim("claim")
        await world.run_pod("pod", "claim")
        await driver.until(lambda: bool(driver.calls))
        await driver.vanish()
        await pod_that_waits(world, "UNAVAILABLE")
        driver.on_prepare = None
        await driver.start()
        await world.pod_in("Running")

    play(scenario)


def test_a_pod_that_is_deleted_while_its_driver_hangs_does_not_wait_for_the_driver() -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        driver.on_prepare = hangs
        await world.create_claim("claim")
        await world.run_pod("pod", "claim")
        await driver.until(lambda: bool(driver.calls))
        await world.start_deletion("pod")
        await world.until_gone()
        # The claim may have been prepared, so it is unprepared.
        assert driver.calls_of(NODE_UNPREPARE_RESOURCES)

    play(scenario)


def test_a_pod_is_deleted_after_its_claims_are_unprepared() -> None:
    async def refuses(service: PluginService, request: Any, context: Any) -> Any:
        answer = service.messages.NodeUnprepareResourceResponse(error="still in use")
        return service.messages.NodeUnprepareResourcesResponse(claims={claim.uid: answer for claim in request.claims})

    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        driver.on_unprepare = refuses
        await world.create_claim("claim")
        await world.run_pod("pod", "claim")
        await world.pod_in("Running")
        await world.start_deletion("pod")
        await world.event_where(lambda event: event.reason == "FailedUnprepareDynamicResources")
        pod = await world.pod_where("pod", lambda pod: pod.is_terminating)
        assert pod.status.phase == "Running"
        driver.on_unprepare = None
        await world.until_gone()
        assert not driver.prepared

    play(scenario)


def test_a_pod_ends_although_its_driver_never_answers() -> None:
    """The devices are prepared for no other pod until the driver has unprepared them."""

    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        driver.on_unprepare = hangs
        await world.create_claim("claim")
        await world.run_pod("pod", "claim")
        await world.pod_in("Running")
        (first,) = driver.prepared
        await world.start_deletion("pod")
        await world.until_gone()
        event = await world.event_where(lambda event: event.reason == "UnprepareDynamicResourcesTimedOut")
        assert event.message.startswith("the pod ends although its claims are still prepared after 1 s: ")
        await world.allocate("claim", None)
        await world.create_claim("next")
        await world.run_pod("next", "next")
        await pod_that_waits(world, "NodeUnprepareResources of driver gpu.example.com", "next")
        assert driver.prepared == {first}
        driver.on_unprepare = None
        await world.pod_in("Running", "next")
        assert first not in driver.prepared

    play(scenario, timings=replace(IMPATIENT, unprepare_s=1.0))


def test_a_share_needs_a_driver_with_share_ids() -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        share = "8e3f2c1a-0b4d-4e6f-8a9b-0c1d2e3f4a5b"
        await world.create_claim("shared", allocation(held("gpu-0", share_id=share)))
        await world.create_claim("whole", allocation(held("gpu-1")))
        await world.run_pod("pod", "shared")
        await pod_that_waits(world, "ResourceClaim shared has a share of device pool-a/gpu-0")
        assert not driver.calls
        await world.run_pod("other", "whole")
        await world.pod_in("Running", "other")
        assert {call.service for call in driver.calls} == {"v1beta1.DRAPlugin"}

    play(scenario, services=(DRA_V1BETA1,))


def test_shares_are_prepared_with_v1_even_if_v1beta1_is_advertised_first() -> None:
    share = "8e3f2c1a-0b4d-4e6f-8a9b-0c1d2e3f4a5b"

    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        driver.devices = lambda claim: [
            {"pool_name": "pool-a", "device_name": "gpu-0", "share_id": share}
            if claim.name == "shared"
            else {"pool_name": "pool-a", "device_name": "gpu-1"}
        ]
        await world.create_claim("shared", allocation(held("gpu-0", share_id=share)))
        await world.create_claim("whole", allocation(held("gpu-1")))
        pods = [await world.run_pod("sharer", "shared"), await world.run_pod("other", "whole")]
        for name in ("sharer", "other"):
            await world.pod_in("Running", name)
        assert world.agent is not None
        held_by = [world.agent.claims.of_pod(pod.metadata.uid) for pod in pods]
        assert [device.share_id for _, device in held_by[0]["shared"].devices()] == [share]
        assert [device.share_id for _, device in held_by[1]["whole"].devices()] == [None]
        assert {call.service for call in driver.calls_of(NODE_PREPARE_RESOURCES)} == {
            "v1.DRAPlugin",
            "v1beta1.DRAPlugin",
        }

    play(scenario, services=(DRA_V1BETA1, DRA_V1))


# --- Registration -------------------------------------------------------------------------------------------------


def registering(**driver: Any) -> list[tuple[bool, str]]:
    """The registration error of a driver with these properties."""

    async def run() -> list[tuple[bool, str]]:
        with short_directory() as directory:
            async with (
                node_cluster(directory, runs_processes=False),
                ScriptedDriver(directory, **driver) as scripted,
            ):
                await scripted.until(lambda: bool(scripted.registrations))
                return scripted.registrations

    return asyncio.run(run())


async def long_info() -> Any:
    return REGISTRATION.messages.PluginInfo(
        type="DRAPlugin", name="gpu.example.com", endpoint="/x" * 750_000, supported_versions=["v1.DRAPlugin"]
    )


@pytest.mark.parametrize(
    ("driver", "text"),
    [
        ({"type": "CSIPlugin"}, "plugin type 'CSIPlugin' is not supported"),
        ({"services": ()}, "advertises no supported service"),
        ({"name": "Not_A_Name"}, "is not a valid driver name"),
        ({"on_get_info": long_info}, "GetInfo answered 1,500,046 bytes, and may answer at most 4,096"),
    ],
    ids=["another type", "no service", "no name", "a long answer"],
)
def test_a_plugin_that_cannot_be_registered_is_told_why(driver: dict[str, Any], text: str) -> None:
    registered, error = registering(**driver)[0]
    assert not registered
    assert text in error


def test_registration_is_tried_again_until_the_plugin_answers() -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        failures = 0

        async def refuse_twice() -> Any:
            nonlocal failures
            failures += 1
            if failures <= 2:
                raise RuntimeError("not ready yet")
            other.on_get_info = None
            return await other._get_info(None, None)

        other = ScriptedDriver(world.directory, name="late.example.com", on_get_info=refuse_twice)
        async with other:
            await other.until(lambda: (True, "") in other.registrations)
            assert failures == 3

    play(scenario)


def test_a_driver_that_cannot_be_notified_is_not_registered() -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        deaf = ScriptedDriver(world.directory, name="deaf.example.com")

        async def hang() -> None:
            await asyncio.Event().wait()

        deaf.on_notify = hang
        async with deaf:
            await deaf.until(lambda: len(deaf.registrations) >= 2)
            deaf.on_notify = None
            count = len(deaf.registrations)
            await deaf.until(lambda: len(deaf.registrations) > count)
            assert world.agent is not None
            assert "deaf.example.com" in world.agent.drivers.names()

    play(scenario, timings=IMPATIENT)


def test_a_call_to_a_driver_that_cannot_be_notified_is_a_failed_one() -> None:
    """Its connection is closed in the middle of the call; the pod must not go on without its devices."""

    async def hang() -> None:
        await asyncio.Event().wait()

    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        await world.create_claim("claim")
        await world.run_pod("pod", "claim")
        await pod_that_waits(
            world, "NodePrepareResources of driver gpu.example.com: it was deregistered during the call"
        )
        driver.on_notify = driver.on_prepare = None
        await world.pod_in("Running")
        assert driver.prepared

    play(scenario, timings=replace(QUICK, notify_s=0.5), on_notify=hang, on_prepare=hangs)


def test_sockets_without_grpc_do_no_harm() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hello, this is no http2 at all\r\n" * 100)
        writer.close()
        await writer.wait_closed()

    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        registry = world.directory / "plugins_registry"
        (registry / "a-file").write_text("no socket")
        with (
            socket.socket(socket.AF_UNIX) as dead,
            socket.socket(socket.AF_UNIX) as silent,
        ):
            dead.bind(str(registry / "dead-reg.sock"))
            silent.bind(str(registry / "silent-reg.sock"))
            silent.listen()
            async with await asyncio.start_unix_server(babble, registry / "babble-reg.sock"):
                await see_another_driver_register(world)

    play(scenario)


async def see_another_driver_register(world: NodeCluster) -> None:
    async with ScriptedDriver(world.directory, name="late.example.com") as late:
        await late.until(lambda: (True, "") in late.registrations)


def test_two_instances_cannot_share_an_endpoint() -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        async def same_endpoint() -> Any:
            return REGISTRATION.messages.PluginInfo(
                type="DRAPlugin", name=driver.name, endpoint=str(driver.socket), supported_versions=["v1.DRAPlugin"]
            )

        twin = ScriptedDriver(world.directory, instance="twin", on_get_info=same_endpoint)
        async with twin:
            await twin.until(lambda: bool(twin.registrations))
            registered, error = twin.registrations[0]
            assert not registered
            assert "registered at" in error

    play(scenario)


def test_calls_go_to_the_newest_instance_and_back_to_the_old_one_when_it_fails() -> None:
    async def scenario(world: NodeCluster, old: ScriptedDriver) -> None:
        new = ScriptedDriver(world.directory, instance="new")
        for name in ("first", "second", "third"):
            await world.create_claim(name, allocation(held(f"gpu-{name}")))
        async with new:
            await new.until(lambda: (True, "") in new.registrations)
            await world.run_pod("one", "first")
            await world.pod_in("Running", "one")
            assert (len(old.calls), len(new.calls)) == (0, 1)
            await new.vanish()
            await world.run_pod("two", "second")
            await world.pod_in("Running", "two")
            assert len(old.calls) == 1
        await world.run_pod("three", "third")
        await world.pod_in("Running", "three")
        assert len(old.calls) == 2

    play(scenario)


def test_a_driver_whose_socket_is_removed_is_deregistered(tmp_path: Path) -> None:
    async def scenario(world: NodeCluster, driver: ScriptedDriver) -> None:
        await driver.stop()
        await world.create_claim("claim")
        await world.run_pod("pod", "claim")
        await pod_that_waits(world, "DRA driver gpu.example.com is not registered")
        await driver.start()
        await world.pod_in("Running")

    play(scenario)
