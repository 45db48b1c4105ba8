"""The life of a pod on its node: which container is to be started or stopped now, and when to look again.

A pure function of the pod, of what became of its containers so far, and of the time. Init containers run one after another, sidecars
stay beside the others and end last, and what exits is started again as the restart policy says, later and later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from dralloc.node.pod_view import NodeContainer, NodePodSpec
from dralloc.node.timings import Timings


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How a run of a container ended."""

    code: int
    finished_at: datetime
    started_at: datetime | None = None
    reason: str = ""
    message: str = ""

    @property
    def ran_s(self) -> float:
        return (self.finished_at - self.started_at).total_seconds() if self.started_at is not None else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRun:
    """What became of a container so far. `exit` is set while it is not running, `previous` is the run before."""

    is_starting: bool = False
    started_at: datetime | None = None
    exit: Exit | None = None
    previous: Exit | None = None
    restarts: int = 0
    # Failed runs in a row, as far as they count for the next delay.
    crashes: int = 0

    @property
    def is_running(self) -> bool:
        return self.started_at is not None and self.exit is None

    @property
    def is_active(self) -> bool:
        return self.is_starting or self.is_running

    def begun(self) -> ContainerRun:
        """It is being started, for the first time or again."""
        if self.exit is None:
            return ContainerRun(is_starting=True, restarts=self.restarts, previous=self.previous, crashes=self.crashes)
        return ContainerRun(is_starting=True, restarts=self.restarts + 1, previous=self.exit, crashes=self.crashes)

    def started(self, at: datetime) -> ContainerRun:
        return ContainerRun(started_at=at, restarts=self.restarts, previous=self.previous, crashes=self.crashes)

    def exited(self, exit: Exit, timings: Timings) -> ContainerRun:
        crashes = 1 if exit.ran_s >= timings.crash_forgotten_s else self.crashes + 1
        return ContainerRun(
            started_at=exit.started_at, exit=exit, previous=self.previous, restarts=self.restarts, crashes=crashes
        )


NEVER_RUN: Final = ContainerRun()
Runs = Mapping[str, ContainerRun]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlan:
    """What to do now. `wake_at` is the next time at which something is due, `is_over` that nothing runs or ever will."""

    start: tuple[NodeContainer, ...] = ()
    stop: tuple[NodeContainer, ...] = ()
    wake_at: datetime | None = None
    is_over: bool = False


def plan_pod(spec: NodePodSpec, runs: Runs, *, is_ending: bool, now: datetime, timings: Timings) -> PodPlan:
    """The next steps of a pod whose claims are prepared; of one that is ending, the steps to its end."""
    if is_ending or has_failed_to_initialize(spec, runs) or all(is_done(spec, each, runs) for each in spec.containers):
        return _plan_end(spec, runs)
    start: list[NodeContainer] = []
    later: list[datetime] = []
    for container in _wanted(spec, runs):
        run = runs.get(container.name, NEVER_RUN)
        due = restart_at(run, timings)
        if due is None or due <= now:
            start.append(container)
        else:
            later.append(due)
    return PodPlan(start=tuple(start), wake_at=min(later, default=None))


def is_done(spec: NodePodSpec, container: NodeContainer, runs: Runs) -> bool:
    """Whether the container has exited and stays so."""
    exit = runs.get(container.name, NEVER_RUN).exit
    return exit is not None and not _restarts(spec, container, exit)


def is_initialized(spec: NodePodSpec, runs: Runs) -> bool:
    """Whether all init containers have done their part."""
    return _pending_init(spec, runs) is None


def has_failed_to_initialize(spec: NodePodSpec, runs: Runs) -> bool:
    """Whether an init container failed and will not be tried again: then the others are never started."""
    return any(
        not container.is_sidecar and _has_failed(runs, container) and is_done(spec, container, runs)
        for container in spec.init_containers
    )


def restart_at(run: ContainerRun, timings: Timings) -> datetime | None:
    """When a container that exited may start again: at once after the first time, then later and later."""
    if run.exit is None:
        return None
    if run.crashes <= 1:
        return run.exit.finished_at
    delay_s = min(timings.crash_first_s * 2.0 ** min(run.crashes - 2, 32), timings.crash_most_s)
    return run.exit.finished_at + timedelta(seconds=delay_s)


def _wanted(spec: NodePodSpec, runs: Runs) -> Iterator[NodeContainer]:
    """The containers that should run and do not."""
    pending = _pending_init(spec, runs)
    has_begun = any(container.name in runs for container in spec.containers)
    if pending is not None and not runs.get(pending.name, NEVER_RUN).is_active:
        yield pending
    if pending is None or has_begun:
        for container in spec.containers:
            if not runs.get(container.name, NEVER_RUN).is_active and not is_done(spec, container, runs):
                yield container


def _pending_init(spec: NodePodSpec, runs: Runs) -> NodeContainer | None:
    """The init container whose turn it is: before it all have exited well or, as sidecars, run."""
    for container in spec.init_containers:
        run = runs.get(container.name, NEVER_RUN)
        has_done_its_part = run.is_running if container.is_sidecar else run.exit is not None and run.exit.code == 0
        if not has_done_its_part:
            return container
    return None


def _plan_end(spec: NodePodSpec, runs: Runs) -> PodPlan:
    """Stop what runs, sidecars last: the others may need them to the end."""
    sidecars = [container for container in spec.init_containers if container.is_sidecar]
    others = [container for container in (*spec.init_containers, *spec.containers) if container not in sidecars]
    for group in (others, sidecars):
        if active := tuple(container for container in group if runs.get(container.name, NEVER_RUN).is_active):
            return PodPlan(stop=active)
    return PodPlan(is_over=True)


def _has_failed(runs: Runs, container: NodeContainer) -> bool:
    exit = runs.get(container.name, NEVER_RUN).exit
    return exit is not None and exit.code != 0


def _restarts(spec: NodePodSpec, container: NodeContainer, exit: Exit) -> bool:
    match container.restart_policy or spec.restart_policy or "Always":
        case "Always":
            return True
        case "OnFailure":
            return exit.code != 0
        case _:
            return False
