"""Events: the first one is created, repetitions are counted, and a lost one is harmless."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from dralloc.api.core_v1 import Event, ObjectReference
from dralloc.client.api_calls import ApiCalls
from dralloc.client.async_client import AsyncClient
from dralloc.client.event_recorder import WAITING_MAX, EventRecorder, Report
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.known_resources import resource_for
from dralloc.simulator.network import Faults
from dralloc.simulator.virtual_time import VirtualClock, run_virtual
from tests.support.api_server import TOKEN, api_application
from tests.support.faulty_transport import FaultyTransport

POD = ObjectReference(kind="Pod", api_version="v1", namespace="default", name="p", uid="u1")


def report(message: str, *, is_latest: bool = False) -> Report:
    return Report(POD, "Warning", "FailedScheduling", message, "Scheduling", is_latest=is_latest)


@asynccontextmanager
async def recording() -> AsyncIterator[tuple[AsyncClient, EventRecorder]]:
    """A recorder that runs inside the block, and a client that reads what it has written."""
    clock = VirtualClock(asyncio.get_running_loop())
    async with api_application(clock=clock) as application:
        client = AsyncClient(InProcessTransport(application, token=TOKEN))
        recorder = EventRecorder(client.calls, resource_for(Event), component="scheduler", clock=clock)
        writing = asyncio.ensure_future(recorder.run())
        yield client, recorder
        writing.cancel()


def test_repeated_events_are_one_object_with_a_count() -> None:
    async def scenario() -> None:
        async with recording() as (client, recorder):
            for _ in range(3):
                recorder.report(report("bandwidth short"))
                await asyncio.sleep(60)
            recorder.report(report("something else"))
            await asyncio.sleep(1)
            events = {event.message: event for event in await client.list(Event)}
            assert {message: event.count for message, event in events.items()} == {
                "bandwidth short": 3,
                "something else": 1,
            }
            repeated = events["bandwidth short"]
            assert (repeated.first_timestamp, repeated.last_timestamp) == (
                "2026-01-01T00:00:00Z",
                "2026-01-01T00:02:00Z",
            )
            assert repeated.involved_object.name == "p"

    run_virtual(scenario())


def test_replacing_reports_are_one_object_with_the_last_message() -> None:
    async def scenario() -> None:
        async with recording() as (client, recorder):
            for nodes in (1, 2, 3):
                recorder.report(report(f"0/{nodes} nodes are available", is_latest=True))
                await asyncio.sleep(60)
            (event,) = await client.list(Event)
            assert (event.count, event.message) == (3, "0/3 nodes are available")
            assert (event.first_timestamp, event.last_timestamp) == ("2026-01-01T00:00:00Z", "2026-01-01T00:02:00Z")

    run_virtual(scenario())


def test_long_messages_are_cut() -> None:
    async def scenario() -> None:
        async with recording() as (client, recorder):
            recorder.report(report("x" * 5000))
            await asyncio.sleep(1)
            (event,) = await client.list(Event)
            assert len(event.message) == 1024
            assert event.message.endswith("x ...")

    run_virtual(scenario())


def test_after_a_loss_the_next_event_is_created_again() -> None:
    async def scenario() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        async with api_application(clock=clock) as application:
            network = FaultyTransport(InProcessTransport(application, token=TOKEN), Random(1), Faults(lose_request=1.0))
            recorder = EventRecorder(ApiCalls(network), resource_for(Event), component="scheduler", clock=clock)
            writing = asyncio.ensure_future(recorder.run())
            recorder.report(report("lost"))
            await asyncio.sleep(1)
            network.faults = Faults()
            recorder.report(report("lost"))
            await asyncio.sleep(1)
            writing.cancel()
            client = AsyncClient(InProcessTransport(application, token=TOKEN))
            assert [event.count for event in await client.list(Event)] == [1]

    run_virtual(scenario())


def test_events_are_dropped_and_counted_when_the_server_is_slow() -> None:
    async def scenario() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        async with api_application(clock=clock) as application:
            client = AsyncClient(InProcessTransport(application, token=TOKEN))
            recorder = EventRecorder(client.calls, resource_for(Event), component="scheduler", clock=clock)
            for number in range(WAITING_MAX + 5):
                recorder.report(report(f"number {number}"))
            assert recorder.dropped == 5

    run_virtual(scenario())
