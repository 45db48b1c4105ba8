"""The work queue: distinct keys, no concurrent processing of a key, back-off."""

from __future__ import annotations

import asyncio

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from dralloc.client.work_queue import Backoff, WorkQueue, work
from dralloc.testing.virtual_time import Deadlock, run_virtual


def test_a_key_added_twice_is_processed_once() -> None:
    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        queue.add("a")
        assert await queue.get() == "a"
        queue.done("a")
        assert queue.idle

    run_virtual(scenario())


def test_a_key_added_during_processing_is_processed_again() -> None:
    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        await queue.get()
        queue.add("a")
        assert len(queue) == 0, "no other worker may process it now"
        queue.done("a")
        assert await queue.get() == "a"

    run_virtual(scenario())


def test_the_earliest_of_several_delays_counts() -> None:
    async def scenario() -> float:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", 10)
        queue.add_after("a", 3)
        queue.add_after("a", 5)
        await queue.get()
        queue.done("a")
        assert queue.idle
        return asyncio.get_running_loop().time()

    assert run_virtual(scenario()) == 3


def test_failures_back_off_and_success_resets_them() -> None:
    async def scenario() -> list[float]:
        queue: WorkQueue[str] = WorkQueue(Backoff(first_s=1, most_s=4))
        started_at: list[float] = []

        async def handle(key: str) -> None:
            started_at.append(asyncio.get_running_loop().time())
            if len(started_at) == 6:
                queue.close()
            elif len(started_at) != 4:
                raise ValueError(key)
            else:
                queue.add_after(key, 100)

        queue.add("a")
        await work(queue, handle, lambda key, error: None)
        return started_at

    assert run_virtual(scenario()) == [0, 1, 3, 7, 107, 108]


def test_closing_lets_workers_finish_waiting_keys() -> None:
    async def scenario() -> list[str | None]:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        queue.add_after("b", 1)
        queue.close()
        queue.add("c")
        return [await queue.get(), await queue.get()]

    assert run_virtual(scenario()) == ["a", None]


def test_a_loop_without_pending_work_is_detected() -> None:
    async def scenario() -> None:
        await WorkQueue[str]().get()

    with pytest.raises(Deadlock):
        run_virtual(scenario())


@given(st.integers(min_value=1, max_value=10_000))
def test_back_off_grows_up_to_a_bound(failures: int) -> None:
    backoff = Backoff(first_s=0.005, most_s=10)
    assert backoff.delay_s(failures) <= backoff.delay_s(failures + 1) <= 10


@given(st.lists(st.sampled_from("abcd"), max_size=30), st.integers(min_value=1, max_value=4))
def test_no_two_workers_hold_the_same_key_and_nothing_is_lost(keys: list[str], workers: int) -> None:
    async def scenario() -> None:
        queue: WorkQueue[str] = WorkQueue()
        held: set[str] = set()
        worked: set[str] = set()

        async def handle(key: str) -> None:
            assert key not in held
            held.add(key)
            await asyncio.sleep(1)
            held.discard(key)
            worked.add(key)

        tasks = [asyncio.ensure_future(work(queue, handle, lambda key, error: None)) for _ in range(workers)]
        for position, key in enumerate(keys):
            queue.add_after(key, position * 0.3)
            await asyncio.sleep(0.3)
        while not queue.idle:
            await asyncio.sleep(1)
        queue.close()
        await asyncio.gather(*tasks)
        assert worked == set(keys)

    run_virtual(scenario())


def test_a_key_can_be_added_later_twice_at_once() -> None:
    """On the event loop of the programs, the handle of a delay below a millisecond does not say when it is due."""

    async def main() -> None:
        queue: WorkQueue[str] = WorkQueue()
        queue.add_after("a", 0.0)
        queue.add_after("a", 60.0)
        assert await queue.get() == "a"
        queue.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
