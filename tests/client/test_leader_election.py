"""Leader election: one leader at a time, fast takeover, clock skew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random

import pytest

from dralloc.client.api_calls import ApiCalls
from dralloc.client.async_client import AsyncClient
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.known_resources import resource_for
from dralloc.client.leader_election import LeaderElection
from dralloc.client.lease_terms import Timing
from dralloc.client.typed_resource import ObjectKey
from dralloc.kube.coordination_v1 import Lease
from dralloc.server.http.application import ApiApplication
from dralloc.testing.virtual_time import START, VirtualClock, run_virtual
from tests.simulator.network import Faults
from tests.support.api_server import TOKEN, api_application
from tests.support.faulty_transport import FaultyTransport

KEY = ObjectKey("default", "scheduler")


class Candidate:
    """A replica with its own connection and its own clock."""

    def __init__(self, application: ApiApplication, name: str, *, skew_s: float = 0, seed: int = 0) -> None:
        loop = asyncio.get_running_loop()
        self.name = name
        self.network = FaultyTransport(InProcessTransport(application, token=TOKEN), Random(seed), Faults())
        self.leads = False
        self._election = LeaderElection(
            ApiCalls(self.network),
            resource_for(Lease),
            KEY,
            identity=name,
            clock=VirtualClock(loop, START + timedelta(seconds=skew_s)),
            timing=Timing(lease_s=15, renew_deadline_s=10, retry_s=2),
        )

    async def run(self) -> None:
        await self._election.run(self._lead)

    async def _lead(self) -> None:
        self.leads = True
        try:
            await asyncio.Event().wait()
        finally:
            self.leads = False


@asynccontextmanager
async def running(*candidates: Candidate) -> AsyncIterator[dict[str, asyncio.Task[None]]]:
    tasks = {candidate.name: asyncio.create_task(candidate.run()) for candidate in candidates}
    try:
        yield tasks
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)


def test_the_other_replica_takes_over_when_the_leader_ends() -> None:
    async def scenario() -> None:
        async with api_application(clock=VirtualClock(asyncio.get_running_loop())) as application:
            first, second = Candidate(application, "first"), Candidate(application, "second")
            async with running(first) as tasks_of_first, running(second):
                await asyncio.sleep(30)
                assert (first.leads, second.leads) == (True, False)
                tasks_of_first["first"].cancel()
                await asyncio.sleep(2.1)
                assert (first.leads, second.leads) == (False, True)
            lease = await AsyncClient(InProcessTransport(application, token=TOKEN)).get(
                Lease, "scheduler", namespace="default"
            )
            assert lease.spec.holder_identity in (None, "")

    run_virtual(scenario())


def test_a_partitioned_leader_stops_before_the_next_one_starts() -> None:
    async def scenario() -> None:
        async with api_application(clock=VirtualClock(asyncio.get_running_loop())) as application:
            first, second = Candidate(application, "first"), Candidate(application, "second")
            async with running(first), running(second):
                await asyncio.sleep(30)
                first.network.faults = Faults(lose_request=1.0)
                stopped_at = started_at = 0.0
                loop = asyncio.get_running_loop()
                while not second.leads:
                    await asyncio.sleep(0.1)
                    stopped_at = stopped_at or (0 if first.leads else loop.time())
                    assert not (first.leads and second.leads)
                started_at = loop.time()
                assert stopped_at < started_at
                assert started_at - 30 <= 15 + 2 * 2 + 0.2

    run_virtual(scenario())


@pytest.mark.parametrize("skew_s", [-3600, 3600])
def test_clock_skew_does_not_matter(skew_s: float) -> None:
    async def scenario() -> None:
        async with api_application(clock=VirtualClock(asyncio.get_running_loop())) as application:
            first, second = Candidate(application, "first"), Candidate(application, "second", skew_s=skew_s)
            async with running(first), running(second):
                for _ in range(100):
                    await asyncio.sleep(1)
                    assert not second.leads

    run_virtual(scenario())


@pytest.mark.parametrize("seed", range(8))
def test_never_two_leaders_on_a_bad_network(seed: int) -> None:
    async def scenario() -> None:
        async with api_application(clock=VirtualClock(asyncio.get_running_loop())) as application:
            candidates = [Candidate(application, f"c{number}", seed=seed * 10 + number) for number in range(3)]
            for candidate in candidates:
                candidate.network.faults = Faults(lose_request=0.3, lose_answer=0.2)
            led: set[str] = set()
            async with running(*candidates):
                for _ in range(3000):
                    await asyncio.sleep(0.1)
                    leaders = [candidate.name for candidate in candidates if candidate.leads]
                    assert len(leaders) <= 1
                    led.update(leaders)
            assert led

    run_virtual(scenario())
