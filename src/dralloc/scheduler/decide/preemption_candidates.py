"""The pods that may be evicted, by node. They are kept between decisions: a node is looked at again only if its pods changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import inf
from typing import NamedTuple

from msgspec import Struct

from dralloc.devices.device_usage import pools_used
from dralloc.devices.identity import ClaimId, PoolId
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.pod_claims import group_name
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceRequestAllocationResult
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.kube.timestamps import stated_time
from dralloc.scheduler.decide.victim_search import PRIORITY_SHIFT, Cost, VictimUnit, cost_of
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.scheduler.state.placed_pods import PlacedPod, PodKey
from dralloc.scheduler.state.watched_budgets import CountedBudgets


class VictimCandidate(Struct, frozen=True, eq=False, gc=False):
    """A unit of pods that may be evicted. `devices` are the results that it holds, alone or with other pods."""

    unit: VictimUnit
    pods: tuple[PlacedPod, ...]
    devices: Sequence[DeviceRequestAllocationResult] = ()


class _Known(NamedTuple):
    revision: int
    budgets_revision: int
    candidates: tuple[VictimCandidate, ...]


class VictimCandidates:
    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._nodes: dict[str, _Known] = {}
        # Groups that are evicted as a whole, for one plan.
        self._groups: dict[tuple[str, str], VictimCandidate] = {}

    def begin(self) -> CountedBudgets:
        """The budgets at the beginning of a plan."""
        self._groups.clear()
        placed = self._cluster.placed_pods.by_node()
        for empty in self._nodes.keys() - placed.keys():
            del self._nodes[empty]
        return self._cluster.budgets.count(each.pod for pods in placed.values() for each in pods.values())

    def on_node(self, node: str, budgets: CountedBudgets) -> Sequence[VictimCandidate]:
        """The candidates of the node, the cheapest first. Pods that are terminating are none."""
        placed, budgets_revision = self._cluster.placed_pods, self._cluster.budgets.revision
        known = self._nodes.get(node)
        revision = placed.revisions[node]
        if known is not None and (known.revision, known.budgets_revision) == (revision, budgets_revision):
            return known.candidates
        found = [
            self._candidate(key, pod, budgets) for key, pod in placed.on_node(node).items() if _can_be_evicted(pod)
        ]
        # Several pods may belong to one group that is evicted as a whole.
        candidates = tuple(sorted(dict.fromkeys(found) if self._groups else found, key=_importance))
        # A claim of a placed pod that has no devices yet may have some soon: the watch of claims may be behind. Groups have pods elsewhere.
        if not self._groups and all(each.devices for each in candidates if each.pods[0].claims):
            self._nodes[node] = _Known(revision, budgets_revision, candidates)
        return candidates

    def lower_than(self, priority: int, node: str, budgets: CountedBudgets) -> Sequence[VictimCandidate]:
        found = self.on_node(node, budgets)
        if not found or found[-1].unit.priority < priority:
            return found
        return [each for each in found if each.unit.priority < priority]

    def least_cost(self, priority: int, node: str, budgets: CountedBudgets) -> Cost | None:
        """What a victim on the node costs at least; None if there is none. Most nodes need not be looked at more closely."""
        if self._cluster.pod_groups:
            found = self.lower_than(priority, node, budgets)
            return cost_of((found[0].unit,)) if found else None
        lowest, latest = priority, -inf
        for placed in self._cluster.placed_pods.on_node(node).values():
            own = placed.pod.spec.priority or 0
            if own > lowest or own >= priority:
                continue
            started = seconds(placed.pod.status.start_time)
            latest = max(latest, started) if own == lowest else started
            lowest = own
        return Cost(0, lowest, lowest + PRIORITY_SHIFT, 1, -latest) if lowest < priority else None

    def users(self, claim_ids: Iterable[ClaimId], priority: int, budgets: CountedBudgets) -> Iterable[VictimCandidate]:
        """The candidates of lower priority that use one of the claims."""
        placed = self._cluster.placed_pods
        keys = {key for claim_id in claim_ids for key in placed.users(claim_id)}
        nodes = sorted({pod.node for key in keys if (pod := placed.find(key)) is not None})
        for node in nodes:
            found = self.lower_than(priority, node, budgets)
            yield from (each for each in found if not keys.isdisjoint(each.unit.keys))

    def _candidate(self, key: PodKey, pod: PlacedPod, budgets: CountedBudgets) -> VictimCandidate:
        stored = pod.pod
        if self._cluster.pod_groups and (group := group_evicted_with(stored, self._cluster)) is not None:
            return self._group_candidate(group, budgets)
        numbers = budgets.of(stored) if budgets.allowed else ()
        unit = VictimUnit((key,), stored.spec.priority or 0, seconds(stored.status.start_time), numbers)
        return VictimCandidate(unit, (pod,), self._devices_of(pod.claims) if pod.claims else ())

    def _group_candidate(self, group: PodGroup, budgets: CountedBudgets) -> VictimCandidate:
        namespace, name = group.metadata.namespace, group.metadata.name
        known = self._groups.get((namespace, name))
        if known is not None:
            return known
        members = {
            key: pod
            for pods in self._cluster.placed_pods.by_node().values()
            for key, pod in pods.items()
            if key[0] == namespace and group_name(pod.pod) == name and _can_be_evicted(pod)
        }
        pods = tuple(members.values())
        unit = VictimUnit(
            tuple(members),
            max(pod.priority for pod in pods) if group.spec.priority is None else group.spec.priority,
            min(seconds(pod.pod.status.start_time) for pod in pods),
            tuple(number for pod in pods for number in budgets.of(pod.pod)),
        )
        # Members may share a claim.
        claims = dict.fromkeys(claim_id for pod in pods for claim_id in pod.claims)
        candidate = VictimCandidate(unit, pods, self._devices_of(tuple(claims)))
        self._groups[namespace, name] = candidate
        return candidate

    def _devices_of(self, claim_ids: Sequence[ClaimId]) -> Sequence[DeviceRequestAllocationResult]:
        found = [
            allocation.devices.results
            for claim_id in claim_ids
            if (claim := self._cluster.find_claim(claim_id)) is not None
            and (allocation := claim.status.allocation) is not None
        ]
        # Nearly always one claim, whose results need not be copied.
        return found[0] if len(found) == 1 else [result for results in found for result in results]


def group_evicted_with(pod: Pod, cluster: ClusterState) -> PodGroup | None:
    """The group with which the pod is evicted; None if it is evicted alone."""
    name = group_name(pod)
    group = cluster.pod_groups.get((pod.metadata.namespace, name)) if name else None
    mode = group.spec.disruption_mode if group is not None else None
    return group if mode is not None and mode.all is not None else None


def _can_be_evicted(pod: PlacedPod) -> bool:
    return not (pod.is_nominated or pod.pod.metadata.deletion_timestamp is not None)


def _importance(candidate: VictimCandidate) -> tuple[int, float, tuple[PodKey, ...]]:
    unit = candidate.unit
    return unit.priority, -unit.started, unit.keys


def holders(pools: frozenset[PoolId], snapshot: Snapshot) -> dict[PoolId, list[ClaimId]]:
    """The claims that hold devices of these pools."""
    found: dict[PoolId, list[ClaimId]] = {}
    for claim_id, claim in snapshot.claims.items():
        for pool_id in pools & pools_used(claim):
            found.setdefault(pool_id, []).append(claim_id)
    return found


@lru_cache(maxsize=65536)
def seconds(timestamp: str | None) -> float:
    """Infinite for a time that is not known."""
    known = stated_time(timestamp)
    return known.timestamp() if known is not None else inf
