"""Periods and rates of the controllers that follow nodes. The defaults are those of Kubernetes 1.37."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


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
