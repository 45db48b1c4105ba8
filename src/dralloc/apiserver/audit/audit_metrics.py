"""Metrics of the audit log, under the names that kube-apiserver uses."""

from __future__ import annotations

from dralloc.primitives.metrics import CounterMetric, Metric


class AuditMetrics:
    def __init__(self) -> None:
        self.events = CounterMetric("apiserver_audit_event_total", "Audit events that were generated.")
        self.errors = CounterMetric(
            "apiserver_audit_error_total", "Audit events that were dropped: they could not be written.", ("plugin",)
        )

    def all(self) -> tuple[Metric, ...]:
        return self.events, self.errors

    def drop(self, count: int = 1) -> None:
        self.errors.add("log", amount=count)

    @property
    def dropped(self) -> float:
        return self.errors.value("log")
