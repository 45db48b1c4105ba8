"""When a pod must be evicted because of taints on its devices, and because of which rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from dralloc.api.pod_claims import ClaimUse, is_held_by_workload, is_reserved_for, may_use
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import DeviceTaint, DeviceToleration, ResourceClaim
from dralloc.api.timestamps import parse_timestamp
from dralloc.controllers.taint_eviction.tainted_devices import ActiveTaint
from dralloc.devices.identity import DeviceId
from dralloc.devices.taints import tolerates


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
