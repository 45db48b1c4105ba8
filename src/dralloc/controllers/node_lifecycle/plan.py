"""What a node needs: conditions that say that it is silent, taints that follow its conditions, pods marked not ready."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Final, NamedTuple

from dralloc.kube.coordination_v1 import Lease
from dralloc.kube.core_v1 import Node, NodeCondition, Taint
from dralloc.kube.node_taints import NO_EXECUTE, NO_SCHEDULE, NOT_READY, UNREACHABLE, UNSCHEDULABLE
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.timestamps import print_timestamp

# --- Node health ----------------------------------------------------------------------------------------------------
# How long a node has been silent.
#
# A node shows that it is alive by its lease and by its status. Only *changes* of these count, on our own monotonic
# clock: times that nodes write are never compared with ours, so clocks may differ, and may jump.


READY: Final = "Ready"


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """The newest signs of life of a node, and when we saw the last of them change."""

    uid: str
    heartbeat: str | None
    renewal: str | None
    seen_s: float


def observe(known: NodeHealth | None, node: Node, lease: Lease | None, now_s: float) -> NodeHealth:
    """The health after a look at the node; a node that is seen for the first time is alive now."""
    condition = ready_condition(node)
    heartbeat = condition.last_heartbeat_time if condition is not None else None
    renewal = lease.spec.renew_time if lease is not None else None
    if known is None or known.uid != node.metadata.uid:
        return NodeHealth(node.metadata.uid, heartbeat, renewal, now_s)
    # A lease that was deleted is no sign of life.
    renewal = renewal or known.renewal
    if (known.heartbeat, known.renewal) == (heartbeat, renewal):
        return known
    return NodeHealth(known.uid, heartbeat, renewal, now_s)


def is_expired(health: NodeHealth, node: Node, settings: NodeLifecycleSettings, now_s: float) -> bool:
    """True if the node has been silent for longer than its grace period."""
    grace_s = settings.grace_s if ready_condition(node) is not None else settings.startup_grace_s
    return now_s > health.seen_s + grace_s


def ready_condition(node: Node) -> NodeCondition | None:
    return next((each for each in node.status.conditions if each.type == READY), None)


def ready_status(node: Node) -> str:
    """ "True", "False" or "Unknown"; empty if the node has never said."""
    condition = ready_condition(node)
    return condition.status if condition is not None else ""


# --- Settings -------------------------------------------------------------------------------------------------------
# Periods and rates of the controllers that follow nodes. The defaults are those of Kubernetes 1.37.


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLifecycleSettings:
    """Periods in seconds; rates in nodes per second, for each zone."""

    # How often nodes are examined, and how long a node may be silent: after its first status, and before.
    monitor_s: float = 5.0
    grace_s: float = 50.0
    startup_grace_s: float = 60.0
    # How many nodes get a taint that evicts their pods: in a healthy zone, and in a large zone of which much is not ready.
    eviction_rate: float = 0.1
    secondary_eviction_rate: float = 0.01
    # A zone with more nodes is large; a small one has no evictions while much of it is not ready.
    large_zone_nodes: int = 50
    unhealthy_threshold: float = 0.55
    # How often pods of deleted nodes are searched for, and how long a node must be missing.
    garbage_s: float = 20.0
    quarantine_s: float = 40.0
    # Finished pods beyond this number are deleted, oldest first.
    finished_pods_max: int = 12_500


DEFAULT_SETTINGS: Final = NodeLifecycleSettings()


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


# --- Zones ----------------------------------------------------------------------------------------------------------
# How fast nodes of a zone may get taints that evict their pods.
#
# If many nodes fail at once, the fault is more likely in the network than in the nodes, and moving all pods would
# make it worse. Evictions are slower while most of a zone is not ready, and stop while no node of the cluster is.


REGION: Final = "topology.kubernetes.io/region"
ZONE: Final = "topology.kubernetes.io/zone"
# Nodes with this label do not count as ready or not ready.
EXCLUDED: Final = "node.kubernetes.io/exclude-disruption"
# Fewer nodes than this that are not ready are no disruption of a zone.
UNREADY_NODES_MIN: Final = 3


class ZoneId(NamedTuple):
    region: str
    zone: str

    @classmethod
    def of(cls, node: Node) -> ZoneId:
        labels = node.metadata.labels
        return cls(labels.get(REGION, ""), labels.get(ZONE, ""))


class Disruption(Enum):
    NONE = "Normal"
    PARTIAL = "PartialDisruption"
    FULL = "FullDisruption"


class ZoneCount(NamedTuple):
    ready: int
    unready: int


def count_zones(nodes: Iterable[Node]) -> dict[ZoneId, ZoneCount]:
    counts: dict[ZoneId, ZoneCount] = {}
    for node in nodes:
        if EXCLUDED not in node.metadata.labels:
            zone = ZoneId.of(node)
            ready, unready = counts.get(zone, (0, 0))
            is_ready = ready_status(node) == "True"
            counts[zone] = ZoneCount(ready + is_ready, unready + (not is_ready))
    return counts


def disruption_of(count: ZoneCount, settings: NodeLifecycleSettings) -> Disruption:
    if not count.ready and count.unready:
        return Disruption.FULL
    unready_share = count.unready / (count.ready + count.unready)
    if count.unready >= UNREADY_NODES_MIN and unready_share >= settings.unhealthy_threshold:
        return Disruption.PARTIAL
    return Disruption.NONE


@dataclass(frozen=True, slots=True)
class ZoneRates:
    """The eviction rate of each zone. `is_halted`: no node of the cluster is ready, and nothing is evicted."""

    rates: Mapping[ZoneId, float] = field(default_factory=dict)
    is_halted: bool = False

    def of(self, zone: ZoneId, settings: NodeLifecycleSettings) -> float:
        """Zones whose nodes do not count are healthy."""
        return 0.0 if self.is_halted else self.rates.get(zone, settings.eviction_rate)


def zone_rates(counts: Mapping[ZoneId, ZoneCount], settings: NodeLifecycleSettings) -> ZoneRates:
    states = {zone: disruption_of(count, settings) for zone, count in counts.items()}
    if states and all(state is Disruption.FULL for state in states.values()):
        return ZoneRates(dict.fromkeys(states, 0.0), is_halted=True)
    return ZoneRates({zone: _rate(state, sum(counts[zone]), settings) for zone, state in states.items()})


def _rate(state: Disruption, nodes: int, settings: NodeLifecycleSettings) -> float:
    if state is not Disruption.PARTIAL:
        return settings.eviction_rate
    return settings.secondary_eviction_rate if nodes > settings.large_zone_nodes else 0.0


@dataclass(slots=True)
class TokenBucket:
    """At most one token: the next one comes 1/rate seconds after the last was taken."""

    taken_s: float | None = None

    def wait_s(self, rate: float, now_s: float) -> float | None:
        """How long until there is a token; None if there will be none at this rate."""
        if rate <= 0:
            return None
        return 0.0 if self.taken_s is None else max(self.taken_s + 1 / rate - now_s, 0.0)
