"""The next steps of a pod on its node: which containers to start or stop now, and when to check again.

A pure function of the pod, the state of its containers, and the time. Init containers run one after another, sidecars run with the
other containers and stop last, and containers that exit are restarted with backoff as the restart policy says. Ephemeral containers run
once, and the pod does not depend on them.
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
    """The state of a container. `exit` is set while it is not running; `previous` is how the run before ended."""

    is_starting: bool = False
    started_at: datetime | None = None
    exit: Exit | None = None
    previous: Exit | None = None
    restarts: int = 0
    # Consecutive exits that count for the restart backoff.
    crashes: int = 0

    @property
    def is_running(self) -> bool:
        return self.started_at is not None and self.exit is None

    @property
    def is_active(self) -> bool:
        return self.is_starting or self.is_running

    def begun(self) -> ContainerRun:
        """The state after a start was requested."""
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
    """What to do now. `wake_at` is when the next step is due; `is_over` means that no container runs or will run."""

    start: tuple[NodeContainer, ...] = ()
    stop: tuple[NodeContainer, ...] = ()
    wake_at: datetime | None = None
    is_over: bool = False


def plan_pod(spec: NodePodSpec, runs: Runs, *, is_ending: bool, now: datetime, timings: Timings) -> PodPlan:
    """The next steps of a pod whose claims are prepared; for an ending pod, the steps to its end."""
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
    """True if the container has exited and will not be restarted."""
    exit = runs.get(container.name, NEVER_RUN).exit
    return exit is not None and not _restarts(spec, container, exit)


def is_initialized(spec: NodePodSpec, runs: Runs) -> bool:
    """True if all init containers have succeeded and all sidecars run."""
    return _pending_init(spec, runs) is None


def has_failed_to_initialize(spec: NodePodSpec, runs: Runs) -> bool:
    """True if an init container failed for good; the other containers are never started then."""
    return any(
        not container.is_sidecar and _has_failed(runs, container) and is_done(spec, container, runs)
        for container in spec.init_containers
    )


def restart_at(run: ContainerRun, timings: Timings) -> datetime | None:
    """When an exited container may restart: at once after the first exit, then with exponential backoff."""
    if run.exit is None:
        return None
    if run.crashes <= 1:
        return run.exit.finished_at
    delay_s = min(timings.crash_first_s * 2.0 ** min(run.crashes - 2, 32), timings.crash_most_s)
    return run.exit.finished_at + timedelta(seconds=delay_s)


def _wanted(spec: NodePodSpec, runs: Runs) -> Iterator[NodeContainer]:
    """The containers that should run but do not."""
    pending = _pending_init(spec, runs)
    has_begun = any(container.name in runs for container in spec.containers)
    if pending is not None and not runs.get(pending.name, NEVER_RUN).is_active:
        yield pending
    if pending is None or has_begun:
        for container in spec.containers:
            if not runs.get(container.name, NEVER_RUN).is_active and not is_done(spec, container, runs):
                yield container
        # They run once, beside the others.
        yield from (container for container in spec.ephemeral_containers if container.name not in runs)


def _pending_init(spec: NodePodSpec, runs: Runs) -> NodeContainer | None:
    """The first init container that has not succeeded, or that is a sidecar and does not run."""
    for container in spec.init_containers:
        run = runs.get(container.name, NEVER_RUN)
        is_done_or_runs = run.is_running if container.is_sidecar else run.exit is not None and run.exit.code == 0
        if not is_done_or_runs:
            return container
    return None


def _plan_end(spec: NodePodSpec, runs: Runs) -> PodPlan:
    """Stop all containers, sidecars last: the others may need them until they end."""
    sidecars = [container for container in spec.init_containers if container.is_sidecar]
    others = [container for container in spec.all_containers if container not in sidecars]
    for group in (others, sidecars):
        if active := tuple(container for container in group if runs.get(container.name, NEVER_RUN).is_active):
            return PodPlan(stop=active)
    return PodPlan(is_over=True)


def _has_failed(runs: Runs, container: NodeContainer) -> bool:
    exit = runs.get(container.name, NEVER_RUN).exit
    return exit is not None and exit.code != 0


def _restarts(spec: NodePodSpec, container: NodeContainer, exit: Exit) -> bool:
    if container in spec.ephemeral_containers:
        return False
    match container.restart_policy or spec.restart_policy or "Always":
        case "Always":
            return True
        case "OnFailure":
            return exit.code != 0
        case _:
            return False
