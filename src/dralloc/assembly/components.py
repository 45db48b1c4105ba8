"""The components that can run as a process of their own, each from its settings and a way to reach an API server."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from dralloc.client.client import AsyncClient, connect_async
from dralloc.client.resource import ObjectKey
from dralloc.primitives.clock import Clock
from dralloc.scheduler.metrics import SchedulerMetrics
from dralloc.scheduler.scheduler import Scheduler, SchedulerSettings


class SystemClock:
    """The machine's time."""

    def now(self) -> datetime:
        return datetime.now(UTC)


@dataclass(slots=True)
class SchedulerComponent:
    client: AsyncClient
    settings: SchedulerSettings
    clock: Clock = field(default_factory=SystemClock)
    name: str = "scheduler"
    lease: ObjectKey = ObjectKey("kube-system", "dralloc-scheduler")  # noqa: RUF009 - immutable
    counters: SchedulerMetrics = field(default_factory=SchedulerMetrics)

    @classmethod
    def connect(cls, target: str | Path | None, *, context: str | None, settings: SchedulerSettings) -> Self:
        return cls(connect_async(target, context=context), settings)

    async def run(self) -> None:
        """One term of being in charge; it begins with nothing but what the server says."""
        await Scheduler(self.client.calls, self.clock, self.settings, self.counters).run()

    def metrics(self) -> str:
        return self.counters.text()
