"""A task of the server that runs beside its requests, from `start` to `stop`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol


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
