"""Which strategy a pod gets, and the typical pods that strategies know: given, or learnt from the pods that are decided on.

What is learnt changes all scores, so it is applied rarely: when the number of pods has grown by a factor, from the next pod on. Learning
depends only on which pods came in which order.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from dralloc.devices.allocator.features import Features
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim
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

    def refusal(self, pod: Pod) -> str:
        """Why the pod does not get the strategy that it asks for; empty if it does, or asks for none."""
        asked = pod.metadata.annotations.get(ANNOTATION, "")
        if asked in ("", self.default.name, *self.allowed):
            return ""
        allowed = ", ".join(sorted(self.allowed)) or "none"
        return f"strategy {asked!r} is not allowed on pods (allowed: {allowed}); {self.default.name} was used"


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
        self.typical = settings.typical or ()
        self._context = ScoringContext(LocalDeviceIndex(features), TypicalUse(self.typical))
        self._has_learnt = False

    @property
    def present_settings(self) -> StrategySettings:
        """The settings, with what was learnt up to now."""
        return replace(self.settings, typical=self.typical) if self._learns else self.settings

    def of(self, pod: Pod) -> PlacementStrategy:
        return self.settings.of(pod)

    def scoring(self, pod: Pod) -> Scoring:
        return Scoring(self.of(pod), self._context)

    def learn(self, pod: Pod, key: bytes, requirements: PodRequirements, claims: tuple[ResourceClaim, ...]) -> None:
        """Counts the pod."""
        if self._learns and self._is_new(pod):
            self._pods.observe(key, requirements, claims)
            self._find_typical()

    def learn_from(
        self, existing: Iterable[tuple[Pod, Iterable[ResourceClaim]]], classes: Mapping[str, DeviceClass]
    ) -> None:
        """Counts pods that were placed before, with their claims."""
        if not self._learns:
            return
        for pod, claims in existing:
            if self._is_new(pod):
                self._pods.count(pod, claims, classes, self._features)
        self._find_typical()

    def apply(self) -> None:
        """From now on scores are those of the typical pods that were learnt."""
        if self._has_learnt:
            self._has_learnt = False
            self._context.use(TypicalUse(self.typical))

    def _is_new(self, pod: Pod) -> bool:
        if pod.metadata.uid in self._seen:
            return False
        self._seen[pod.metadata.uid] = None
        if len(self._seen) > REMEMBERED_MAX:
            self._seen.popitem(last=False)
        return True

    def _find_typical(self) -> None:
        if self._pods.total >= self._learn_at:
            self._learn_at = self._pods.total * LEARNT_FACTOR
            self.typical = self._pods.counted()
            self._has_learnt = True
