"""A task of the server that runs beside its requests, from `start` to `stop`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol

from dralloc.server.store.errors import StoreClosed, StoreError


class Stoppable(Protocol):
    """What has tasks of its own."""

    async def stop(self) -> None: ...


class BackgroundTask:
    def __init__(self, run: Callable[[], Coroutine[Any, Any, None]], *, name: str) -> None:
        self._run = run
        self._name = name
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=self._name)

    async def stop(self) -> None:
        """Cancels the task and waits until it has ended. Does nothing if it was not started."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


# --- Change loop ----------------------------------------------------------------------------------------------------
# The loop of the server's own controllers, which write objects after others have changed.


RETRY_S: Final = 1.0

_logger = logging.getLogger(__name__)


class ChangeLoop:
    """Works after each `wake`, several at once together, and again after a failure of the store. Ends when the store is closed."""

    def __init__(self, work: Callable[[], Awaitable[None]], *, does: str) -> None:
        """`does` is a verb with its object, for messages."""
        self._work = work
        self._does = does
        self._changed = asyncio.Event()
        self._task = BackgroundTask(self._run, name=does)

    def wake(self) -> None:
        self._changed.set()

    def start(self) -> None:
        self._task.start()

    async def stop(self) -> None:
        await self._task.stop()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._work()
            except StoreClosed:
                return
            except StoreError as error:
                _logger.warning("cannot %s: %s", self._does, error)
                await asyncio.sleep(RETRY_S)
                self._changed.set()
