"""Which strategy a pod gets, and the typical pods that strategies know: given, or learnt from the pods that are decided on.

What is learnt changes all scores, so it is applied rarely: when the number of pods has grown by a factor. Learning depends only on
which pods came in which order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dralloc.allocator.features import Features
from dralloc.api.pod_v1 import Pod
from dralloc.scheduler.decide.local_devices import LocalDeviceIndex
from dralloc.scheduler.decide.placement_strategy import SPREAD, PlacementStrategy, Scoring, ScoringContext
from dralloc.scheduler.decide.pod_requirements import PodRequirements
from dralloc.scheduler.decide.typical_pods import CountedPod, TypicalPods
from dralloc.scheduler.decide.typical_use import TypicalUse

ANNOTATION: Final = "scheduler.dralloc.io/strategy"
# Typical pods are learnt after this many pods, and each time that there are as many times more.
LEARNT_FIRST: Final = 16
LEARNT_FACTOR: Final = 4
# A pod is counted once, however often it is tried, unless so many others came between.
REMEMBERED_MAX: Final = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategySettings:
    """`allowed` are the strategies that a pod may choose by annotation. Without `typical` pods, they are learnt."""

    default: PlacementStrategy = SPREAD
    allowed: Mapping[str, PlacementStrategy] = field(default_factory=dict)
    typical: tuple[CountedPod, ...] | None = None

    def of(self, pod: Pod) -> PlacementStrategy:
        """A strategy that is not allowed is not used: the default is."""
        return self.allowed.get(pod.metadata.annotations.get(ANNOTATION, ""), self.default)


SPREADING: Final = StrategySettings()


class StrategyChoice:
    """The strategies of one cycle, with what they share."""

    def __init__(self, settings: StrategySettings, features: Features) -> None:
        self.settings = settings
        self._features = features
        self._pods = TypicalPods()
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._learn_at = LEARNT_FIRST
        strategies = (settings.default, *settings.allowed.values())
        self._learns = settings.typical is None and any(each.reads_typical_pods for each in strategies)
        self._context = self._new_context(settings.typical or ())

    def _new_context(self, typical: tuple[CountedPod, ...]) -> ScoringContext:
        return ScoringContext(LocalDeviceIndex(self._features), TypicalUse(typical))

    def of(self, pod: Pod) -> PlacementStrategy:
        return self.settings.of(pod)

    def scoring(self, pod: Pod) -> Scoring:
        return Scoring(self.of(pod), self._context)

    def learn(self, pod: Pod, key: bytes, requirements: PodRequirements) -> bool:
        """Counts the pod. True if other pods are typical from now on, so that known scores are not valid any more."""
        if not self._learns or pod.metadata.uid in self._seen:
            return False
        self._seen[pod.metadata.uid] = None
        if len(self._seen) > REMEMBERED_MAX:
            self._seen.popitem(last=False)
        self._pods.observe(key, requirements)
        if self._pods.total < self._learn_at:
            return False
        self._learn_at = self._pods.total * LEARNT_FACTOR
        self._context = self._new_context(self._pods.counted())
        return True
