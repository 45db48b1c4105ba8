"""The scheduler's metrics, with Kubernetes' names so that existing dashboards work.

The label `prioritized_list` is our addition: it is `true` for claims with alternatives (KEP-4816).
"""

# ruff: noqa: RUF009
# The calls in the table of metrics make fields; instances share no metric.

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from dralloc.client.unreadable_objects import UNREADABLE_OBJECTS
from dralloc.primitives.metrics import CounterMetric, GaugeMetric, HistogramMetric, LabelValues, Metric, exposition
from dralloc.primitives.quantity import NANOS
from dralloc.scheduler.report.device_totals import CapacityTotals, DriverTotals
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


def _counter(name: str, help_text: str, labels: tuple[str, ...]) -> CounterMetric:
    made: CounterMetric = field(default_factory=lambda: CounterMetric(name, help_text, labels))
    return made


def _histogram(name: str, help_text: str, labels: tuple[str, ...], buckets: tuple[float, ...]) -> HistogramMetric:
    made: HistogramMetric = field(default_factory=lambda: HistogramMetric(name, help_text, labels, buckets))
    return made


@dataclass(eq=False)
class SchedulerMetrics:
    """Lives as long as the process. The label `profile` is the pod's `schedulerName`."""

    attempts: CounterMetric = _counter(
        "scheduler_schedule_attempts_total", "Scheduling attempts by result.", ("result", "profile")
    )
    attempt_duration: HistogramMetric = _histogram(
        "scheduler_scheduling_attempt_duration_seconds",
        "Duration of an attempt, from the decision to the binding or the rejection.",
        ("result", "profile"),
        _doubling(0.001, 15),
    )
    decision_duration: HistogramMetric = _histogram(
        "scheduler_scheduling_algorithm_duration_seconds",
        "Duration of a scheduling decision.",
        (),
        _doubling(0.001, 15),
    )
    group_attempts: CounterMetric = _counter(
        "scheduler_podgroup_schedule_attempts_total",
        "Scheduling attempts for groups of pods, by result.",
        ("result", "profile"),
    )
    group_attempt_duration: HistogramMetric = _histogram(
        "scheduler_podgroup_scheduling_attempt_duration_seconds",
        "Duration of an attempt for a group of pods, until its pods are bound or rejected.",
        ("result", "profile"),
        _doubling(0.001, 15),
    )
    group_decision_duration: HistogramMetric = _histogram(
        "scheduler_podgroup_scheduling_algorithm_duration_seconds",
        "Duration of a decision about a group of pods.",
        (),
        _doubling(0.001, 15),
    )
    placements: CounterMetric = _counter(
        "scheduler_generated_placements_total",
        "Values of a topology key that groups of pods were tried with.",
        ("profile",),
    )
    placement_evaluations: CounterMetric = _counter(
        "scheduler_placement_evaluations_total",
        "Attempts to place a group of pods on the nodes with one value of its topology key: feasible or infeasible.",
        ("result", "profile"),
    )
    placement_evaluation_duration: HistogramMetric = _histogram(
        "scheduler_placement_evaluation_duration_seconds",
        "Duration of an attempt to place a group of pods on the nodes with one value of its topology key.",
        ("result", "profile"),
        _doubling(0.001, 15),
    )
    plugin_duration: HistogramMetric = _histogram(
        "scheduler_plugin_execution_duration_seconds",
        "Duration of the device steps of pods with claims: gathering state (PreFilter), allocating (Filter), deallocating (PostFilter), writing claims (PreBind).",
        ("plugin", "extension_point", "status"),
        tuple(1e-5 * 1.5**exponent for exponent in range(20)),
    )
    pod_duration: HistogramMetric = _histogram(
        "scheduler_pod_scheduling_sli_duration_seconds",
        "Duration from the first sight of a pod to its binding.",
        ("attempts",),
        _doubling(0.01, 20),
    )
    pod_attempts: HistogramMetric = _histogram(
        "scheduler_pod_scheduling_attempts", "Attempts needed to schedule a pod.", (), (1, 2, 4, 8, 16)
    )
    incoming: CounterMetric = _counter(
        "scheduler_queue_incoming_pods_total", "Pods added to a queue, by queue and event.", ("queue", "event")
    )
    allocations: CounterMetric = _counter(
        "scheduler_dra_claim_allocations_total",
        "Claim allocations by result; success: the pod was bound.",
        ("result", "prioritized_list"),
    )
    claims_created: CounterMetric = _counter(
        "dynamic_resource_allocation_resourceclaim_creates_total",
        "Created claims and failed attempts.",
        ("status", "admin_access", "owner_api_group", "owner_api_kind", "prioritized_list"),
    )
    binding_conditions: CounterMetric = _counter(
        "scheduler_dra_bindingconditions_allocations_total",
        "Allocated devices with binding conditions, by outcome.",
        ("profile", "driver", "status"),
    )
    binding_conditions_wait: HistogramMetric = _histogram(
        "scheduler_dra_bindingconditions_wait_duration_seconds",
        "Duration of the wait for binding conditions.",
        ("profile", "driver", "status"),
        _doubling(0.1, 14),
    )
    preemption_attempts: CounterMetric = _counter(
        "scheduler_preemption_attempts_total", "Attempts to make room for a pod by preemption.", ()
    )
    preemption_victims: HistogramMetric = _histogram(
        "scheduler_preemption_victims", "Pods that are evicted for one pod.", (), (1, 2, 4, 8, 16, 32, 64)
    )
    group_preemption_attempts: CounterMetric = _counter(
        "scheduler_workload_preemption_attempts_total",
        "Attempts to make room for a group of pods by preemption: Success, Unschedulable.",
        ("result",),
    )
    group_preemption_victims: HistogramMetric = _histogram(
        "scheduler_workload_preemption_victims",
        "Pods that are evicted for one group of pods.",
        (),
        _doubling(1, 11),
    )
    disrupted_groups: HistogramMetric = _histogram(
        "scheduler_preemption_workload_disruptions",
        "Groups of pods that a preemption evicts as a whole, for a pod or a podgroup.",
        ("preemptor",),
        _doubling(1, 7),
    )
    # Pods by place in the queue, and parked pods by plugin and profile. Set by the scheduler of the current term.
    queued: Callable[[], Mapping[str, int]] = dict
    rejected: Callable[[], Mapping[tuple[str, str], int]] = dict
    # By driver, in thousandths of a device. Set by the scheduler of the current term.
    idle: Callable[[], Mapping[str, IdleDevices]] = dict
    # Waiting pods by reason and profile, devices by driver. Set by the scheduler of the current term.
    waiting: Callable[[], Mapping[tuple[str, str], int]] = dict
    totals: Callable[[], Mapping[str, DriverTotals]] = dict
    # Brings `idle` and `totals` up to date in small steps. Set by the scheduler of the current term.
    follow: Callable[[], Iterable[None]] = tuple

    def devices_took(self, step: str, status: str, seconds: float) -> None:
        self.plugin_duration.observe("DynamicResources", step, status, value=seconds)

    def all(self) -> tuple[Metric, ...]:
        counted = (each for each in vars(self).values() if isinstance(each, CounterMetric | HistogramMetric))
        return (*counted, *self._gauges(), UNREADABLE_OBJECTS)

    def text(self) -> str:
        return exposition(self.all())

    def _device_gauges(self) -> Iterator[GaugeMetric]:
        counts: tuple[tuple[str, str, Callable[[DriverTotals], int]], ...] = (
            ("dralloc_devices", "Devices of ready pools.", lambda each: each.devices),
            (
                "dralloc_free_devices",
                "Devices that no claim has, and of which one more claim can get each.",
                lambda each: each.free,
            ),
            ("dralloc_device_shares", "Shares of devices that claims have.", lambda each: each.shares),
        )
        for name, help_text, count in counts:
            yield GaugeMetric(name, help_text, ("driver",), partial(self._by_driver, count))
        unit = "in its unit, such as bytes. A driver has at most 100 series"
        amounts: tuple[tuple[str, str, Callable[[CapacityTotals], int | None]], ...] = (
            ("dralloc_capacity", f"What devices have of a capacity or counter, {unit}.", lambda each: each.value),
            ("dralloc_available_capacity", f"What is available of it to claims, {unit}.", lambda each: each.free),
            (
                "dralloc_largest_fit",
                f"The most of a capacity that one more request can get of one device, {unit}.",
                lambda each: each.largest,
            ),
        )
        for name, help_text, amount in amounts:
            yield GaugeMetric(name, help_text, ("driver", "capacity"), partial(self._by_capacity, amount))

    def _by_driver(self, count: Callable[[DriverTotals], int]) -> list[tuple[LabelValues, float]]:
        return [((driver,), count(each)) for driver, each in self.totals().items()]

    def _by_capacity(self, amount: Callable[[CapacityTotals], int | None]) -> list[tuple[LabelValues, float]]:
        return [
            ((driver, name), nanos / NANOS)
            for driver, each in self.totals().items()
            for name, capacity in each.capacities.items()
            if (nanos := amount(capacity)) is not None
        ]

    def _gauges(self) -> Iterator[GaugeMetric]:
        yield GaugeMetric(
            "scheduler_pending_pods",
            "Pending pods by queue.",
            ("queue",),
            lambda: [((queue,), count) for queue, count in self.queued().items()],
        )
        yield GaugeMetric(
            "scheduler_unschedulable_pods",
            "Parked pods by the plugin that rejected them.",
            ("plugin", "profile"),
            lambda: list(self.rejected().items()),
        )
        yield GaugeMetric(
            "dralloc_waiting_pods",
            "Pods without a node since their last attempt, by what comes nearest: a reason of nodes, or what else they lack.",
            ("reason", "profile"),
            lambda: list(self.waiting().items()),
        )
        yield from self._device_gauges()
        yield GaugeMetric(
            "dralloc_idle_devices",
            "Idle devices; a share counts as a part of a device.",
            ("driver",),
            lambda: [((driver,), each.idle / WHOLE) for driver, each in self.idle().items()],
        )
        yield GaugeMetric(
            "dralloc_stranded_devices",
            "The part of the idle devices that no typical pod can use, by cause.",
            ("driver", "cause"),
            lambda: [
                ((driver, cause.value), amount / WHOLE)
                for driver, each in self.idle().items()
                for cause, amount in each.stranded.items()
            ],
        )
