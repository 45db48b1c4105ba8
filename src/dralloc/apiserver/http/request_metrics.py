"""What the server counts, under the names by which Kubernetes' dashboards know it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

from dralloc.apiserver.http.url_paths import ResourcePath
from dralloc.primitives.metrics import CounterMetric, GaugeMetric, HistogramMetric, Metric, exposition

_REQUEST_LABELS = ("verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component")


class ServerMetrics:
    """The counters of one server."""

    def __init__(self, *, watches: Callable[[], int], connections: Callable[[], int] = lambda: 0) -> None:
        self.requests = CounterMetric(
            "apiserver_request_total",
            "Requests, by what they were about and how they ended.",
            (*_REQUEST_LABELS, "code"),
        )
        self.durations = HistogramMetric(
            "apiserver_request_duration_seconds", "How long requests took; watches are not counted.", _REQUEST_LABELS
        )
        self.in_flight = 0
        self._beside: list[Callable[[], Iterable[Metric]]] = []
        self._metrics: tuple[Metric, ...] = (
            self.requests,
            self.durations,
            GaugeMetric(
                "apiserver_current_inflight_requests",
                "Requests that are being answered.",
                read=lambda: [((), self.in_flight)],
            ),
            GaugeMetric(
                "apiserver_longrunning_requests", "Open watches.", ("verb",), lambda: [(("WATCH",), watches())]
            ),
            GaugeMetric(
                "apiserver_open_connections", "Connections that clients hold.", read=lambda: [((), connections())]
            ),
        )

    def all(self) -> tuple[Metric, ...]:
        return self._metrics

    def include(self, others: Callable[[], Iterable[Metric]]) -> None:
        """Show the metrics of a component that runs in the same process, too: one place to look at."""
        self._beside.append(others)

    def text(self) -> str:
        return exposition(tuple(chain(self.all(), *(others() for others in self._beside))))

    def observe(self, verb: str, path: ResourcePath | None, *, dry_run: bool, code: int, seconds: float | None) -> None:
        """Count one answer; `seconds` is `None` for one that goes on."""
        if path is None:
            labels = (verb, "", "", "", "", "", "", "apiserver")
        else:
            scope = "resource" if path.name else "namespace" if path.namespace else "cluster"
            stage = "All" if dry_run else ""
            labels = (verb, stage, path.group, path.version, path.resource, path.subresource, scope, "apiserver")
        self.requests.add(*labels, str(code))
        if seconds is not None:
            self.durations.observe(*labels, value=seconds)
