"""Writes the conditions of parked pods that were not tried themselves because a representative of their group was.

Each pod's message names its own claims, so each pod is decided on; the cached verdicts of the group make that cheap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from dralloc.client.work_queue import WorkQueue
from dralloc.kube.pod_v1 import Pod
from dralloc.primitives.work_allowance import WorkExceeded
from dralloc.scheduler.contract import Decision, Rejection
from dralloc.scheduler.queue.pending_pods import PendingPods, QueueKey
from dralloc.scheduler.queue.scheduling_queue import SchedulingQueue
from dralloc.scheduler.report.scheduling_report import SchedulingReport

# How much later than the representative's condition those of the other members are written.
DELAY_S: Final = 30.0
# How many pods are decided on before other tasks run.
DECISIONS_AT_ONCE: Final = 8


class UntriedConditions:
    def __init__(
        self,
        queue: SchedulingQueue,
        pending: PendingPods,
        decide: Callable[[Pod], Decision],
        report: SchedulingReport,
    ) -> None:
        self._queue = queue
        self._pending = pending
        self._decide = decide
        self._report = report
        self._groups: WorkQueue[bytes] = WorkQueue()

    def write_later(self, group_key: bytes) -> None:
        self._groups.add_after(group_key, DELAY_S)

    async def run(self) -> None:
        while (group_key := await self._groups.get()) is not None:
            for number, key in enumerate(self._queue.group_members(group_key), start=1):
                self._write(key)  # type: ignore[arg-type]
                if number % DECISIONS_AT_ONCE == 0:
                    await asyncio.sleep(0)
            self._groups.done(group_key)

    def _write(self, key: QueueKey) -> None:
        pod = self._pending.find(key) if self._queue.waits_for(key) is not None else None
        if pod is None:
            return
        try:
            decision = self._decide(pod)
        except WorkExceeded:
            return
        # Any other decision means that something changed. The attempt that follows from the change reports it.
        if isinstance(decision, Rejection) and decision.equivalence_key is not None:
            self._report.parked(pod, decision)
            self._report.rejected(pod, decision.message)
