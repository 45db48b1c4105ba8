"""How simulated nodes reach the API server: all together for what they share, each as itself for its own objects.

The fleet watches pods and claims once for all nodes, and registers nodes. A node's status, lease, slices and pods are
written with the rights of that node alone, if it has an identity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from dralloc.client.api_calls import ApiCalls
from dralloc.client.transport import Transport
from dralloc.primitives.metrics import GaugeMetric, LabelValues, Metric

FIELD_MANAGER: Final = "dralloc-fake-nodes"

TransportOfNode = Callable[[str], Transport]


class FleetCalls:
    """Without `transport_of_node`, one identity does everything."""

    def __init__(self, transport: Transport, transport_of_node: TransportOfNode | None = None) -> None:
        self.shared: Final = ApiCalls(transport, field_manager=FIELD_MANAGER)
        self._transport_of_node = transport_of_node
        self._nodes: dict[str, ApiCalls] = {}

    def of_node(self, name: str) -> ApiCalls:
        """Calls with the rights of the node."""
        if self._transport_of_node is None:
            return self.shared
        if (calls := self._nodes.get(name)) is None:
            calls = self._nodes[name] = ApiCalls(self._transport_of_node(name), field_manager=FIELD_MANAGER)
        return calls


# --- Metrics --------------------------------------------------------------------------------------------------------
# The metrics of simulated nodes.


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
