"""Events: the first one is created, repetitions are counted, and a lost one is harmless."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from random import Random

import msgspec

from dralloc.client.api_calls import ApiCalls
from dralloc.client.async_client import AsyncClient
from dralloc.client.event_recorder import (
    BURST,
    PERIOD_S,
    REMEMBERED_MAX,
    WAITING_MAX,
    Aggregator,
    EventRecorder,
    Report,
    SpamFilter,
)
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.known_resources import resource_for
from dralloc.kube.core_v1 import Event, ObjectReference
from dralloc.testing.virtual_time import VirtualClock, run_virtual
from tests.simulator.network import Faults
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


def test_an_object_has_few_events_in_a_burst_and_then_one_in_five_minutes() -> None:
    """As with Kubernetes' components; what is not written is counted."""
    aggregator, start = Aggregator("node"), datetime(2026, 1, 1, tzinfo=UTC)
    written = [
        (second, event.count)
        for second in range(0, 3600, 10)
        if (event := aggregator.event(report("refused"), start + timedelta(seconds=second))) is not None
    ]
    assert written[:BURST] == [(10 * number, number + 1) for number in range(BURST)]
    assert written[BURST:] == [(second, second // 10 + 1) for second in range(300, 3600, 300)]


def test_each_object_and_reason_has_a_burst_of_its_own_and_again_after_a_quiet_time() -> None:
    def burst(about: ObjectReference, hours: int, reason: str = "Failed") -> int:
        now = datetime(2026, 1, 1, hours, tzinfo=UTC)
        reports = (Report(about, "Warning", reason, f"number {number}") for number in range(100))
        return sum(aggregator.event(each, now) is not None for each in reports)

    aggregator = Aggregator("node")
    other = msgspec.structs.replace(POD, name="other")
    assert (burst(POD, 0), burst(other, 0), burst(POD, 0, "Scheduled")) == (BURST, BURST, BURST)
    assert (burst(POD, 1), burst(POD, 8)) == (12, BURST)


def test_a_clock_that_was_ahead_holds_no_events_back() -> None:
    aggregator, now = Aggregator("node"), datetime(2026, 1, 1, tzinfo=UTC)
    for moment in (now + timedelta(days=365), now):
        assert aggregator.event(report("refused"), moment) is not None


def test_what_is_held_back_is_remembered_as_long_as_it_is_reported() -> None:
    spam, now = SpamFilter(), datetime(2026, 1, 1, tzinfo=UTC)

    def passes(name: str) -> bool:
        return spam.passes(Report(msgspec.structs.replace(POD, name=name), "Warning", "Failed", ""), now)

    assert [passes("bad") for _ in range(BURST + 1)] == [True] * BURST + [False]
    for number in range(REMEMBERED_MAX):
        passes(f"other-{number}")
        if number % 1000 == 0:
            assert not passes("bad")
    assert not passes("bad")


def test_an_event_that_was_held_back_is_created_when_it_is_written_first() -> None:
    async def scenario() -> None:
        async with recording() as (client, recorder):
            for number in range(BURST):
                recorder.report(report(f"number {number}"))
            recorder.report(report("late"))
            await asyncio.sleep(PERIOD_S)
            recorder.report(report("late"))
            await asyncio.sleep(1)
            events = {event.message: event.count for event in await client.list(Event)}
            assert len(events) == BURST + 1
            assert events["late"] == 1

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
                recorder.report(Report(msgspec.structs.replace(POD, name=f"p{number}"), "Warning", "Failed", ""))
            assert recorder.dropped == 5

    run_virtual(scenario())
