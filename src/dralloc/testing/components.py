"""Components as tasks of one process, by name. A component that ends by itself is an error, unless it is to be started again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, NoReturn, Self, TypeVar

from dralloc.client.informer import history_change

Run = Callable[[], Coroutine[Any, Any, None]]
Result = TypeVar("Result")


# Between the end of a component and its next start.
RESTART_S: Final = 1.0

_logger = logging.getLogger(__name__)


async def starting_again(name: str, run: Run) -> None:
    """Runs a component as its supervisor: what ends because the server was restored from a backup is started again."""
    while True:
        try:
            return await run()
        except Exception as error:
            if (changed := history_change(error)) is None:
                raise
            _logger.warning("%s: %s; starting again", name, changed)
        await asyncio.sleep(RESTART_S)


class ComponentDied(Exception):
    """A component ended by itself. The message has its name and the error."""


class Components:
    """Running components by name. `check` and `guard` raise ComponentDied.

    With `starts_again`, components are started again after the server was restored from a backup.
    """

    def __init__(self, *, starts_again: bool = False) -> None:
        self._starts_again = starts_again
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._some_ended = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Ends all components. Raises ComponentDied, or adds it as a note if the block failed already."""
        try:
            self.check()
        except ComponentDied as died:
            if error is None:
                raise
            error.add_note(f"meanwhile {died}")
        finally:
            await self._end_all()

    def start(self, name: str, run: Run) -> None:
        assert name not in self._tasks, f"{name} runs already"
        running = starting_again(name, run) if self._starts_again else run()
        task = self._tasks[name] = asyncio.create_task(running, name=name)
        task.add_done_callback(lambda _: self._some_ended.set())

    async def end(self, name: str) -> None:
        """Cancel the component. Raises ComponentDied if it had died."""
        task = self._tasks.pop(name)
        _raise_if_dead(name, task)
        await _cancel(task)

    async def restart(self, name: str, run: Run) -> None:
        """End the component if it runs, and start it."""
        if name in self._tasks:
            await self.end(name)
        self.start(name, run)

    def check(self) -> None:
        """Raise ComponentDied if a component died."""
        for name, task in self._tasks.items():
            _raise_if_dead(name, task)

    async def died(self) -> NoReturn:
        """Wait until a component dies, then raise ComponentDied."""
        while True:
            self.check()
            self._some_ended.clear()
            await self._some_ended.wait()

    async def guard(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of the work, or ComponentDied if a component dies first."""
        working, dying = asyncio.ensure_future(work), asyncio.ensure_future(self.died())
        try:
            await asyncio.wait((working, dying), return_when=asyncio.FIRST_COMPLETED)
            return await (working if working.done() else dying)
        finally:
            await _cancel(working)
            await _cancel(dying)

    async def _end_all(self) -> None:
        # In reverse order: a component may depend on those that were started before it.
        for task in reversed(self._tasks.values()):
            await _cancel(task)
        self._tasks.clear()


def _raise_if_dead(name: str, task: asyncio.Task[None]) -> None:
    if task.done():
        cause = None if task.cancelled() else task.exception()
        raise ComponentDied(f"the {name} died: {_description(cause)}") from cause


def _description(cause: BaseException | None) -> str:
    if isinstance(cause, BaseExceptionGroup):
        return "; ".join(_description(each) for each in cause.exceptions)
    return f"{type(cause).__name__}: {cause}" if cause is not None else "it returned without an error"


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
