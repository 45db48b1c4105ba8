"""What a placement strategy is: a score of the nodes that can take a pod.

A strategy decides only between nodes that fit, never whether one fits. Its score takes the place, the range and the weight that
Kubernetes gives to LeastAllocated, so that taints, affinity and device alternatives (`node_scores`) keep their meaning beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, runtime_checkable

from dralloc.devices.snapshot import Snapshot
from dralloc.scheduler.decide.device_judge import DeviceJudge
from dralloc.scheduler.decide.local_devices import LocalDeviceIndex, LocalDevices
from dralloc.scheduler.decide.node_scores import least_allocated
from dralloc.scheduler.decide.pod_requirements import PodRequirements
from dralloc.scheduler.decide.typical_use import TypicalUse
from dralloc.scheduler.state.node_state import NodeState
from dralloc.scheduler.state.pod_resources import PodResources


class NodeFragmentation(NamedTuple):
    """How fragmented a node is in one state. `starved` is the part of its idle devices for which other resources lack."""

    node: NodeState
    devices: LocalDevices
    fragmentation: int
    starved: int


class ScoringContext:
    """What scorers of one cycle share: the local devices of nodes, and the typical pods."""

    def __init__(self, local: LocalDeviceIndex, typical: TypicalUse) -> None:
        self.local = local
        self.typical = typical
        # The last state of each node that was scored.
        self.fragmentation: dict[str, NodeFragmentation] = {}

    def use(self, typical: TypicalUse) -> None:
        """Other pods are typical from now on. What is known about devices stays."""
        self.typical = typical
        self.fragmentation.clear()


class NodeScorer(Protocol):
    """Scores nodes for pods with the same requirements."""

    def score(self, node: NodeState, snapshot: Snapshot) -> int:
        """From 0 to 100 × the scale of the strategy; the larger, the better.

        The node fits as far as is known without a search for devices.
        """


@runtime_checkable
class LimitedScorer(NodeScorer, Protocol):
    """Scores that take long, with limits that take less and are equal for pods with the same demand."""

    def limit(self, node: NodeState, snapshot: Snapshot) -> int:
        """At least the score."""


class PlacementStrategy(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def scale(self) -> int:
        """How many steps of the score are one point of Kubernetes' scores."""

    @property
    def reads_typical_pods(self) -> bool: ...

    @property
    def judges_all(self) -> bool:
        """True if a pod is compared on all nodes that fit, not only on enough of them."""

    @property
    def by_amounts(self) -> bool:
        """True if two nodes have equal scores whose resources, free resources and devices are equal."""

    @property
    def falls_with_load(self) -> bool:
        """True if a node's score never rises when the node gets pods."""

    def scorer(
        self, requirements: PodRequirements, devices: DeviceJudge | None, context: ScoringContext
    ) -> NodeScorer: ...


class Scoring(NamedTuple):
    """A strategy with what its scorers share."""

    strategy: PlacementStrategy
    context: ScoringContext

    @property
    def basis(self) -> object:
        """Another object when the scores of unchanged nodes have changed."""
        return self.context.typical if self.strategy.reads_typical_pods else None

    def scorer(self, requirements: PodRequirements, devices: DeviceJudge | None) -> NodeScorer:
        return self.strategy.scorer(requirements, devices, self.context)


class _SpreadScorer:
    def __init__(self, resources: PodResources) -> None:
        self._resources = resources

    def score(self, node: NodeState, snapshot: Snapshot) -> int:  # noqa: ARG002
        return least_allocated(self._resources, node)


@dataclass(frozen=True, slots=True)
class Spread:
    """Kubernetes' LeastAllocated: the node where most of cpu and memory stays free."""

    name: str = "Spread"
    scale: int = 1
    reads_typical_pods: bool = False
    judges_all: bool = False
    by_amounts: bool = True
    falls_with_load: bool = True

    def scorer(
        self,
        requirements: PodRequirements,
        devices: DeviceJudge | None,  # noqa: ARG002
        context: ScoringContext,  # noqa: ARG002
    ) -> NodeScorer:
        return _SpreadScorer(requirements.node.resources)


SPREAD: Final = Spread()
