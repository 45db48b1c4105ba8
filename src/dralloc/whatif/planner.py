"""How many nodes that do not exist yet would pods need: a what-if on the scheduler's own cycle.

Pods are placed one after the other, as the scheduler would, with its scores and preferences. One that finds no place gets new nodes;
where it does not fit even on those, they are taken away again, and pods that ask for the same are not tried on new ones. Pure, like the
cycle: nothing is written but to the cluster that was handed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from dralloc.allocator.allocate import ALTERNATIVES_MAX
from dralloc.api.core_v1 import Node
from dralloc.api.pod_v1 import Pod
from dralloc.api.request_name import RequestName
from dralloc.api.resource_v1 import AllocationResult, ResourceClaim, ResourceSlice
from dralloc.devices.identity import ClaimId
from dralloc.scheduler.contract import Decision, Placement, Rejection
from dralloc.scheduler.decide.cycle import Cycle
from dralloc.scheduler.state.cluster_state import ClusterState


@dataclass(frozen=True, slots=True)
class Growth:
    """Nodes that come together, with the devices that come with them."""

    nodes: tuple[Node, ...]
    slices: tuple[ResourceSlice, ...]


@dataclass(frozen=True, slots=True)
class PlannedPlacement:
    """Where a pod would go, and what its claims would get there."""

    pod: Pod
    node: str
    allocations: Mapping[ClaimId, AllocationResult]
    # The claims that would be allocated with it.
    new: frozenset[ClaimId] = frozenset()


@dataclass(frozen=True, slots=True)
class Refusal:
    """A pod that would find no place, and why not."""

    pod: Pod
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    placements: tuple[PlannedPlacement, ...]
    refusals: tuple[Refusal, ...]
    # The nodes that were added.
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Preference:
    """How well requests with alternatives are served: 8 for each that gets its first, down to 1 for its eighth."""

    requests: int = 0
    first: int = 0
    score: int = 0

    def __add__(self, other: Preference) -> Preference:
        return Preference(self.requests + other.requests, self.first + other.first, self.score + other.score)


class Planner:
    """Places pods on a cluster that grows. `grow` gives the nodes that would come next, by the number of growths before."""

    def __init__(
        self,
        cluster: ClusterState,
        cycle: Cycle,
        *,
        grow: Callable[[int], Growth],
        growths_max: int,
        now: datetime,
        share_ids: Callable[[], str],
    ) -> None:
        self._cluster = cluster
        self._cycle = cycle
        self._grow = grow
        self._growths_max = growths_max
        self._now = now
        self._share_ids = share_ids
        self._growths: list[Growth] = []
        # Shapes of pods that do not fit on new nodes either.
        self._hopeless: set[bytes] = set()

    def plan(self, pods: Iterable[Pod]) -> Plan:
        placements: list[PlannedPlacement] = []
        refusals: list[Refusal] = []
        for pod in pods:
            decision = self._decide(pod)
            if isinstance(decision, Placement):
                placed = decision.commit(self._share_ids)
                self._cluster.assume(pod, placed.node, placed.allocations)
                placements.append(PlannedPlacement(pod, placed.node, placed.allocations, placed.new))
            else:
                refusals.append(Refusal(pod, decision.message))
        added = tuple(node.metadata.name for growth in self._growths for node in growth.nodes)
        return Plan(tuple(placements), tuple(refusals), added)

    def _decide(self, pod: Pod) -> Decision:
        decision = self._cycle.decide(pod, self._now)
        shape = decision.equivalence_key if isinstance(decision, Rejection) else None
        # Without a shape, it is something about the pod itself, and no node helps.
        if shape is None or shape in self._hopeless or len(self._growths) >= self._growths_max:
            return decision
        growth = self._grow(len(self._growths))
        self._add(growth)
        again = self._cycle.decide(pod, self._now)
        if isinstance(again, Placement):
            self._growths.append(growth)
        else:
            self._remove(growth)
            self._hopeless.add(shape)
        return again

    def _add(self, growth: Growth) -> None:
        for node in growth.nodes:
            self._cluster.node_changed(None, node)
        for item in growth.slices:
            self._cluster.slice_changed(None, item)

    def _remove(self, growth: Growth) -> None:
        for item in growth.slices:
            self._cluster.slice_changed(item, None)
        for node in growth.nodes:
            self._cluster.node_changed(node, None)


def preference(claim: ResourceClaim, allocation: AllocationResult) -> Preference:
    """How well the claim's requests with alternatives are served by what it got."""
    chosen = {RequestName.parse(result.request) for result in allocation.devices.results}
    found = Preference()
    for request in claim.spec.devices.requests or ():
        names = [RequestName(request.name, entry.name) for entry in request.first_available]
        position = next((index for index, name in enumerate(names) if name in chosen), None)
        if position is not None:
            found += Preference(requests=1, first=int(position == 0), score=ALTERNATIVES_MAX - position)
    return found
