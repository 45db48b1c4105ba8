"""What the scheduler counts, by the names that dashboards of Kubernetes know.

Besides, `prioritized_list` tells claims that leave a choice from those that do not (KEP-4816).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from dralloc.primitives.metrics import CounterMetric, GaugeMetric, HistogramMetric, Metric, exposition

SCHEDULED: Final = "scheduled"
UNSCHEDULABLE: Final = "unschedulable"
ERROR: Final = "error"

# The steps of Kubernetes' own plugin for devices that take time here: deciding, taking devices back, writing claims.
FILTER: Final = "Filter"
POST_FILTER: Final = "PostFilter"
PRE_BIND: Final = "PreBind"


def _doubling(first: float, count: int) -> tuple[float, ...]:
    return tuple(first * 2.0**exponent for exponent in range(count))


class SchedulerMetrics:
    """One of these lives as long as the process. `profile` is the name that pods ask for the scheduler by."""

    def __init__(self) -> None:
        # How many pods are where, and which plugin keeps parked ones; set by the scheduler that is in charge.
        self.queued: Callable[[], Mapping[str, int]] = dict
        self.kept: Callable[[], Mapping[tuple[str, str], int]] = dict
        self.attempts = CounterMetric(
            "scheduler_schedule_attempts_total", "Attempts to place a pod, by how they ended.", ("result", "profile")
        )
        self.attempt_duration = HistogramMetric(
            "scheduler_scheduling_attempt_duration_seconds",
            "From taking a pod off the queue to its binding, or to finding that there is none.",
            ("result", "profile"),
            _doubling(0.001, 15),
        )
        self.decision_duration = HistogramMetric(
            "scheduler_scheduling_algorithm_duration_seconds", "How long deciding took.", (), _doubling(0.001, 15)
        )
        self.plugin_duration = HistogramMetric(
            "scheduler_plugin_execution_duration_seconds",
            "How long devices took: deciding on a pod with claims (Filter), taking devices back (PostFilter), writing claims (PreBind).",
            ("plugin", "extension_point", "status"),
            tuple(1e-5 * 1.5**exponent for exponent in range(20)),
        )
        self.pod_duration = HistogramMetric(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From first seeing a pod to its binding.",
            ("attempts",),
            _doubling(0.01, 20),
        )
        self.pod_attempts = HistogramMetric(
            "scheduler_pod_scheduling_attempts", "Attempts that placed pods took.", (), (1, 2, 4, 8, 16)
        )
        self.incoming = CounterMetric(
            "scheduler_queue_incoming_pods_total", "Pods that came to a queue.", ("queue", "event")
        )
        self.allocations = CounterMetric(
            "scheduler_dra_claim_allocations_total",
            "Claims that were given devices, or lost them to somebody who was faster.",
            ("result", "prioritized_list"),
        )
        self.binding_conditions = CounterMetric(
            "scheduler_dra_bindingconditions_allocations_total",
            "Devices that had to be made ready first, by how that ended.",
            ("profile", "driver", "status"),
        )
        self.binding_conditions_wait = HistogramMetric(
            "scheduler_dra_bindingconditions_wait_duration_seconds",
            "How long devices took to be made ready.",
            ("profile", "driver", "status"),
            _doubling(0.1, 14),
        )
        self._pending = GaugeMetric(
            "scheduler_pending_pods",
            "Pods that wait, by where they are.",
            ("queue",),
            lambda: [((queue,), count) for queue, count in self.queued().items()],
        )
        self._unschedulable = GaugeMetric(
            "scheduler_unschedulable_pods",
            "Pods that no node takes, by what keeps them.",
            ("plugin", "profile"),
            lambda: list(self.kept().items()),
        )

    def devices_took(self, step: str, status: str, seconds: float) -> None:
        self.plugin_duration.observe("DynamicResources", step, status, value=seconds)

    def all(self) -> tuple[Metric, ...]:
        return (
            self.attempts,
            self.attempt_duration,
            self.decision_duration,
            self.plugin_duration,
            self.pod_duration,
            self.pod_attempts,
            self.incoming,
            self.allocations,
            self.binding_conditions,
            self.binding_conditions_wait,
            self._pending,
            self._unschedulable,
        )

    def text(self) -> str:
        return exposition(self.all())
