"""Simulated processes: the tasks of one program, which can be paused and killed together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

Result = TypeVar("Result")


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


PROCESS: ContextVar[SimulatedProcess | None] = ContextVar("PROCESS", default=None)
