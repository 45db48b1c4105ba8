"""How much of the devices is idle and stranded, by cause, at some points of a simulation."""

from __future__ import annotations

from collections.abc import Iterable

from dralloc.allocator.features import Features
from dralloc.placement_study.pod_factory import ArrivingPod
from dralloc.placement_study.run import Columns
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.typical_pods import TypicalPods
from dralloc.scheduler.report.fragmentation import Fragmentation
from dralloc.scheduler.report.stranded_devices import StrandedCause


class StrandingSamples:
    """Samples of one driver's devices; of all if it is empty. The typical pods are those of the trace."""

    def __init__(self, view: ClusterView, driver: str, pods: Iterable[ArrivingPod]) -> None:
        features = Features.of(FeatureGates.defaults()).of_scheduler()
        self.typical = typical = TypicalPods()
        for each in pods:
            typical.count(each.pod, (*each.claims, *each.shared), view.classes, features)
        self._driver = driver
        self._fragmentation = Fragmentation(view, features, typical.top())
        self.columns: Columns = {name: [] for name in ("arrival", "time_s", *(each.value for each in StrandedCause))}

    def take(self, arrival: int, time_s: float) -> None:
        found = [each for name, each in self._fragmentation.by_driver().items() if self._driver in ("", name)]
        amounts = (sum(each.stranded.get(cause, 0) for each in found) for cause in StrandedCause)
        for column, value in zip(self.columns.values(), (arrival, time_s, *amounts), strict=True):
            column.append(value)
