"""docs/reference/metrics.md: the metrics of every component."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dralloc.controllers.metrics import ControllerMetrics
from dralloc.driver.metrics import DriverMetrics
from dralloc.node.metrics import NodeMetrics
from dralloc.node.simulated.fleet_calls import FleetMetrics
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.metrics import Metric, gate_metric
from dralloc.scheduler.report.metrics import SchedulerMetrics
from dralloc.server.http.request_metrics import ServerMetrics
from scripts.reference.markdown import table


def component_metrics() -> Sequence[tuple[str, str, Sequence[Metric]]]:
    """Each component with where its metrics are, and the metrics."""
    gates = gate_metric(FeatureGates.defaults())
    return (
        (
            "API server",
            "`/metrics` of the server, for authenticated clients.",
            (*ServerMetrics(watches=lambda: 0, gates=FeatureGates.defaults()).all(),),
        ),
        ("Scheduler", "`dralloc scheduler --metrics-address HOST:PORT`.", (*SchedulerMetrics().all(), gates)),
        ("Controllers", "`dralloc controllers --metrics-address HOST:PORT`.", (*ControllerMetrics().all(), gates)),
        ("Node", "`dralloc node --metrics-address HOST:PORT`.", (*NodeMetrics(tuple).all(), gates)),
        (
            "Simulated nodes",
            "`dralloc node --fake COUNT --metrics-address HOST:PORT`.",
            (*FleetMetrics(int, tuple).all(), gates),
        ),
        ("Driver", "A driver built with `dralloc.driver`, at `DRA_METRICS_ADDRESS`.", DriverMetrics("driver").all()),
    )


def metrics_page() -> Iterator[str]:
    yield "# Metrics"
    yield "Every component serves its metrics at `/metrics` in the Prometheus text format. If Kubernetes has a metric, its name, labels and buckets"
    yield "are used, so that existing dashboards work. Times are in seconds."
    yield ""
    for title, where, metrics in component_metrics():
        yield f"## {title}"
        yield ""
        yield where
        yield ""
        yield from table(
            ["name", "type", "labels", ""],
            (
                [
                    f"`{each.name}`",
                    each.type,
                    ", ".join(map("`{}`".format, each.labels)),
                    each.help_text,
                ]
                for each in metrics
            ),
        )
