"""The status of a pod, computed from the state of its containers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from dralloc.kube.pod_v1 import (
    FAILED,
    PENDING,
    SUCCEEDED,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    PodCondition,
)
from dralloc.kube.timestamps import parse_timestamp, print_timestamp
from dralloc.node.pod_plan import NEVER_RUN, ContainerRun, Exit, Runs, has_failed_to_initialize, is_done, is_initialized
from dralloc.node.pod_view import NodeContainer, NodeContainerStatus, NodePod, ResourceStatus

RUNNING: Final = "Running"

Waiting = ContainerStateWaiting


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    runs: Runs
    now: datetime
    # From the previous status; a condition that does not change keeps its time.
    started_at: str | None = None
    conditions: tuple[PodCondition, ...] = ()
    is_prepared: bool = False
    is_over: bool = False
    # By container, why it does not run, if that is more specific than ContainerCreating.
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    # Reason and message if the node ended the pod.
    ended: tuple[str, str] | None = None
    health: Mapping[str, tuple[ResourceStatus, ...]] = field(default_factory=dict)
    host_ip: str = ""


def pod_phase(pod: NodePod, facts: PodFacts) -> str:
    spec, runs = pod.spec, facts.runs
    if facts.is_over:
        exits = [runs.get(container.name, NEVER_RUN).exit for container in spec.containers]
        succeeded = facts.ended is None and all(exit is not None and exit.code == 0 for exit in exits)
        return SUCCEEDED if succeeded else FAILED
    if not is_initialized(spec, runs) and not any(container.name in runs for container in spec.containers):
        return PENDING
    has_run = [run.started_at is not None or run.exit is not None or run.restarts > 0 for run in _runs(pod, runs)]
    return RUNNING if any(has_run) else PENDING


def pod_status(pod: NodePod, facts: PodFacts) -> dict[str, Any]:
    """The fields of the status that the node owns."""
    phase = pod_phase(pod, facts)
    reason, message = facts.ended or ("", "")
    status: dict[str, Any] = {
        "phase": phase,
        "startTime": facts.started_at or print_timestamp(facts.now),
        "conditions": list(_conditions(pod, facts, phase)),
        "containerStatuses": [_container(pod, each, facts) for each in pod.spec.containers],
    }
    if pod.spec.init_containers:
        status["initContainerStatuses"] = [_container(pod, each, facts) for each in pod.spec.init_containers]
    if pod.spec.ephemeral_containers:
        status["ephemeralContainerStatuses"] = [_container(pod, each, facts) for each in pod.spec.ephemeral_containers]
    if reason:
        status |= {"reason": reason, "message": message}
    if facts.host_ip:
        # Pods use the network of the node.
        status |= {"hostIP": facts.host_ip, "podIP": facts.host_ip}
        status |= {"hostIPs": [{"ip": facts.host_ip}], "podIPs": [{"ip": facts.host_ip}]}
    return status


def has_other_readiness(pod: NodePod, status: Mapping[str, Any]) -> bool:
    """True if the pod shows another readiness than the node wrote: a controller believed the node to be gone."""
    sent = next((each.status for each in status["conditions"] if each.type == "Ready"), None)
    return any(each.type == "Ready" and each.status != sent for each in pod.status.conditions)


def status_patch(status: Mapping[str, Any]) -> dict[str, Any]:
    """The status as a strategic merge patch, which also removes the reason and the message that a condition no longer has."""
    conditions = [
        {
            "type": each.type,
            "status": each.status,
            "lastTransitionTime": each.last_transition_time,
            "reason": each.reason or None,
            "message": each.message or None,
        }
        for each in status["conditions"]
    ]
    return {**status, "conditions": conditions}


def restored_runs(pod: NodePod) -> dict[str, ContainerRun]:
    """The state of the containers according to the pod's status, for an agent that restarts."""
    status = pod.status
    statuses = (*status.init_container_statuses, *status.container_statuses, *status.ephemeral_container_statuses)
    return {each.name: run for each in statuses if (run := _restored(each)) is not None}


# --- Conditions ---------------------------------------------------------------------------------------------------


def _conditions(pod: NodePod, facts: PodFacts, phase: str) -> Iterator[PodCondition]:
    is_ready = phase == RUNNING and all(run.is_running for run in _runs(pod, facts.runs))
    initialized = is_initialized(pod.spec, facts.runs) or phase == SUCCEEDED
    not_ready = _why_not_ready(pod, facts, phase)
    yield _condition(facts, "PodReadyToStartContainers", facts.is_prepared and not facts.is_over)
    yield _condition(facts, "Initialized", initialized, "ContainersNotInitialized")
    yield _condition(facts, "ContainersReady", is_ready, *not_ready)
    yield _condition(facts, "Ready", is_ready, *not_ready)


def _why_not_ready(pod: NodePod, facts: PodFacts, phase: str) -> tuple[str, str]:
    if phase == SUCCEEDED:
        return "PodCompleted", ""
    if phase == FAILED:
        return "PodFailed", ""
    unready = [each.name for each in pod.spec.containers if not facts.runs.get(each.name, NEVER_RUN).is_running]
    return "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"


def _condition(facts: PodFacts, type: str, holds: bool, reason: str = "", message: str = "") -> PodCondition:
    status = "True" if holds else "False"
    before = next((each for each in facts.conditions if each.type == type), None)
    since = before.last_transition_time if before is not None and before.status == status else None
    return PodCondition(
        type=type,
        status=status,
        last_transition_time=since or print_timestamp(facts.now),
        reason="" if holds else reason,
        message="" if holds else message,
    )


# --- Containers ---------------------------------------------------------------------------------------------------


def _runs(pod: NodePod, runs: Runs) -> list[ContainerRun]:
    return [runs.get(container.name, NEVER_RUN) for container in pod.spec.containers]


def _container(pod: NodePod, container: NodeContainer, facts: PodFacts) -> NodeContainerStatus:
    run = facts.runs.get(container.name, NEVER_RUN)
    is_init = container in pod.spec.init_containers and not container.is_sidecar
    has_succeeded = run.exit is not None and run.exit.code == 0
    return NodeContainerStatus(
        name=container.name,
        image=container.image,
        state=_state(pod, container, run, facts),
        last_state=_last_state(pod, container, run, facts),
        ready=has_succeeded if is_init else run.is_running,
        started=run.is_running,
        restart_count=run.restarts,
        container_id=f"dralloc://{pod.metadata.uid}/{container.name}/{run.restarts}" if run != NEVER_RUN else "",
        allocated_resources_status=facts.health.get(container.name, ()),
    )


def _state(pod: NodePod, container: NodeContainer, run: ContainerRun, facts: PodFacts) -> ContainerState:
    if run.is_running:
        assert run.started_at is not None
        return ContainerState(running=ContainerStateRunning(started_at=print_timestamp(run.started_at)))
    if run.exit is not None and not _will_restart(pod, container, facts):
        return ContainerState(terminated=_terminated(run.exit))
    return ContainerState(waiting=_waiting(pod, container, run, facts))


def _last_state(pod: NodePod, container: NodeContainer, run: ContainerRun, facts: PodFacts) -> ContainerState:
    waits_to_restart = run.exit is not None and _will_restart(pod, container, facts)
    exit = run.exit if waits_to_restart else run.previous
    return ContainerState(terminated=_terminated(exit)) if exit is not None else ContainerState()


def _will_restart(pod: NodePod, container: NodeContainer, facts: PodFacts) -> bool:
    is_plain_init = container in pod.spec.init_containers and not container.is_sidecar
    exit = facts.runs.get(container.name, NEVER_RUN).exit
    if facts.is_over or (is_plain_init and exit is not None and exit.code == 0):
        return False
    return not is_done(pod.spec, container, facts.runs) and not has_failed_to_initialize(pod.spec, facts.runs)


def _waiting(pod: NodePod, container: NodeContainer, run: ContainerRun, facts: PodFacts) -> ContainerStateWaiting:
    if known := facts.waiting.get(container.name):
        return known
    if run.exit is not None and run.crashes > 1:
        message = f"the container exited {run.crashes} times in a row; it is restarted with increasing delays"
        return ContainerStateWaiting(reason="CrashLoopBackOff", message=message)
    if container in pod.spec.containers and not is_initialized(pod.spec, facts.runs):
        return ContainerStateWaiting(reason="PodInitializing")
    return ContainerStateWaiting(reason="ContainerCreating")


def _terminated(exit: Exit) -> ContainerStateTerminated:
    return ContainerStateTerminated(
        exit_code=exit.code,
        reason=exit.reason or ("Completed" if exit.code == 0 else "Error"),
        message=exit.message,
        started_at=print_timestamp(exit.started_at) if exit.started_at is not None else None,
        finished_at=print_timestamp(exit.finished_at),
    )


# --- Restoring ----------------------------------------------------------------------------------------------------


def _restored(status: NodeContainerStatus) -> ContainerRun | None:
    exit = _exit_of(status.state) or (_exit_of(status.last_state) if status.state.waiting is not None else None)
    running = status.state.running
    started_at = parse_timestamp(running.started_at) if running is not None and running.started_at else None
    if exit is None and running is None:
        return None
    return ContainerRun(
        started_at=started_at or (exit.started_at if exit is not None else None),
        exit=exit,
        previous=_exit_of(status.last_state) if exit is None or status.state.waiting is None else None,
        restarts=status.restart_count,
        crashes=status.restart_count + (1 if exit is not None else 0),
    )


def _exit_of(state: ContainerState) -> Exit | None:
    ended = state.terminated
    if ended is None or ended.finished_at is None:
        return None
    return Exit(
        code=ended.exit_code,
        finished_at=parse_timestamp(ended.finished_at),
        started_at=parse_timestamp(ended.started_at) if ended.started_at else None,
        reason=ended.reason,
        message=ended.message,
    )
