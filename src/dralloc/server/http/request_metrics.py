"""Metrics of requests, under the names that kube-apiserver uses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain

from dralloc.primitives.features import FeatureGates
from dralloc.primitives.metrics import CounterMetric, GaugeMetric, HistogramMetric, Metric, added_up, gate_metric
from dralloc.server.http.url_paths import ResourcePath

_REQUEST_LABELS = ("verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component")


class ServerMetrics:
    def __init__(self, *, watches: Callable[[], int], gates: FeatureGates) -> None:
        # Set by the listener, if there is one.
        self.connections: Callable[[], int] = lambda: 0
        self.requests = CounterMetric(
            "apiserver_request_total",
            "Requests by verb, resource and response code.",
            (*_REQUEST_LABELS, "code"),
        )
        self.durations = HistogramMetric(
            "apiserver_request_duration_seconds", "Duration of requests without watches.", _REQUEST_LABELS
        )
        self.in_flight = 0
        self._included: list[Callable[[], Iterable[Metric]]] = []
        self._elsewhere: list[Callable[[], Awaitable[Iterable[Metric]]]] = []
        self._metrics: tuple[Metric, ...] = (
            self.requests,
            self.durations,
            GaugeMetric(
                "apiserver_current_inflight_requests",
                "Requests in flight.",
                read=lambda: [((), self.in_flight)],
            ),
            GaugeMetric(
                "apiserver_longrunning_requests", "Open watches.", ("verb",), lambda: [(("WATCH",), watches())]
            ),
            GaugeMetric(
                "apiserver_open_connections", "Open client connections.", read=lambda: [((), self.connections())]
            ),
            gate_metric(gates),
        )

    def all(self) -> tuple[Metric, ...]:
        return self._metrics

    def include(self, others: Callable[[], Iterable[Metric]]) -> None:
        """Expose the metrics of another component of this process as well."""
        self._included.append(others)

    def include_later(self, others: Callable[[], Awaitable[Iterable[Metric]]]) -> None:
        """Expose the metrics of a component in another process as well."""
        self._elsewhere.append(others)

    async def text(self) -> str:
        """All metrics in the Prometheus text format 0.0.4."""
        elsewhere = await asyncio.gather(*(others() for others in self._elsewhere))
        metrics = added_up(chain(self.all(), *(others() for others in self._included), *elsewhere))
        return "".join(f"{line}\n" for metric in metrics for line in metric.lines())

    def observe(self, verb: str, path: ResourcePath | None, *, dry_run: bool, code: int, seconds: float | None) -> None:
        """Count one response; `seconds` is `None` for a watch."""
        if path is None:
            labels = (verb, "", "", "", "", "", "", "apiserver")
        else:
            scope = "resource" if path.name else "namespace" if path.namespace else "cluster"
            stage = "All" if dry_run else ""
            labels = (verb, stage, path.group, path.version, path.resource, path.subresource, scope, "apiserver")
        self.requests.add(*labels, str(code))
        if seconds is not None:
            self.durations.observe(*labels, value=seconds)
