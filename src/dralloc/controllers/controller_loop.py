"""The one loop of all controllers: take a key, plan, apply action after action; what goes wrong brings the key back.

A plan is made from what is known now, so after any failure (somebody else wrote first, an answer was lost) the
remedy is the same: plan again. Planning when nothing is to be done gives nothing to do.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Generic, TypeVar

from dralloc.client.transport import TransportError
from dralloc.client.work_queue import Backoff, WorkQueue, work
from dralloc.controllers.controller_context import Setup
from dralloc.controllers.metrics import QueueMetrics, QueueReading
from dralloc.primitives.errors import ApiError, Conflict, NotFound

Key = TypeVar("Key", bound=Hashable)
Action = TypeVar("Action")

# A key that fails for long is looked at once a minute, so that no outage is followed by a long silence.
RETRY: Final = Backoff(first_s=0.005, most_s=60.0)
# What is planned for in a hundred years is looked at every day: no timer reaches that far.
LOOK_AGAIN_MOST_S: Final = 24 * 3600.0

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan(Generic[Action]):
    """What to do, in this order; and when to look again although nothing happens."""

    actions: Sequence[Action] = ()
    look_again_s: float | None = None


class Controller(ABC, Generic[Key, Action]):
    """Keys of its queue are planned for one by one; several workers, never two on one key."""

    # By which name its queue is counted.
    queue_name: ClassVar[str]
    workers: ClassVar[int] = 8

    def __init__(self, setup: Setup) -> None:
        self.queue: MeasuredQueue[Key] = MeasuredQueue(self.queue_name, setup.metrics.queues)
        self._setup = setup

    @abstractmethod
    async def plan(self, key: Key) -> Plan[Action]:
        """What the key needs. Reads only."""

    @abstractmethod
    async def apply(self, action: Action) -> None:
        """Do it; a refusal is raised."""

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for recorder in self._setup.recorders:
                group.create_task(recorder.run())
            await self._setup.watched.synced()
            for _ in range(self.workers):
                group.create_task(work(self.queue, self._handle, self._complain))

    async def _handle(self, key: Key) -> None:
        plan = await self.plan(key)
        for action in plan.actions:
            await self.apply(action)
        if plan.look_again_s is not None:
            self.queue.add_after(key, min(plan.look_again_s, LOOK_AGAIN_MOST_S))

    def _complain(self, key: Key, error: Exception) -> None:
        """Losing a race is daily business, so is a network that fails; what we did not expect is shown in full."""
        match error:
            case Conflict() | NotFound():
                _logger.debug("%s %s: %s", self.queue_name, key, error)
            case ApiError() | TransportError():
                _logger.warning("%s %s: %s", self.queue_name, key, error)
            case _:
                _logger.error("%s %s", self.queue_name, key, exc_info=error)


class MeasuredQueue(WorkQueue[Key]):
    """A work queue that counts."""

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
