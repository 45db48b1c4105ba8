"""The strategies besides `Spread`, and strategies by name.

`Pack` fills nodes whose devices are used most. `FragmentationAware` chooses the node where typical pods lose least: with
F = idle devices that typical pods cannot use + 2 × those that lack cpu or other resources (`typical_use`), the node with the largest
F before − F after, in twentieths of a device. Smaller differences mean nothing, and the usual order of equal nodes decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from dralloc.devices.snapshot import Snapshot
from dralloc.kube.pod_requests import CPU
from dralloc.scheduler.decide.device_judge import DeviceJudge
from dralloc.scheduler.decide.local_devices import WHOLE, DeviceUse, LocalDevices
from dralloc.scheduler.decide.node_scores import SCORE_MAX
from dralloc.scheduler.decide.placement_strategy import (
    SPREAD,
    NodeFragmentation,
    NodeScorer,
    PlacementStrategy,
    ScoringContext,
)
from dralloc.scheduler.decide.pod_requirements import PodRequirements
from dralloc.scheduler.decide.typical_use import SHIFT
from dralloc.scheduler.state.node_state import NodeState

# How much worse idle devices without cpu are than those that typical pods cannot use.
STARVED_WEIGHT: Final = 2
# The smallest difference that counts: a twentieth of a device. Coarser steps are worse where cpu is scarce.
STEP: Final = (WHOLE // 20) << SHIFT
# The steps from the middle to the best or the worst score: 20 devices.
STEPS_MAX: Final = 400


class ScoredNode(Struct, frozen=True, gc=False):
    """A node before and after it gets a pod. Resources are in nanos, devices in thousandths of a device."""

    node: NodeState
    free_after: Mapping[str, int]
    before: LocalDevices
    after: LocalDevices

    @property
    def free_before(self) -> Mapping[str, int]:
        return self.node.free

    @property
    def idle_before(self) -> tuple[int, ...]:
        """What is idle of each device, in the order of the allocator."""
        return self.before.idle_by_unit

    @property
    def idle_after(self) -> tuple[int, ...]:
        return self.after.idle_by_unit


class _ScorerBase:
    def __init__(self, requirements: PodRequirements, devices: DeviceJudge | None, context: ScoringContext) -> None:
        self._amounts = requirements.node.resources.amounts
        self._use = DeviceUse.of(devices) if devices is not None else None
        self._context = context

    def _after(self, before: LocalDevices, node: NodeState, snapshot: Snapshot) -> LocalDevices | None:
        """None if the node's devices do not serve the pod, which its verdict says then."""
        if self._use is None:
            return before
        return self._context.local.after(before, self._use, node.offer.place, snapshot)


class _FunctionScorer(_ScorerBase):
    def __init__(
        self,
        strategy: ScoredBy,
        requirements: PodRequirements,
        devices: DeviceJudge | None,
        context: ScoringContext,
    ) -> None:
        super().__init__(requirements, devices, context)
        self._function = strategy.function
        self._most = SCORE_MAX * strategy.scale

    def score(self, node: NodeState, snapshot: Snapshot) -> int:
        before = self._context.local.of(node.offer.place, snapshot)
        after = self._after(before, node, snapshot)
        if after is None:
            return 0
        score = self._function(ScoredNode(node, self._free_after(node), before, after))
        return min(max(score, 0), self._most)

    def _free_after(self, node: NodeState) -> dict[str, int]:
        amounts = self._amounts
        return {name: nanos - amounts.get(name, 0) for name, nanos in node.free.items()}


@dataclass(frozen=True, slots=True)
class ScoredBy:
    """A strategy that is a function of a node before and after it gets the pod.

    The function returns 0 to 100 × `scale`. It can be sent to other processes if the function can.
    """

    name: str
    function: Callable[[ScoredNode], int]
    scale: int = 1
    reads_typical_pods: bool = False
    judges_all: bool = True
    by_amounts: bool = False
    falls_with_load: bool = False

    def scorer(self, requirements: PodRequirements, devices: DeviceJudge | None, context: ScoringContext) -> NodeScorer:
        return _FunctionScorer(self, requirements, devices, context)


class _PackScorer(_ScorerBase):
    """The percentage of the devices that are in use with the pod, then of cpu. A node without devices loses none."""

    def score(self, node: NodeState, snapshot: Snapshot) -> int:
        cpu = node.offer.allocatable.get(CPU, 0)
        free = node.free.get(CPU, 0) - self._amounts.get(CPU, 0)
        used = SCORE_MAX * (cpu - free) // cpu if cpu else 0
        return self._by_devices(node, snapshot) + min(max(used, 0), SCORE_MAX)

    def limit(self, node: NodeState, snapshot: Snapshot) -> int:
        """As if the pod took all cpu."""
        return self._by_devices(node, snapshot) + SCORE_MAX

    def _by_devices(self, node: NodeState, snapshot: Snapshot) -> int:
        after = self._after(self._context.local.of(node.offer.place, snapshot), node, snapshot)
        if after is None:
            return 0
        total = WHOLE * len(after.left)
        return (SCORE_MAX * (total - after.idle) // total if total else SCORE_MAX) * (SCORE_MAX + 1)


@dataclass(frozen=True, slots=True)
class Pack:
    name: str = "Pack"
    scale: int = SCORE_MAX + 2
    reads_typical_pods: bool = False
    judges_all: bool = True
    by_amounts: bool = True
    falls_with_load: bool = False

    def scorer(self, requirements: PodRequirements, devices: DeviceJudge | None, context: ScoringContext) -> NodeScorer:
        return _PackScorer(requirements, devices, context)


class _FragmentationScorer(_ScorerBase):
    def score(self, node: NodeState, snapshot: Snapshot) -> int:
        before = self._before(node, snapshot)
        after = self._after(before.devices, node, snapshot)
        if after is None:
            return 0
        if not before.devices.idle:
            return STEPS_MAX
        starved = self._context.typical.starved(after, node.free, self._amounts)
        return _steps(before.fragmentation - self._fragmentation(after, starved))

    def limit(self, node: NodeState, snapshot: Snapshot) -> int:
        """As if the pod took no resources but devices, which is quick to tell: less is starved by at most what it takes."""
        before = self._before(node, snapshot)
        after = self._after(before.devices, node, snapshot)
        if after is None:
            return 0
        if not before.devices.idle:
            return STEPS_MAX
        # One more, because amounts are rounded.
        least = max(before.starved - ((before.devices.idle - after.idle) << SHIFT) - 1, 0)
        return _steps(before.fragmentation - self._fragmentation(after, least))

    def _before(self, node: NodeState, snapshot: Snapshot) -> NodeFragmentation:
        devices = self._context.local.of(node.offer.place, snapshot)
        known = self._context.fragmentation.get(node.name)
        if known is not None and known.node is node and known.devices is devices:
            return known
        starved = self._context.typical.starved(devices, node.free)
        found = NodeFragmentation(node, devices, self._fragmentation(devices, starved), starved)
        self._context.fragmentation[node.name] = found
        return found

    def _fragmentation(self, devices: LocalDevices, starved: int) -> int:
        unusable = (devices.idle << SHIFT) - self._context.typical.worth(devices)
        return unusable + STARVED_WEIGHT * starved


def _steps(gain: int) -> int:
    return STEPS_MAX + min(max(gain // STEP, -STEPS_MAX), STEPS_MAX)


@dataclass(frozen=True, slots=True)
class FragmentationAware:
    name: str = "FragmentationAware"
    # The range of steps is that of 100 points.
    scale: int = 2 * STEPS_MAX // SCORE_MAX
    reads_typical_pods: bool = True
    judges_all: bool = True
    by_amounts: bool = True
    falls_with_load: bool = False

    def scorer(self, requirements: PodRequirements, devices: DeviceJudge | None, context: ScoringContext) -> NodeScorer:
        return _FragmentationScorer(requirements, devices, context)


PACK: Final = Pack()
FRAGMENTATION_AWARE: Final = FragmentationAware()
STRATEGIES: Final[Mapping[str, PlacementStrategy]] = {
    strategy.name: strategy for strategy in (SPREAD, PACK, FRAGMENTATION_AWARE)
}
