"""An event loop with virtual time: if no task is ready, its clock jumps to the next timer.

Code uses `asyncio.sleep`, timeouts and `call_later` as always. File descriptors work, but are not waited for.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

START: Final = datetime(2026, 1, 1, tzinfo=UTC)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A selector loop that never sleeps. It raises Deadlock if all tasks wait and no timer is set."""

    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self._now_s

    def jump(self, seconds: float) -> None:
        self._now_s += seconds


class VirtualClock:
    """The time of day on a virtual loop: a fixed start plus the time of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start: datetime = START) -> None:
        self._loop = loop
        self._start = start

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._loop.time())


class Deadlock(Exception):
    """All tasks wait, and nothing can wake them."""


def run_virtual(main: Coroutine[Any, Any, Result]) -> Result:
    """The result of the coroutine, run in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting for a timeout, advances the time of the loop."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise Deadlock("every task waits and no timer is set")
        self._loop.jump(timeout)
        return ready
