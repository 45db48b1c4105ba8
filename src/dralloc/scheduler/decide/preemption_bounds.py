"""How many pods must leave a node at least before it can take a pod: cheap bounds, no rules of their own.

They compare sums: what the pod asks for with what is free and what each victim frees at most. Whether the pod fits is always decided
by the cycle; a bound only spares it questions whose answer is no.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final

from dralloc.devices.allocator.candidate_devices import matches_of
from dralloc.devices.allocator.requests import Demand, RequestDemand
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.resource_v1 import DeviceRequestAllocationResult
from dralloc.scheduler.decide.cycle import SchedulingAttempt
from dralloc.scheduler.decide.preemption_candidates import VictimCandidate, seconds
from dralloc.scheduler.decide.victim_search import PRIORITY_SHIFT, Cost, VictimUnit
from dralloc.scheduler.state.node_state import NodeState
from dralloc.scheduler.state.placed_pods import PlacedPod

# Devices are counted like a resource of the node.
DEVICES: Final = "devices"

# What a victim frees at most, by name of the resource.
Gains = Mapping[str, int]


class NodeBounds:
    """The bounds of one node. `missing` is what the pod lacks there, `gains` what each unit frees at most."""

    def __init__(self, missing: Mapping[str, int], units: Sequence[VictimUnit], gains: Sequence[Gains]) -> None:
        self._missing = missing
        self._gains = {id(unit): gained for unit, gained in zip(units, gains, strict=True)}
        # The largest gains first, added up.
        self._sums = {
            name: [*accumulate(sorted((gained.get(name, 0) for gained in gains), reverse=True))] for name in missing
        }

    def needed(self, gone: Sequence[VictimUnit]) -> int | None:
        """How many units must go besides these; None if all together are not enough."""
        most = 0 if gone else 1
        for name, missing in self._missing.items():
            left = missing - sum(self._gains[id(unit)].get(name, 0) for unit in gone)
            if left > 0:
                sums = self._sums[name]
                count = bisect_left(sums, left) + 1
                if count > len(sums):
                    return None
                most = max(most, count)
        return most


def least_cost(units: Sequence[VictimUnit], needed: int) -> Cost:
    """What `needed` or more of these units cost at least."""
    cheapest = sorted(units, key=_by_cost)[:needed]
    last = cheapest[-1]
    total = sum([unit.priority for unit in cheapest]) + needed * PRIORITY_SHIFT
    return Cost(0, last.priority, total, needed, -last.started)


def least_cost_of_pods(pods: Iterable[PlacedPod], needed: int) -> Cost:
    """The same for pods of which each is a unit."""
    importance = ((placed.pod.spec.priority or 0, -seconds(placed.pod.status.start_time)) for placed in pods)
    cheapest = sorted(importance)[:needed]
    highest, since = cheapest[-1]
    return Cost(0, highest, sum([each for each, _ in cheapest]) + needed * PRIORITY_SHIFT, needed, since)


def _by_cost(unit: VictimUnit) -> tuple[int, float]:
    """Candidates of a node are in this order already."""
    return unit.priority, -unit.started


class Lack:
    """What a pod lacks on a node, as far as sums can tell. `wanted` is what it wants of devices, if that can be counted."""

    def __init__(
        self, attempt: SchedulingAttempt, node: NodeState, snapshot: Snapshot, wanted: WantedDevices | None
    ) -> None:
        requirements, extended = attempt.table.requirements, attempt.extended
        resources, free = requirements.node.resources, node.free
        # Devices may serve extended resources, so nothing is known about these.
        unknown = frozenset(extended.names) if extended is not None else frozenset()
        self._node = node.name
        self._ports = resources.ports
        self._may_need_devices = requirements.demand is not None or bool(requirements.held) or extended is not None
        self._any = attempt.rules is not None
        self._missing = {
            name: nanos - free.get(name, 0)
            for name, nanos in resources.amounts.items()
            if nanos > free.get(name, 0) and name not in unknown
        }
        self._devices = _NodeDevices(wanted, node, snapshot) if wanted is not None else None
        self._unknown = unknown

    @property
    def is_hopeless(self) -> bool:
        """True if the node has too few devices for the pod, even if all of them were free."""
        return self._devices is not None and self._devices.needed > self._devices.total

    def least_number(self, pods: Collection[PlacedPod], results_max: int) -> int | None:
        """How many of these pods of the node must go at least, if no claim has more devices; None if all are not enough."""
        most = 1
        for name, missing in self._missing.items():
            largest = max((pod.needs.amounts.get(name, 0) for pod in pods), default=0)
            if not largest:
                return None
            most = max(most, -(-missing // largest))
        if self._devices is not None and self._devices.missing:
            each = max((len(pod.claims) for pod in pods), default=0) * results_max
            if not each:
                return None
            most = max(most, -(-self._devices.missing // each))
        return most

    def is_reduced_by(self, candidate: VictimCandidate) -> bool:
        """False if the candidate holds nothing that the pod lacks. With rules about other pods, any pod may be in the way."""
        return self._any or any(map(self._is_freed_by, candidate.pods))

    def _is_freed_by(self, pod: PlacedPod) -> bool:
        if self._may_need_devices and pod.claims:
            return True
        if pod.node != self._node:
            return False
        amounts = pod.needs.amounts
        if any(name in self._missing or name in self._unknown for name in amounts):
            return True
        return bool(self._ports and pod.needs.ports)

    def bounds(self, candidates: Sequence[VictimCandidate]) -> NodeBounds:
        missing, units = dict(self._missing), [candidate.unit for candidate in candidates]
        gains = [_gains(candidate, self._node, missing) if missing else {} for candidate in candidates]
        if self._devices is not None and self._devices.missing:
            for gained, candidate in zip(gains, candidates, strict=True):
                gained[DEVICES] = self._devices.count(candidate.devices)
            missing[DEVICES] = self._devices.missing
        return NodeBounds(missing, units, gains)


def _gains(candidate: VictimCandidate, node: str, missing: Iterable[str]) -> dict[str, int]:
    here = [pod.needs.amounts for pod in candidate.pods if pod.node == node]
    return {name: sum(amounts.get(name, 0) for amounts in here) for name in missing}


class WantedDevices:
    """What a demand wants of devices, on any node."""

    def __init__(self, demand: Demand) -> None:
        self.needed = sum(map(_devices_needed, demand.requests))
        self.criteria = tuple({alternative.criteria for alternative in demand.alternatives})
        self.visibility = demand.features.visibility

    @classmethod
    def of(cls, attempt: SchedulingAttempt) -> WantedDevices | None:
        """None if the pod needs no devices, or if they depend on the node."""
        demand = attempt.table.requirements.demand
        return cls(demand) if demand is not None and attempt.extended is None else None


class _NodeDevices:
    """The devices of a node that match a demand. `missing` is how many more must be free at least; 0 where they can be shared."""

    def __init__(self, wanted: WantedDevices, node: NodeState, snapshot: Snapshot) -> None:
        needed, free, total = wanted.needed, 0, 0
        self._matched: dict[tuple[str, str], list[tuple[Mapping[str, int], int]]] = {}
        for strip in snapshot.view(node.offer.place, wanted.visibility).strips:
            matched = 0
            for each in wanted.criteria:
                matched |= matches_of(strip.slice, each).matched
            if matched & strip.slice.shareable:
                needed = 0
            total += matched.bit_count()
            pool_id = strip.pool.pool_id
            usage = snapshot.usage.get(pool_id)
            free += (matched & ~(usage.dedicated[strip.slice_index] if usage is not None else 0)).bit_count()
            self._matched.setdefault((pool_id.driver, pool_id.pool), []).append((strip.slice.bit_of, matched))
        self.needed, self.total = needed, total
        self.missing = max(needed - free, 0)

    def count(self, devices: Iterable[DeviceRequestAllocationResult]) -> int:
        """How many of these devices the demand may use."""
        count = 0
        for each in devices:
            for bits, matched in self._matched.get((each.driver, each.pool), ()):
                if each.device in bits:
                    count += matched >> bits[each.device] & 1
        return count


def _devices_needed(request: RequestDemand) -> int:
    """How many devices a request needs at least that no other claim has."""
    counts = [
        0 if each.is_admin else 1 if each.takes_all or each.is_aggregated else each.count
        for each in request.alternatives
    ]
    return min(counts, default=0)
