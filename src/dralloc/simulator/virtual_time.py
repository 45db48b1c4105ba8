"""An event loop with virtual time: if no task is ready, its clock jumps to the next timer.

Code uses `asyncio.sleep`, timeouts, `call_later` and executors as always. File descriptors work, but are not waited for.
Tasks belong to a simulated process (`processes`), which can be paused: its callbacks wait until it is resumed.
"""

from __future__ import annotations

import asyncio
import itertools
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from dralloc.simulator.processes import PROCESS, SimulatedProcess

Result = TypeVar("Result")

START: Final = datetime(2026, 1, 1, tzinfo=UTC)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A selector loop that never sleeps. It raises Deadlock if all tasks wait and no timer is set."""

    def __init__(self) -> None:
        self._now_s = 0.0
        # The time that work in an executor takes; it runs in the loop, so that a seed decides when.
        self.work_time_s: Callable[[], float] = lambda: 0.0
        self.task_numbers = itertools.count()
        super().__init__(_JumpingSelector(self))
        self.set_task_factory(_create_task)  # type: ignore[arg-type]

    def time(self) -> float:
        return self._now_s

    def jump(self, seconds: float) -> None:
        self._now_s += seconds

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        context = copy_context() if context is None else context
        process = context.get(PROCESS)
        if process is not None and process.paused:
            return process.hold(asyncio.Handle(callback, args, self, context))
        return super().call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        context = copy_context() if context is None else context
        process = context.get(PROCESS)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        return super().call_at(when, self._on_time, process, callback, args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override] # noqa: ARG002
        done: asyncio.Future[Any] = self.create_future()
        self.call_later(self.work_time_s(), _execute, done, func, args)
        return done

    def _on_time(self, process: SimulatedProcess, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        if process.paused:
            process.hold(asyncio.Handle(callback, args, self, copy_context()))
        elif not process.ended:
            callback(*args)


class _NumberedTask(asyncio.Task[Any]):
    """Sets of tasks, such as that of a `TaskGroup`, are iterated in an order that does not depend on memory addresses."""

    def __init__(self, work: Coroutine[Any, Any, Any], *, loop: VirtualTimeLoop, **options: Any) -> None:
        # First: the base class puts the task into a set.
        self._number = next(loop.task_numbers)
        super().__init__(work, loop=loop, **options)

    def __hash__(self) -> int:
        return self._number


def _create_task(loop: VirtualTimeLoop, work: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
    task = _NumberedTask(work, loop=loop, **options)
    process = (options.get("context") or copy_context()).get(PROCESS)
    if process is not None:
        process.adopt(task)
    return task


def _execute(done: asyncio.Future[Any], work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        result = work(*args)
    except Exception as error:  # noqa: BLE001
        if not done.done():
            done.set_exception(error)
    else:
        if not done.done():
            done.set_result(result)


class VirtualClock:
    """The time of day on a virtual loop. Each process has its own clock, which can jump."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start: datetime = START) -> None:
        self._loop = loop
        self._start = start

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._loop.time())

    def jump(self, seconds: float) -> None:
        """Set the clock forward or back; timers of the loop do not notice."""
        self._start += timedelta(seconds=seconds)

    def correct(self) -> None:
        """End every deviation."""
        self._start = START


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
        if timeout == 0:
            # Signals and other descriptors can wait until all tasks wait: a system call for each turn is expensive.
            return []
        ready = super().select(0)
        if ready:
            return ready
        if timeout is None:
            raise Deadlock("every task waits and no timer is set")
        self._loop.jump(timeout)
        return ready
