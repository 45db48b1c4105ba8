"""The metrics of simulated nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from dralloc.primitives.metrics import GaugeMetric, LabelValues, Metric


class FleetMetrics:
    """`nodes` returns the number of nodes, and `phases` the phases of their pods, whenever the metrics are read."""

    def __init__(self, nodes: Callable[[], int], phases: Callable[[], Iterable[str]]) -> None:
        self._count_nodes = nodes
        self._phases = phases
        self.nodes = GaugeMetric("dralloc_simulated_nodes", "Nodes that this process simulates.", read=self._nodes)
        self.pods = GaugeMetric("dralloc_simulated_pods", "Pods on simulated nodes.", ("phase",), read=self._pods)

    def all(self) -> tuple[Metric, ...]:
        return self.nodes, self.pods

    def _nodes(self) -> Iterator[tuple[LabelValues, float]]:
        yield (), float(self._count_nodes())

    def _pods(self) -> Iterator[tuple[LabelValues, float]]:
        return (((phase,), float(count)) for phase, count in sorted(Counter(self._phases()).items()))
