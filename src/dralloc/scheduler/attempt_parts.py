"""What attempts for single pods and attempts for groups have in common."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from dralloc.primitives.clock import Clock
from dralloc.scheduler.bind.binder import Binder
from dralloc.scheduler.bind.write_slots import WriteSlots
from dralloc.scheduler.decide.cycle import Cycle
from dralloc.scheduler.ownership.shared_pools import SharedPools
from dralloc.scheduler.preemptor import Preemptor
from dralloc.scheduler.queue.long_decisions import LongDecisions
from dralloc.scheduler.queue.pending_pods import PendingPods
from dralloc.scheduler.queue.scheduling_queue import SchedulingQueue
from dralloc.scheduler.report.scheduling_report import SchedulingReport
from dralloc.scheduler.settings import SchedulerSettings
from dralloc.scheduler.state.cluster_events import ClusterEvent
from dralloc.scheduler.state.cluster_state import ClusterState


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptParts:
    """The parts of a scheduler that an attempt uses, from the queue to the report."""

    clock: Clock
    # The time of the event loop: to ask for the running loop is a system call in Python 3.11.
    time_s: Callable[[], float]
    settings: SchedulerSettings
    cluster: ClusterState
    cycle: Cycle
    queue: SchedulingQueue
    long_decisions: LongDecisions
    pending: PendingPods
    binder: Binder
    slots: WriteSlots
    report: SchedulingReport
    wake: Callable[[Collection[ClusterEvent]], None]
    # To be called when a task has put a pod or a group back: the loop waits for the times that it knows.
    queued: Callable[[], None]
    preemptor: Preemptor | None
    sharing: SharedPools | None
