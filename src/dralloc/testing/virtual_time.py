"""An event loop with virtual time: if no task is ready, its clock jumps to the next timer.

Code uses `asyncio.sleep`, timeouts, `call_later` and executors as always. File descriptors work, but are not waited for.
Tasks may belong to a simulated process, the tasks of one program, which are paused and killed together.
"""

from __future__ import annotations

import asyncio
import itertools
import selectors
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush
from time import process_time
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
# Cancelled timers are looked for when there are more timers than this.
TIMERS_MIN: Final = 200
# Processor time in which virtual time must go on; looked at after some turns. Nothing that ends takes nearly as long.
STANDSTILL_MAX_S: Final = 60.0
TURNS_UNCHECKED: Final = 200
# The process that the current task belongs to.
PROCESS: ContextVar[SimulatedProcess | None] = ContextVar("PROCESS", default=None)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A selector loop that never sleeps. It raises Deadlock if all tasks wait and no timer is set, and Livelock if tasks are always
    ready, so that time stands still.

    Most of a simulation is callbacks, so the paths of `call_soon`, of timers and of one turn are its own: they leave out what the base
    class does for real time, for threads and for debugging, and order timers without a comparison in Python.
    """

    # Of the base class.
    _ready: deque[asyncio.Handle]
    _selector: selectors.BaseSelector
    _stopping: bool
    _process_events: Callable[[list[Any]], None]

    def __init__(self) -> None:
        self._now_s = 0.0
        # The time that work in an executor takes; it runs in the loop, so that a seed decides when.
        self.work_time_s: Callable[[], float] = lambda: 0.0
        self.task_numbers = itertools.count()
        # By time, and those of one time in the order of their creation. Cancelled ones stay for a while.
        self._timers: list[tuple[float, int, _Timer]] = []
        self._timer_numbers = itertools.count()
        self._timers_max = TIMERS_MIN
        self._turns = 0
        self._moved_at_s = process_time()
        super().__init__()
        self.set_task_factory(_create_task)  # type: ignore[arg-type]

    def time(self) -> float:
        return self._now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, copy_context() if context is None else context)
        process = handle.process
        if process is not None and process.paused:
            return process.hold(handle)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, copy_context() if context is None else context)
        heappush(self._timers, (when, next(self._timer_numbers), timer))
        if len(self._timers) > self._timers_max:
            self._forget_cancelled()
        return timer

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override] # noqa: ARG002
        done: asyncio.Future[Any] = self.create_future()
        self.call_later(self.work_time_s(), _execute, done, func, args)
        return done

    def _run_once(self) -> None:
        """One turn: what is ready runs, and what that makes ready is for the next turn."""
        ready = self._ready
        if not ready and not self._stopping:
            self._wait()
        self._take_due_timers()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()
        self._turns += 1
        if not self._turns % TURNS_UNCHECKED and process_time() > self._moved_at_s + STANDSTILL_MAX_S:
            raise Livelock(f"time stands still at {self._now_s:.1f} s: tasks are ready again and again")

    def _wait(self) -> None:
        """All tasks wait: look at descriptors and signals, for which a system call in each turn is too expensive, or go on to the
        next timer.
        """
        events = self._selector.select(0)
        if events:
            self._process_events(events)
            return
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heappop(timers)
        if not timers:
            raise Deadlock("every task waits and no timer is set")
        self._now_s = max(self._now_s, timers[0][0])
        self._moved_at_s = process_time()

    def _take_due_timers(self) -> None:
        timers, now_s = self._timers, self._now_s
        while timers and timers[0][0] <= now_s:
            timer = heappop(timers)[2]
            if timer._cancelled:
                continue
            process = timer.process
            if process is None or not (process.paused or process.ended):
                self._ready.append(timer)
            elif process.paused:
                process.hold(timer)

    def _forget_cancelled(self) -> None:
        self._timers = [entry for entry in self._timers if not entry[2]._cancelled]
        heapify(self._timers)
        self._timers_max = max(TIMERS_MIN, 2 * len(self._timers))


class _Handle(asyncio.Handle):
    """A callback, and the process to which it belongs."""

    __slots__ = ("process",)

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], loop: Any, context: Context) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = context
        self._cancelled = False
        self._repr = self._source_traceback = None
        self.process = context.get(PROCESS)


class _Timer(asyncio.TimerHandle):
    """A callback at a time, and the process to which it belongs."""

    __slots__ = ("process",)

    def __init__(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], loop: Any, context: Context
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self.process = context.get(PROCESS)


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


class SimulatedProcess:
    """Everything that its tasks create belongs to it, too."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.paused = False
        self.dead = False
        # Killed, and its last task has ended: what it had planned for later does not happen.
        self.ended = False
        self._waiting: list[asyncio.Handle] = []
        # In the order of creation, so that a seed decides everything.
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._context = copy_context()
        self._context.run(PROCESS.set, self)

    def start(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        # A copy: a context can be entered only once at a time.
        return asyncio.get_running_loop().create_task(work, context=self._context.copy())

    def adopt(self, task: asyncio.Task[Any]) -> None:
        self._tasks[task] = None
        # In its own context: the process that started the task may be paused when the task ends.
        task.add_done_callback(self._leave, context=self._context)

    def pause(self) -> None:
        """Stop it as SIGSTOP does: it notices nothing, not even that time passes."""
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        waiting, self._waiting = self._waiting, []
        loop = asyncio.get_running_loop()
        for handle in waiting:
            loop.call_soon(_run_unless_cancelled, handle)

    def hold(self, handle: asyncio.Handle) -> asyncio.Handle:
        """Keep a callback until the process is resumed."""
        self._waiting.append(handle)
        return handle

    async def kill(self) -> None:
        """End every task."""
        self.dead = True
        self.resume()
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        self.ended = True

    def _leave(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)


def _run_unless_cancelled(handle: asyncio.Handle) -> None:
    """A callback that waited with this one may have cancelled it."""
    if not handle.cancelled():
        handle._run()


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


class Livelock(Exception):
    """Tasks wake each other without a pause."""


def run_virtual(main: Coroutine[Any, Any, Result]) -> Result:
    """The result of the coroutine, run in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
