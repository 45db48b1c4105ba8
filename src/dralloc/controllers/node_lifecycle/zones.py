"""How fast nodes of a zone may get taints that evict their pods.

If many nodes fail at once, the fault is more likely in the network than in the nodes, and moving all pods would make it worse. Evictions are
slower while most of a zone is not ready, and stop while no node of the cluster is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from dralloc.api.core_v1 import Node
from dralloc.controllers.node_lifecycle.node_health import NodeLifecycleSettings, ready_status

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
