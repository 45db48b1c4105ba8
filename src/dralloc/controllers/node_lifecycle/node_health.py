"""How long a node has been silent.

A node shows that it is alive by its lease and by its status. Only *changes* of these count, on our own monotonic clock: times that
nodes write are never compared with ours, so clocks may differ, and may jump.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dralloc.api.coordination_v1 import Lease
from dralloc.api.core_v1 import Node, NodeCondition

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
