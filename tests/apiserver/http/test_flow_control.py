"""Requests take turns by level, user and connection; long computations leave the event loop."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from dralloc.access.users import ANONYMOUS, User
from dralloc.apiserver.http import flow_control
from dralloc.apiserver.http.flow_control import FlowControl, RequestFlow
from dralloc.apiserver.http.priority_levels import PriorityLevel, priority_level
from dralloc.primitives.errors import TooManyRequests

ALICE = User(name="alice")
BOB = User(name="bob")
LEVEL = PriorityLevel.GLOBAL_DEFAULT


def busy(seconds: float) -> None:
    """Use the processor."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def handle(flow: RequestFlow, served: list[str], seconds: float = 0.002) -> None:
    async def work() -> None:
        busy(seconds)
        served.append(flow.user)

    flow_control.begin(flow)
    await flow.enter()
    await flow.metered(work())


def test_a_request_passes_the_flood_of_another_user() -> None:
    async def main() -> list[str]:
        control, served = FlowControl(), list[str]()
        flood = [asyncio.create_task(handle(control.flow_of(ALICE, LEVEL, number), served)) for number in range(100)]
        await asyncio.sleep(0)
        await asyncio.create_task(handle(control.flow_of(BOB, LEVEL, 0), served))
        await asyncio.gather(*flood)
        return served

    served = asyncio.run(main())
    assert len(served) == 101
    assert served.index("bob") < 20, served


def test_requests_of_one_user_are_shed_when_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_control, "WAITING_MAX", 10)

    async def main() -> list[BaseException | None]:
        control, served = FlowControl(), list[str]()
        flows = [control.flow_of(ALICE, LEVEL, number) for number in range(50)]
        outcomes = await asyncio.gather(*(handle(flow, served) for flow in flows), return_exceptions=True)
        assert control.rejected.value(LEVEL.value, "queue-full") > 0
        return outcomes

    shed = [outcome for outcome in asyncio.run(main()) if outcome is not None]
    assert shed
    for error in shed:
        assert isinstance(error, TooManyRequests)
        assert error.details is not None
        assert error.details.retry_after_s == 1


def test_a_request_that_gets_no_turn_in_time_is_shed_and_others_go_on() -> None:
    async def main() -> list[str]:
        control, served = FlowControl(), list[str]()
        alice = control.flow_of(ALICE, LEVEL, 0)

        async def use_up_all_turns() -> None:
            while True:
                control.use(alice, 1.0)
                await asyncio.sleep(0)

        hogging = asyncio.create_task(use_up_all_turns())
        with pytest.raises(TooManyRequests):
            await control.wait(control.flow_of(BOB, LEVEL, 0), at_most_s=0.01)
        assert control.rejected.value(LEVEL.value, "time-out") == 1
        hogging.cancel()
        await asyncio.gather(hogging, return_exceptions=True)
        await handle(alice, served)
        await handle(control.flow_of(BOB, LEVEL, 0), served)
        return served

    assert asyncio.run(main()) == ["alice", "bob"]


def test_requests_that_wait_too_long_are_shed_before_it_is_their_turn() -> None:
    async def main() -> int:
        control, turns = FlowControl(), 0
        alice = control.flow_of(ALICE, LEVEL, 0)

        async def use_up_all_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                busy(0.001)
                control.use(alice, 1.0)
                await asyncio.sleep(0)

        hogging = asyncio.create_task(use_up_all_turns())
        # A turn wakes 20 of them, so that the last would have to wait for 100 turns.
        waiting = [control.wait(control.flow_of(BOB, LEVEL, number), at_most_s=0.01) for number in range(2_000)]
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(outcome, TooManyRequests) for outcome in outcomes)
        hogging.cancel()
        await asyncio.gather(hogging, return_exceptions=True)
        return turns

    assert asyncio.run(main()) < 50


def test_health_checks_never_wait() -> None:
    async def main() -> list[str]:
        control, served = FlowControl(), list[str]()
        flood = [asyncio.create_task(handle(control.flow_of(ALICE, LEVEL, n), served)) for n in range(50)]
        await asyncio.sleep(0)
        await handle(control.flow_of(BOB, PriorityLevel.EXEMPT, 0), served, 0)
        position = served.index("bob")
        await asyncio.gather(*flood)
        return served[:position]

    assert len(asyncio.run(main())) < 50


def test_small_work_stays_in_the_loop_and_large_work_leaves_it() -> None:
    async def main() -> None:
        control = FlowControl()
        flow_control.begin(control.flow_of(ALICE, LEVEL, 0))
        here = threading.get_ident()
        assert await flow_control.compute(10, threading.get_ident) == here
        assert await flow_control.compute(10_000_000, threading.get_ident) != here
        with pytest.raises(ZeroDivisionError):
            await flow_control.compute(10_000_000, lambda: 1 // 0)
        control.close()

    asyncio.run(main())


def test_long_computations_of_one_user_are_shed_when_too_many_wait_but_not_those_of_the_server() -> None:
    count = flow_control.COMPUTATIONS_MAX + 10

    async def main() -> tuple[int, int]:
        control = FlowControl()

        async def computed(flow: RequestFlow) -> int:
            outcomes = await asyncio.gather(
                *(control.compute(flow, lambda: None) for _ in range(count)), return_exceptions=True
            )
            return sum(not isinstance(outcome, TooManyRequests) for outcome in outcomes)

        result = await computed(control.flow_of(ALICE, LEVEL, 0)), await computed(control.of_server)
        control.close()
        return result

    of_user, of_server = asyncio.run(main())
    assert 0 < of_user < count
    assert of_server == count


def test_without_a_flow_work_stays_where_it_is() -> None:
    async def main() -> None:
        assert await flow_control.compute(10_000_000, threading.get_ident) == threading.get_ident()

    asyncio.run(main())


def test_each_user_has_one_thread_at_a_time() -> None:
    async def main() -> None:
        control, order = FlowControl(), list[str]()
        blocked = threading.Event()

        async def run(user: User, name: str, *, waits: bool = False) -> None:
            flow_control.begin(control.flow_of(user, LEVEL, name))
            await flow_control.compute(10_000_000, lambda: blocked.wait(20) if waits else True)
            order.append(name)

        first = asyncio.create_task(run(ALICE, "alice 1", waits=True))
        await asyncio.sleep(0)
        second = asyncio.create_task(run(ALICE, "alice 2"))
        await asyncio.create_task(run(BOB, "bob"))
        assert order == ["bob"], "bob does not wait for alice, and alice waits for herself"
        blocked.set()
        await asyncio.gather(first, second)
        control.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("method", "path", "query", "user", "level"),
    [
        ("GET", "/healthz", b"", ANONYMOUS, PriorityLevel.EXEMPT),
        ("GET", "/readyz", b"", ALICE, PriorityLevel.EXEMPT),
        ("GET", "/version", b"", ANONYMOUS, PriorityLevel.CATCH_ALL),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/x/leases/l", b"", ALICE, PriorityLevel.LEADER_ELECTION),
        ("GET", "/api/v1/pods", b"", User(name="system:node:n", groups=("system:nodes",)), PriorityLevel.SYSTEM),
        ("GET", "/api/v1/pods", b"", User(name="system:kube-scheduler"), PriorityLevel.WORKLOAD_HIGH),
        ("GET", "/api/v1/pods", b"", ALICE, PriorityLevel.LISTS),
        ("GET", "/api/v1/pods", b"watch=1", ALICE, PriorityLevel.GLOBAL_DEFAULT),
        ("GET", "/api/v1/namespaces/x/pods/p", b"", ALICE, PriorityLevel.GLOBAL_DEFAULT),
        ("POST", "/api/v1/namespaces/x/pods", b"", ALICE, PriorityLevel.GLOBAL_DEFAULT),
        ("DELETE", "/api/v1/namespaces/x/pods", b"", ALICE, PriorityLevel.LISTS),
    ],
)
def test_the_level_of_a_request(method: str, path: str, query: bytes, user: User, level: PriorityLevel) -> None:
    assert priority_level(method, path, query, user) is level
