"""The loop that all controllers run: take a key, plan, apply the actions in order, retry the key after a failure.

Plans depend only on the current state, so every failure (a conflict, a lost answer) has the same remedy: plan again.
A plan for a key that needs nothing is empty.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import ClassVar, Final, Generic, TypeVar

from dralloc.client.transport import TransportError
from dralloc.client.work_queue import Backoff, WorkQueue, work
from dralloc.controllers.controller_context import ControllerContext
from dralloc.controllers.metrics import QueueMetrics, QueueReading
from dralloc.controllers.planned_actions import PlannedActions
from dralloc.primitives.errors import ApiError, Conflict, NotFound

Key = TypeVar("Key", bound=Hashable)
Action = TypeVar("Action")

# At most a minute, so that controllers resume soon after an outage.
RETRY: Final = Backoff(first_s=0.005, most_s=60.0)
# Timers cannot wait for a moment a hundred years away, so such a key is planned once a day.
LOOK_AGAIN_MOST_S: Final = 24 * 3600.0

_logger = logging.getLogger(__name__)


class Controller(ABC, Generic[Key, Action]):
    """Plans the keys of its queue with several workers, never two on the same key."""

    # The queue's name in metrics.
    queue_name: ClassVar[str]
    workers: ClassVar[int] = 8

    def __init__(self, context: ControllerContext) -> None:
        self.queue: MeasuredQueue[Key] = MeasuredQueue(self.queue_name, context.metrics.queues)
        self._context = context

    @abstractmethod
    async def plan(self, key: Key) -> PlannedActions[Action]:
        """Returns the actions that the key needs. Changes nothing."""

    @abstractmethod
    async def apply(self, action: Action) -> None:
        """Perform the action; raises the server's error if it is refused."""

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for recorder in self._context.recorders:
                group.create_task(recorder.run())
            await self._context.informers.synced()
            for _ in range(self.workers):
                group.create_task(work(self.queue, self._handle, self._log_failure))

    async def _handle(self, key: Key) -> None:
        plan = await self.plan(key)
        for action in plan.actions:
            await self.apply(action)
        if plan.look_again_s is not None:
            self.queue.add_after(key, min(plan.look_again_s, LOOK_AGAIN_MOST_S))

    def _log_failure(self, key: Key, error: Exception) -> None:
        """Lost races are normal, refusals and network failures are warnings, anything else is an internal error."""
        match error:
            case Conflict() | NotFound():
                _logger.debug("%s %s: %s", self.queue_name, key, error)
            case ApiError() | TransportError():
                _logger.warning("%s %s: %s", self.queue_name, key, error)
            case _:
                _logger.error("%s %s", self.queue_name, key, exc_info=error)


class MeasuredQueue(WorkQueue[Key]):
    """A work queue that records metrics."""

    def __init__(self, name: str, metrics: QueueMetrics) -> None:
        super().__init__(RETRY)
        self._name = name
        self._metrics = metrics
        self._added_s: dict[Key, float] = {}
        self._begun_s: dict[Key, float] = {}
        metrics.readings.append(self._reading)

    def add(self, key: Key) -> None:
        if key not in self._added_s:
            self._added_s[key] = asyncio.get_running_loop().time()
            self._metrics.adds.add(self._name)
        super().add(key)

    def retry(self, key: Key) -> float:
        self._metrics.retries.add(self._name)
        return super().retry(key)

    async def get(self) -> Key | None:
        key = await super().get()
        if key is not None:
            now_s = asyncio.get_running_loop().time()
            self._begun_s[key] = now_s
            self._metrics.waited.observe(self._name, value=now_s - self._added_s.pop(key, now_s))
        return key

    def done(self, key: Key) -> None:
        now_s = asyncio.get_running_loop().time()
        self._metrics.worked.observe(self._name, value=now_s - self._begun_s.pop(key, now_s))
        super().done(key)

    def close(self) -> None:
        super().close()
        if self._reading in self._metrics.readings:
            self._metrics.readings.remove(self._reading)

    def _reading(self) -> QueueReading:
        now_s = asyncio.get_running_loop().time()
        return QueueReading(self._name, len(self), [now_s - begun_s for begun_s in self._begun_s.values()])
