"""What a node needs: conditions that say that it is silent, taints that follow its conditions, pods marked not ready."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from dralloc.api.core_v1 import Node, Taint
from dralloc.api.node_taints import NO_EXECUTE, NO_SCHEDULE, NOT_READY, UNREACHABLE, UNSCHEDULABLE
from dralloc.api.pod_v1 import Pod
from dralloc.api.timestamps import print_timestamp
from dralloc.controllers.node_lifecycle.node_health import READY, ready_status

# The conditions that a node's agent reports.
_REPORTED: Final = (READY, "MemoryPressure", "DiskPressure", "PIDPressure")

_TAINT_OF_READY: Final = {"False": NOT_READY, "Unknown": UNREACHABLE}
# By condition and status: the taint that keeps new pods away.
_TAINTS_OF_CONDITIONS: Final[Mapping[str, Mapping[str, str]]] = {
    READY: _TAINT_OF_READY,
    "MemoryPressure": {"True": "node.kubernetes.io/memory-pressure"},
    "DiskPressure": {"True": "node.kubernetes.io/disk-pressure"},
    "NetworkUnavailable": {"True": "node.kubernetes.io/network-unavailable"},
    "PIDPressure": {"True": "node.kubernetes.io/pid-pressure"},
}
_OURS_NO_SCHEDULE: Final = frozenset(
    {UNSCHEDULABLE, *(key for keys in _TAINTS_OF_CONDITIONS.values() for key in keys.values())}
)


@dataclass(frozen=True, slots=True)
class MarkUnknown:
    """The node is silent; these are the conditions to write."""

    node: Node
    conditions: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class SetTaints:
    """Replace the node's taints. `evicts`: one of them is new and evicts pods."""

    node: Node
    taints: tuple[Taint, ...]
    evicts: bool = False


@dataclass(frozen=True, slots=True)
class MarkPodsNotReady:
    node: Node
    pods: tuple[Pod, ...]


def unknown_conditions(node: Node, now: datetime) -> tuple[dict[str, Any], ...]:
    """The conditions of a silent node that must change; none if the node is known to be silent."""
    if ready_status(node) == "Unknown":
        return ()
    known = {each.type: each for each in node.status.conditions}
    moment, changed = print_timestamp(now), list[dict[str, Any]]()
    for name in _REPORTED:
        condition = known.get(name)
        if condition is None and name != READY:
            # Not every agent reports it, and nothing depends on it.
            continue
        if condition is None:
            reason, message = "NodeStatusNeverUpdated", "Kubelet never posted node status."
            heartbeat = node.metadata.creation_timestamp
        else:
            reason, message = "NodeStatusUnknown", "Kubelet stopped posting node status."
            heartbeat = condition.last_heartbeat_time
        entry = {"type": name, "status": "Unknown", "reason": reason, "message": message, "lastTransitionTime": moment}
        changed.append({**entry, "lastHeartbeatTime": heartbeat} if heartbeat else entry)
    return tuple(changed)


def wanted_taints(node: Node, now: datetime, *, adds_eviction: bool, is_halted: bool) -> tuple[Taint, ...]:
    """The node's taints as they should be: those of others, and ours as its conditions require.

    A taint that evicts pods is new only with `adds_eviction`; one that is there follows the condition at once. While evictions are
    halted there is none.
    """
    moment = print_timestamp(now)
    kept = tuple(taint for taint in node.spec.taints if not _is_ours(taint))
    present = {(taint.key, taint.effect): taint for taint in node.spec.taints}
    wanted = [(key, NO_SCHEDULE) for key in _keys_no_schedule(node)]
    evicting = _TAINT_OF_READY.get(ready_status(node))
    if evicting is not None and not is_halted and (adds_eviction or evicts(node)):
        wanted.append((evicting, NO_EXECUTE))
    return (*kept, *(present.get(each) or Taint(key=each[0], effect=each[1], time_added=moment) for each in wanted))


def needs_eviction(node: Node) -> bool:
    """True if the node must get a taint that evicts pods, as soon as its zone allows it."""
    return ready_status(node) in _TAINT_OF_READY and not evicts(node)


def evicts(node: Node) -> bool:
    """True if the node has a taint of ours that evicts pods."""
    return any(taint.effect == NO_EXECUTE and _is_ours(taint) for taint in node.spec.taints)


def is_changed(node: Node, taints: Iterable[Taint]) -> bool:
    """True if the taints differ from the node's, in whatever order."""
    return {(each.key, each.effect) for each in node.spec.taints} != {(each.key, each.effect) for each in taints}


def pods_to_mark(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    return tuple(
        pod for pod in pods if any(each.type == READY and each.status == "True" for each in pod.status.conditions)
    )


def _keys_no_schedule(node: Node) -> Iterator[str]:
    for condition in node.status.conditions:
        if (key := _TAINTS_OF_CONDITIONS.get(condition.type, {}).get(condition.status)) is not None:
            yield key
    if node.spec.unschedulable:
        yield UNSCHEDULABLE


def _is_ours(taint: Taint) -> bool:
    if taint.effect == NO_EXECUTE:
        return taint.key in (NOT_READY, UNREACHABLE)
    return taint.effect == NO_SCHEDULE and taint.key in _OURS_NO_SCHEDULE
