"""The metrics of a node, with a kubelet's names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from dralloc.client.unreadable_objects import UNREADABLE_OBJECTS
from dralloc.node.checkpoint import ClaimRecord
from dralloc.primitives.metrics import CounterMetric, GaugeMetric, HistogramMetric, LabelValues, Metric

# Fifteen buckets in geometric progression from 0.1 s to 40 s.
CALL_BUCKETS_S: Final = tuple(round(0.1 * 400 ** (step / 14), 3) for step in range(15))

PREPARE_RESOURCES: Final = "PrepareResources"
UNPREPARE_RESOURCES: Final = "UnprepareResources"
ANY_DRIVER: Final = "<any>"


class NodeMetrics:
    """The metrics of one agent. `records` returns the prepared claims whenever the metrics are read."""

    def __init__(self, records: Callable[[], Iterable[ClaimRecord]]) -> None:
        self._records = records
        self.operations = HistogramMetric(
            "dra_operations_duration_seconds",
            "Time to prepare or unprepare all claims of a pod.",
            ("operation_name", "is_error"),
            CALL_BUCKETS_S,
        )
        self.calls = HistogramMetric(
            "dra_grpc_operations_duration_seconds",
            "Time of a call to a driver.",
            ("driver_name", "method_name", "grpc_status_code"),
            CALL_BUCKETS_S,
        )
        self.in_use = GaugeMetric(
            "dra_resource_claims_in_use",
            "Claims that are prepared, by driver; <any> is all of them.",
            ("driver_name",),
            read=self._in_use,
        )
        self.prepare_skips = CounterMetric(
            "dra_node_prepare_skips_total",
            "NodePrepareResources calls skipped because no device of a claim needed them.",
            ("driver_name",),
        )
        self.unprepare_skips = CounterMetric(
            "dra_node_unprepare_skips_total",
            "NodeUnprepareResources calls skipped because no device of a claim needed them.",
            ("driver_name",),
        )
        self.start_errors = CounterMetric(
            "kubelet_started_containers_errors_total",
            "Containers that could not be started.",
            ("container_type", "code"),
        )

    def all(self) -> tuple[Metric, ...]:
        return (
            self.operations,
            self.calls,
            self.in_use,
            self.prepare_skips,
            self.unprepare_skips,
            self.start_errors,
            UNREADABLE_OBJECTS,
        )

    def _in_use(self) -> Iterator[tuple[LabelValues, float]]:
        counts = {ANY_DRIVER: 0}
        for record in self._records():
            for driver in (ANY_DRIVER, *record.drivers):
                counts[driver] = counts.get(driver, 0) + 1
        return iter([((driver,), float(count)) for driver, count in counts.items()])
