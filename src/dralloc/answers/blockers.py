"""What keeps a pod from running, in the order of its life: created, scheduled, bound, started by its node.

The cycle decides about scheduling itself; everything before and after it is judged here, from the objects alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dralloc.answers.cluster_objects import exists
from dralloc.devices.identity import ClaimId
from dralloc.kube.core_v1 import Event, Node
from dralloc.kube.pod_claims import group_name, is_listed_group
from dralloc.kube.pod_v1 import DEFAULT_SCHEDULER, Pod
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.scheduler.state.binding_conditions import DevicesFailed, DevicesPending, readiness
from dralloc.scheduler.state.tracked_claim import consumer_for

CLAIM_CREATION_EVENT: Final = "FailedResourceClaimCreation"
SCHEDULING_EVENT: Final = "FailedScheduling"
NOT_ALLOCATED: Final = "NotAllocated"
PREPARED: Final = "PodReadyToStartContainers"
# What a container that is not blocked waits for.
STARTING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
# How nodes say that a driver is missing: ours, and a kubelet.
UNREGISTERED: Final = ("is not registered", "not found in the list of registered")


class Stage(StrEnum):
    """The step in the life of a pod that is blocked."""

    CREATION = "Creation"
    GATES = "SchedulingGates"
    SCHEDULER = "SchedulerName"
    CLAIMS = "Claims"
    GROUP = "PodGroup"
    SCHEDULING = "Scheduling"
    BINDING = "Binding"
    NODE = "Node"


@dataclass(frozen=True, slots=True)
class Blocker:
    """`reason` is one word for programs; `message` completes the sentence that begins with the pod and a colon."""

    stage: Stage
    reason: str
    message: str


def queue_blockers(pod: Pod, scheduler_names: Collection[str]) -> Iterator[Blocker]:
    """Why the scheduler does not look at a pod without a node."""
    if pod.is_terminating:
        yield Blocker(Stage.CREATION, "Terminating", "it is being deleted")
    if gates := [gate.name for gate in pod.spec.scheduling_gates]:
        noun = "scheduling gate" if len(gates) == 1 else "scheduling gates"
        yield Blocker(Stage.GATES, "Gated", f"it waits for the removal of the {noun} {', '.join(gates)}")
    name = pod.spec.scheduler_name or DEFAULT_SCHEDULER
    if name not in scheduler_names:
        ours = " or ".join(sorted(scheduler_names))
        yield Blocker(Stage.SCHEDULER, "OtherScheduler", f"its schedulerName is {name}, not {ours}")


def binding_blockers(pod: Pod, claims: Iterable[ResourceClaim], *, for_workloads: bool) -> Iterator[Blocker]:
    """What the pod lacks of its claims once it has a node, or waits for before it is bound."""
    has_node = bool(pod.spec.node_name)
    for claim in claims:
        claim_id = ClaimId.of(claim)
        if claim.status.allocation is None:
            if has_node:
                message = f"claim {claim_id} has no devices, and a pod that has a node gets none: delete it, and create it without nodeName"
                yield Blocker(Stage.BINDING, NOT_ALLOCATED, message)
            continue
        match readiness(claim):
            case DevicesPending(devices) if not has_node:
                message = f"claim {claim_id}: its devices are not ready to be bound yet: {', '.join(devices)}"
                yield Blocker(Stage.BINDING, "DevicesPending", message)
            case DevicesFailed(why) if not has_node:
                yield Blocker(Stage.BINDING, "DevicesFailed", f"claim {claim_id}: {why}")
        if not has_node or not exists(pod) or is_listed_group(claim, group_name(pod)):
            continue
        if consumer_for(claim, pod, for_workloads=for_workloads) is not None:
            yield Blocker(Stage.BINDING, "NotReserved", f"claim {claim_id} is not reserved for it")


def node_blockers(pod: Pod, node: Node | None, events: Iterable[Event]) -> Iterator[Blocker]:
    """Why a pod does not run on the node that it has. `node` is None if the node does not exist."""
    if node is None:
        yield Blocker(Stage.NODE, "NodeMissing", f"node {pod.spec.node_name} does not exist")
    elif (unready := _unready(node)) is not None:
        yield Blocker(Stage.NODE, "NodeNotReady", unready)
    containers = tuple(container_blockers(pod))
    yield from containers
    event = latest_warning(pod, events)
    if (
        event is None
        or containers
        or prepared_since(pod) is not None
        or event.reason in (SCHEDULING_EVENT, CLAIM_CREATION_EVENT)
    ):
        return
    is_unregistered = any(words in event.message for words in UNREGISTERED)
    yield Blocker(Stage.NODE, "DriverNotRegistered" if is_unregistered else event.reason, event.message)


def container_blockers(pod: Pod) -> Iterator[Blocker]:
    """Why containers of a pod on its node do not run, by the states that the node reports: a crash loop, an image that is missing."""
    name, namespace = pod.metadata.name, pod.metadata.namespace
    for each in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting, ended = each.state.waiting, each.state.terminated
        if waiting is not None and waiting.reason not in STARTING:
            told = f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason
            reason = waiting.reason
        elif ended is not None and ended.exit_code and pod.spec.restart_policy != "Never":
            told, reason = "it is about to be restarted", ended.reason or "Error"
        else:
            continue
        message = f"container {each.name}: {told}"
        if (last := ended or each.last_state.terminated) is not None:
            why = f" ({last.reason})" if last.reason else ""
            message += f"; its last run ended with exit code {last.exit_code}{why}, restarts: {each.restart_count}"
            message += f"; kubectl logs -n {namespace} {name} -c {each.name} --previous shows its output"
        yield Blocker(Stage.NODE, reason, message)


def prepared_since(pod: Pod) -> str | None:
    """When its node had prepared everything that its containers need, devices included; None if it has not. May be empty."""
    for each in pod.status.conditions:
        if each.type == PREPARED and each.status == "True":
            return str(each.last_transition_time or "")
    return None


def is_starting(pod: Pod) -> bool:
    """True if the pod has a node and none of its containers has started."""
    return bool(pod.spec.node_name) and pod.status.phase in ("", "Pending")


def latest_warning(pod: Pod, events: Iterable[Event], reason: str = "") -> Event | None:
    """The newest warning about the pod, of this reason or of any."""
    found = [
        event
        for event in events
        if event.type == "Warning" and _is_about(event, pod) and event.reason == (reason or event.reason)
    ]
    return max(found, key=_time_of, default=None)


def _is_about(event: Event, pod: Pod) -> bool:
    subject = event.involved_object
    if (subject.kind, subject.namespace, subject.name) != ("Pod", pod.metadata.namespace, pod.metadata.name):
        return False
    return not subject.uid or not pod.metadata.uid or subject.uid == pod.metadata.uid


def _time_of(event: Event) -> tuple[str, int]:
    """When the event was last seen; the revision orders events of the same second."""
    series = event.series.last_observed_time if event.series is not None else None
    time = series or event.last_timestamp or event.event_time or event.first_timestamp
    revision = event.metadata.resource_version
    return str(time or ""), int(revision) if revision.isdecimal() else 0


def _unready(node: Node) -> str | None:
    for each in node.status.conditions:
        if each.type == "Ready" and each.status != "True":
            why = f" ({each.message or each.reason})" if each.message or each.reason else ""
            return f"the node is not ready{why}; delete the pod to have it scheduled again"
    return None
