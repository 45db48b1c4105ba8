"""When a pod must be evicted because of taints on its devices, and because of which rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from dralloc.controllers.taint_eviction.tainted_devices import ActiveTaint
from dralloc.devices.identity import DeviceId
from dralloc.devices.taints import tolerates
from dralloc.kube.meta_v1 import Condition
from dralloc.kube.pod_claims import ClaimUse, is_held_by_workload, is_reserved_for, may_use
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import (
    EFFECT_NONE,
    NO_EXECUTE,
    DeviceTaint,
    DeviceTaintRule,
    DeviceToleration,
    ResourceClaim,
)
from dralloc.kube.timestamps import parse_timestamp, print_timestamp
from dralloc.primitives.phrases import counted


@dataclass(frozen=True, slots=True)
class Eviction:
    """The time of an eviction, and the names of the rules that demand it, then or later."""

    at: datetime
    rules: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ScheduleEviction:
    """Remember the eviction until its time."""

    pod: Pod
    eviction: Eviction


@dataclass(frozen=True, slots=True)
class EvictPod:
    pod: Pod
    eviction: Eviction


@dataclass(frozen=True, slots=True)
class CancelEviction:
    """The eviction is no longer needed."""

    pod: Pod


PodAction = ScheduleEviction | EvictPod | CancelEviction


def plan_pod(pod: Pod, eviction: Eviction | None, scheduled: Eviction | None, now: datetime) -> tuple[PodAction, ...]:
    """The actions for the eviction that the pod needs now, given the one that was scheduled before."""
    if eviction is None:
        return (CancelEviction(pod),) if scheduled is not None else ()
    steps: list[PodAction] = [] if eviction == scheduled else [ScheduleEviction(pod, eviction)]
    if eviction.at <= now:
        steps.append(EvictPod(pod, eviction))
    return tuple(steps)


def find_eviction(
    pod: Pod,
    claims: Iterable[tuple[ClaimUse, ResourceClaim]],
    taints_of: Callable[[DeviceId], Iterable[ActiveTaint]],
    now: datetime,
    *,
    for_groups: bool = False,
) -> Eviction | None:
    """The eviction at the earliest time that a taint on one of the pod's devices demands; None if the pod can stay."""
    if pod.is_terminating or pod.is_finished:
        return None
    times: list[datetime] = []
    rules: set[str] = set()
    for use, claim in claims:
        if not is_affected(pod, use, claim, for_groups=for_groups) or claim.status.allocation is None:
            continue
        for result in claim.status.allocation.devices.results:
            for taint, rule in taints_of(DeviceId.of(result)):
                time = eviction_time(taint, result.tolerations, now)
                if time is not None:
                    times.append(time)
                    rules |= {rule} if rule is not None else set()
    return Eviction(min(times), frozenset(rules)) if times else None


def is_affected(pod: Pod, use: ClaimUse, claim: ResourceClaim, *, for_groups: bool = False) -> bool:
    """True if taints on the claim's devices concern the pod. `for_groups`: the gate DRAWorkloadResourceClaims.

    A pod without a node can still get other devices, unless a workload holds the claim: then the claim keeps its devices
    as long as the workload runs.
    """
    if not may_use(use, claim, pod, for_groups=for_groups):
        return False
    if is_held_by_workload(claim):
        return True
    return bool(pod.spec.node_name) and is_reserved_for(claim, pod, for_groups=for_groups)


def eviction_time(taint: DeviceTaint, tolerations: Iterable[DeviceToleration], now: datetime) -> datetime | None:
    """When the taint evicts pods from the device: immediately, after the shortest toleration of it, or never (None)."""
    covering = [toleration for toleration in tolerations if tolerates(toleration, taint)]
    limits = [entry.toleration_seconds for entry in covering if entry.toleration_seconds is not None]
    if covering and not limits:
        return None
    since = now if taint.time_added is None else parse_timestamp(taint.time_added)
    try:
        return since + timedelta(seconds=max(min(limits, default=0), 0))
    except OverflowError:
        # Later than the largest representable date.
        return None


# --- Plan rule status -----------------------------------------------------------------------------------------------
# The EvictionInProgress condition of a DeviceTaintRule: the progress of evictions, or a preview for the effect
# None.


EVICTION_IN_PROGRESS: Final = "EvictionInProgress"
# The minimum between two writes for the same spec: 10 s, and one because written times are whole seconds.
WRITE_PAUSE: Final = timedelta(seconds=10 + 1)


@dataclass(frozen=True, slots=True)
class AffectedPods:
    pods: int = 0
    namespaces: int = 0

    def __str__(self) -> str:
        return f"{counted(self.pods, 'pod')} in {counted(self.namespaces, 'namespace')}"


@dataclass(frozen=True, slots=True)
class EvictionPreview:
    """What a rule with the effect None would do with the effect NoExecute."""

    published: int
    allocated: int
    affected: AffectedPods


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFacts:
    """What the condition depends on. The preview scans all claims and slices, so it is computed only when needed."""

    pending: AffectedPods
    evicted: int
    preview: Callable[[], EvictionPreview]


@dataclass(frozen=True, slots=True)
class WriteRuleCondition:
    rule: DeviceTaintRule
    condition: Condition


def plan_rule(rule: DeviceTaintRule, facts: RuleFacts, now: datetime) -> WriteRuleCondition | timedelta | None:
    """The condition to write, the time to wait before it may be written, or None if it is up to date."""
    written = next((entry for entry in rule.status.conditions if entry.type == EVICTION_IN_PROGRESS), None)
    is_described = written is not None and written.observed_generation == rule.metadata.generation
    if is_described and rule.spec.taint.effect == EFFECT_NONE:
        # The preview is computed once for each spec, and not kept up to date.
        return None
    status, reason, message = _describe(rule, facts)
    if written is not None and is_described:
        if (written.status, written.reason, written.message) == (status, reason, message):
            return None
        pause = _pause_left(written, now)
        if pause > timedelta():
            return pause
    condition = Condition(
        type=EVICTION_IN_PROGRESS,
        status=status,
        reason=reason,
        message=message,
        observed_generation=rule.metadata.generation,
        last_transition_time=print_timestamp(now),
    )
    return WriteRuleCondition(rule, condition)


def _pause_left(written: Condition, now: datetime) -> timedelta:
    if written.last_transition_time is None:
        return timedelta()
    return parse_timestamp(written.last_transition_time) + WRITE_PAUSE - now


def _describe(rule: DeviceTaintRule, facts: RuleFacts) -> tuple[str, str, str]:
    """Status, reason and message of the condition."""
    so_far = f" {counted(facts.evicted, 'pod')} evicted since the controller started." if facts.evicted else ""
    match rule.spec.taint.effect:
        case "NoExecute" if facts.pending.pods:
            return "True", "PodsPendingEviction", f"{facts.pending} pending eviction.{so_far}"
        case "NoExecute" if facts.evicted:
            return "False", "Completed", f"No pods are pending eviction.{so_far}"
        case "NoExecute":
            return "False", "NotStarted", "No pods need to be evicted."
        case "None":
            return "False", "NoEffect", _describe_preview(facts.preview())
        case effect:
            return "False", "OtherEffect", f"The effect {effect} evicts no pods.{so_far}"


def _describe_preview(preview: EvictionPreview) -> str:
    return (
        f"The rule selects {counted(preview.published, 'published device')}; "
        f"{counted(preview.allocated, 'selected device')} allocated. "
        f"With the effect {NO_EXECUTE}, {preview.affected} would be evicted. Computed when the rule was last changed."
    )
