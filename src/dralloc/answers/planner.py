"""How many nodes of a shape pods would need.

Pods are placed one after the other by the engine. A pod that fits nowhere gets new nodes; if it does not fit on those
either, they are removed again, and pods with the same requirements are not tried on new nodes. A gang gets its new nodes together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Final

from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.engine import Engine
from dralloc.answers.placements import PodPlacement, UnplacedPod
from dralloc.answers.pod_groups import is_placed
from dralloc.answers.scheduler_state import with_room
from dralloc.devices.allocator.allocate import ALTERNATIVES_MAX
from dralloc.devices.identity import ClaimId
from dralloc.kube.codec import decode, encode
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.request_name import RequestName
from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim, ResourceSlice
from dralloc.node.node_object import node_document, node_status
from dralloc.node.simulated import profiles
from dralloc.scheduler.contract import Decision, Placement, Rejection
from dralloc.scheduler.decide.gang_cycle import GangDecision, GangRequest

__all__ = ["GrowthPlan", "plan_pods"]


@dataclass(frozen=True, slots=True)
class Preference:
    """How well requests with alternatives are served: 8 for each that gets its first, down to 1 for its eighth."""

    requests: int = 0
    first: int = 0
    score: int = 0

    def __add__(self, other: Preference) -> Preference:
        return Preference(self.requests + other.requests, self.first + other.first, self.score + other.score)


@dataclass(frozen=True, slots=True)
class GrowthPlan:
    """What would become of the pods with nodes of the shape."""

    shape: CandidateShape
    placements: tuple[PodPlacement, ...]
    unplaced: tuple[UnplacedPod, ...]
    # The nodes that were added.
    nodes: tuple[str, ...]

    @property
    def preference(self) -> Preference:
        """How well the requests of all placed pods are served."""
        return sum(map(preference_of, self.placements), Preference())


def plan_pods(engine: Engine, pods: Iterable[Pod], shape: CandidateShape, now: datetime) -> GrowthPlan:
    """Places the pods on the engine's cluster, which grows by nodes of the shape as they need them."""
    return _Planner(engine, shape, now).plan(pods)


class _Planner:
    def __init__(self, engine: Engine, shape: CandidateShape, now: datetime) -> None:
        self._engine = engine
        self._shape = shape
        self._grow = Growths(shape, now)
        self._growths: list[Growth] = []
        # Equivalence keys of pods that do not fit on new nodes either.
        self._unsatisfiable: set[bytes] = set()

    def plan(self, pods: Iterable[Pod]) -> GrowthPlan:
        placements: list[PodPlacement] = []
        unplaced: list[UnplacedPod] = []
        for pod in pods:
            placed = self._engine.place(pod, self._decide, self._decide_gang)
            if isinstance(placed, PodPlacement):
                placements.append(placed)
            else:
                unplaced.append(placed)
        added = tuple(node.metadata.name for growth in self._growths for node in growth.nodes)
        return GrowthPlan(self._shape, tuple(placements), tuple(unplaced), added)

    def _decide(self, pod: Pod) -> Decision:
        decision = self._engine.decide(pod)
        key = decision.equivalence_key if isinstance(decision, Rejection) else None
        # Without a key, the decision is about this pod alone, and no node helps.
        if key is None or key in self._unsatisfiable or len(self._growths) >= self._shape.growths_max:
            return decision
        growth = self._grow(len(self._growths))
        self._add(growth)
        again = self._engine.decide(pod)
        if isinstance(again, Placement):
            self._growths.append(growth)
        else:
            self._remove(growth)
            self._unsatisfiable.add(key)
        return again

    def _decide_gang(self, request: GangRequest) -> GangDecision:
        """A gang gets the fewest new nodes with which it fits. More than one growth for each member is of no use."""
        decision = self._engine.groups.settle(request)
        least, most = 0, min(request.needed, self._shape.growths_max - len(self._growths))
        if is_placed(decision) or not self._fits_with(most, request):
            return decision
        while least + 1 < most:
            middle = (least + most) // 2
            if self._fits_with(middle, request):
                most = middle
            else:
                least = middle
        added = self._more(most)
        for growth in added:
            self._add(growth)
        self._growths += added
        return self._engine.groups.settle(request)

    def _fits_with(self, more: int, request: GangRequest) -> bool:
        growths = self._more(more)
        for growth in growths:
            self._add(growth)
        fits = is_placed(self._engine.groups.decide(request))
        for growth in reversed(growths):
            self._remove(growth)
        return fits

    def _more(self, count: int) -> list[Growth]:
        first = len(self._growths)
        return [self._grow(number) for number in range(first, first + count)]

    def _add(self, growth: Growth) -> None:
        for node in growth.nodes:
            self._engine.cluster.node_changed(None, node)
        for item in growth.slices:
            self._engine.cluster.slice_changed(None, item)

    def _remove(self, growth: Growth) -> None:
        for item in growth.slices:
            self._engine.cluster.slice_changed(item, None)
        for node in growth.nodes:
            self._engine.cluster.node_changed(node, None)


def preference_of(placement: PodPlacement) -> Preference:
    """How well the requests of the claims that are allocated with the pod are served."""
    new = (claim for claim in placement.claims if ClaimId.of(claim) in placement.new)
    return sum(map(_preference, new), Preference())


def _preference(claim: ResourceClaim) -> Preference:
    assert claim.status.allocation is not None, "the claim was allocated with the pod"
    chosen = {RequestName.parse(result.request) for result in claim.status.allocation.devices.results}
    found = Preference()
    for request in claim.spec.devices.requests or ():
        names = [RequestName(request.name, entry.name) for entry in request.first_available]
        position = next((index for index, name in enumerate(names) if name in chosen), None)
        if position is not None:
            found += Preference(requests=1, first=int(position == 0), score=ALTERNATIVES_MAX - position)
    return found


# --- Candidate shapes -----------------------------------------------------------------------------------------------
# Shapes of nodes that a cluster could grow by, after the profiles of simulated nodes.


NODES_MAX: Final = 10_000


class BadShape(ValueError):
    """A shape that cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class CandidateShape:
    """A profile of nodes, and how many of them there may be."""

    name: str
    profile: profiles.FleetProfile
    nodes_max: int

    @classmethod
    def parse(cls, text: str) -> CandidateShape:
        """Reads `PROFILE` or `PROFILE=COUNT`. Raises BadShape."""
        name, equals, count = text.partition("=")
        if equals and (not count.isdecimal() or not 1 <= int(count) <= NODES_MAX):
            raise BadShape(f"{text}: the number of nodes must be between 1 and {NODES_MAX}")
        try:
            profile = profiles.load_profile(name)
        except profiles.BadProfile as error:
            raise BadShape(f"{text}: {error}") from None
        return cls(Path(name).stem, profile, int(count) if equals else NODES_MAX)

    @property
    def unit(self) -> int:
        """How many nodes are added at once: a round of all kinds, and whole groups."""
        kinds = sum(kind.weight for kind in self.profile.nodes)
        return math.lcm(kinds, *(group.size for group in self.profile.groups))

    @property
    def growths_max(self) -> int:
        return -(-self.nodes_max // self.unit)

    @property
    def prefix(self) -> str:
        return f"new-{self.name}"


@dataclass(frozen=True, slots=True)
class Growth:
    """Nodes that are added together, with their devices."""

    nodes: tuple[Node, ...]
    slices: tuple[ResourceSlice, ...]


class Growths:
    """The growths of a shape, by number. The same number gives the same growth."""

    def __init__(self, shape: CandidateShape, now: datetime) -> None:
        self._shape = shape
        self._now = now
        self._nodes = profiles.nodes_of(shape.profile, NODES_MAX + shape.unit, shape.prefix)
        self._made: list[Growth] = []
        self._shared: set[str] = set()

    def __call__(self, number: int) -> Growth:
        while len(self._made) <= number:
            self._made.append(self._make())
        return self._made[number]

    def _make(self) -> Growth:
        simulated = tuple(islice(self._nodes, self._shape.unit))
        count = (len(self._made) + 1) * self._shape.unit
        everything = profiles.shared_slices(self._shape.profile, count, self._shape.prefix)
        shared = [item for item in everything if item.metadata.name not in self._shared]
        self._shared.update(item.metadata.name for item in shared)
        own = (item for each in simulated for item in each.slices)
        return Growth(tuple(_node(each, self._now) for each in simulated), (*own, *shared))


def _node(simulated: profiles.SimulatedNode, now: datetime) -> Node:
    document = {**node_document(simulated.shape), "status": node_status(simulated.shape, now, now, is_ready=True)}
    return with_room(decode(encode(document), Node))


def add_classes(objects: ClusterObjects, shapes: list[CandidateShape]) -> None:
    """Adds the device classes of the shapes; classes that exist are kept."""
    for shape in shapes:
        for item in profiles.classes_of(shape.profile):
            if ("", item.metadata.name) not in objects.all(DeviceClass):
                objects.add(item)
