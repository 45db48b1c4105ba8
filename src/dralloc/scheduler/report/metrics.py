"""The scheduler's metrics, with Kubernetes' names so that existing dashboards work.

The label `prioritized_list` is our addition: it is `true` for claims with alternatives (KEP-4816).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from dralloc.primitives.metrics import CounterMetric, GaugeMetric, HistogramMetric, Metric, exposition
from dralloc.scheduler.report.stranded_devices import WHOLE, IdleDevices

SCHEDULED: Final = "scheduled"
UNSCHEDULABLE: Final = "unschedulable"
ERROR: Final = "error"
# Of a group for which other pods are evicted.
WAITING_ON_PREEMPTION: Final = "waiting_on_preemption"

# Extension points of Kubernetes' DynamicResources plugin: gathering state, allocating, deallocating, writing claims.
PRE_FILTER: Final = "PreFilter"
FILTER: Final = "Filter"
POST_FILTER: Final = "PostFilter"
PRE_BIND: Final = "PreBind"


def _doubling(first: float, count: int) -> tuple[float, ...]:
    return tuple(first * 2.0**exponent for exponent in range(count))


class SchedulerMetrics:
    """Lives as long as the process. The label `profile` is the pod's `schedulerName`."""

    def __init__(self) -> None:
        # Pods by place in the queue, and parked pods by plugin and profile. Set by the scheduler of the current term.
        self.queued: Callable[[], Mapping[str, int]] = dict
        self.rejected: Callable[[], Mapping[tuple[str, str], int]] = dict
        # By driver, in thousandths of a device. Set by the scheduler of the current term.
        self.idle: Callable[[], Mapping[str, IdleDevices]] = dict
        self.attempts = CounterMetric(
            "scheduler_schedule_attempts_total", "Scheduling attempts by result.", ("result", "profile")
        )
        self.attempt_duration = HistogramMetric(
            "scheduler_scheduling_attempt_duration_seconds",
            "Duration of an attempt, from the decision to the binding or the rejection.",
            ("result", "profile"),
            _doubling(0.001, 15),
        )
        self.decision_duration = HistogramMetric(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Duration of a scheduling decision.",
            (),
            _doubling(0.001, 15),
        )
        self.group_attempts = CounterMetric(
            "scheduler_podgroup_schedule_attempts_total",
            "Scheduling attempts for groups of pods, by result.",
            ("result", "profile"),
        )
        self.group_attempt_duration = HistogramMetric(
            "scheduler_podgroup_scheduling_attempt_duration_seconds",
            "Duration of an attempt for a group of pods, until its pods are bound or rejected.",
            ("result", "profile"),
            _doubling(0.001, 15),
        )
        self.group_decision_duration = HistogramMetric(
            "scheduler_podgroup_scheduling_algorithm_duration_seconds",
            "Duration of a decision about a group of pods.",
            (),
            _doubling(0.001, 15),
        )
        self.placements = CounterMetric(
            "scheduler_generated_placements_total",
            "Values of a topology key that groups of pods were tried with.",
            ("profile",),
        )
        self.placement_evaluations = CounterMetric(
            "scheduler_placement_evaluations_total",
            "Attempts to place a group of pods on the nodes with one value of its topology key: feasible or infeasible.",
            ("result", "profile"),
        )
        self.placement_evaluation_duration = HistogramMetric(
            "scheduler_placement_evaluation_duration_seconds",
            "Duration of an attempt to place a group of pods on the nodes with one value of its topology key.",
            ("result", "profile"),
            _doubling(0.001, 15),
        )
        self.plugin_duration = HistogramMetric(
            "scheduler_plugin_execution_duration_seconds",
            "Duration of the device steps of pods with claims: gathering state (PreFilter), allocating (Filter), deallocating (PostFilter), writing claims (PreBind).",
            ("plugin", "extension_point", "status"),
            tuple(1e-5 * 1.5**exponent for exponent in range(20)),
        )
        self.pod_duration = HistogramMetric(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Duration from the first sight of a pod to its binding.",
            ("attempts",),
            _doubling(0.01, 20),
        )
        self.pod_attempts = HistogramMetric(
            "scheduler_pod_scheduling_attempts", "Attempts needed to schedule a pod.", (), (1, 2, 4, 8, 16)
        )
        self.incoming = CounterMetric(
            "scheduler_queue_incoming_pods_total", "Pods added to a queue, by queue and event.", ("queue", "event")
        )
        self.allocations = CounterMetric(
            "scheduler_dra_claim_allocations_total",
            "Claim allocations by result; success: the pod was bound.",
            ("result", "prioritized_list"),
        )
        self.claims_created = CounterMetric(
            "dynamic_resource_allocation_resourceclaim_creates_total",
            "Created claims and failed attempts.",
            ("status", "admin_access", "owner_api_group", "owner_api_kind", "prioritized_list"),
        )
        self.binding_conditions = CounterMetric(
            "scheduler_dra_bindingconditions_allocations_total",
            "Allocated devices with binding conditions, by outcome.",
            ("profile", "driver", "status"),
        )
        self.binding_conditions_wait = HistogramMetric(
            "scheduler_dra_bindingconditions_wait_duration_seconds",
            "Duration of the wait for binding conditions.",
            ("profile", "driver", "status"),
            _doubling(0.1, 14),
        )
        self.preemption_attempts = CounterMetric(
            "scheduler_preemption_attempts_total", "Attempts to make room for a pod by preemption.", ()
        )
        self.preemption_victims = HistogramMetric(
            "scheduler_preemption_victims", "Pods that are evicted for one pod.", (), (1, 2, 4, 8, 16, 32, 64)
        )
        self.group_preemption_attempts = CounterMetric(
            "scheduler_workload_preemption_attempts_total",
            "Attempts to make room for a group of pods by preemption: Success, Unschedulable.",
            ("result",),
        )
        self.group_preemption_victims = HistogramMetric(
            "scheduler_workload_preemption_victims",
            "Pods that are evicted for one group of pods.",
            (),
            _doubling(1, 11),
        )
        self.disrupted_groups = HistogramMetric(
            "scheduler_preemption_workload_disruptions",
            "Groups of pods that a preemption evicts as a whole, for a pod or a podgroup.",
            ("preemptor",),
            _doubling(1, 7),
        )
        self._pending = GaugeMetric(
            "scheduler_pending_pods",
            "Pending pods by queue.",
            ("queue",),
            lambda: [((queue,), count) for queue, count in self.queued().items()],
        )
        self._unschedulable = GaugeMetric(
            "scheduler_unschedulable_pods",
            "Parked pods by the plugin that rejected them.",
            ("plugin", "profile"),
            lambda: list(self.rejected().items()),
        )
        self._idle_devices = GaugeMetric(
            "dralloc_idle_devices",
            "Idle devices; a share counts as a part of a device.",
            ("driver",),
            lambda: [((driver,), each.idle / WHOLE) for driver, each in self.idle().items()],
        )
        self._stranded_devices = GaugeMetric(
            "dralloc_stranded_devices",
            "The part of the idle devices that no typical pod can use, by cause.",
            ("driver", "cause"),
            lambda: [
                ((driver, cause.value), amount / WHOLE)
                for driver, each in self.idle().items()
                for cause, amount in each.stranded.items()
            ],
        )

    def devices_took(self, step: str, status: str, seconds: float) -> None:
        self.plugin_duration.observe("DynamicResources", step, status, value=seconds)

    def all(self) -> tuple[Metric, ...]:
        return (
            self.attempts,
            self.attempt_duration,
            self.decision_duration,
            self.group_attempts,
            self.group_attempt_duration,
            self.group_decision_duration,
            self.placements,
            self.placement_evaluations,
            self.placement_evaluation_duration,
            self.plugin_duration,
            self.pod_duration,
            self.pod_attempts,
            self.incoming,
            self.allocations,
            self.claims_created,
            self.binding_conditions,
            self.binding_conditions_wait,
            self.preemption_attempts,
            self.preemption_victims,
            self.group_preemption_attempts,
            self.group_preemption_victims,
            self.disrupted_groups,
            self._pending,
            self._unschedulable,
            self._idle_devices,
            self._stranded_devices,
        )

    def text(self) -> str:
        return exposition(self.all())
