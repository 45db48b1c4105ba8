"""Virtual time goes on as long as something waits for it."""

from __future__ import annotations

import asyncio

import pytest

from dralloc.testing import virtual_time
from dralloc.testing.virtual_time import Deadlock, Livelock, run_virtual


def test_tasks_that_wake_each_other_without_a_pause_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_time, "STANDSTILL_MAX_S", 0.01)

    async def spin() -> None:
        await asyncio.sleep(5)
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Livelock, match=r"time stands still at 5\.0 s"):
        run_virtual(spin())


def test_a_task_that_nothing_wakes_is_an_error() -> None:
    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock):
        run_virtual(wait())
