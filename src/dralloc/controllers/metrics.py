"""Metrics of the controllers, with the names of the KEPs and of Kubernetes 1.37."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from dralloc.client.unreadable_objects import UNREADABLE_OBJECTS
from dralloc.kube.pod_claims import EXTENDED_RESOURCE_CLAIM, POD_CLAIM_NAME
from dralloc.kube.resource_v1 import ResourceClaim, ResourceClaimSpec
from dralloc.primitives.metrics import CounterMetric, GaugeMetric, HistogramMetric, LabelValues, Metric, exposition

# 10 ns to 10 s in powers of ten: the buckets of Kubernetes' work queues.
QUEUE_BUCKETS_S: Final = tuple(10.0**exponent for exponent in range(-8, 2))
EVICTION_BUCKETS_S: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0)


class SpecLabels(NamedTuple):
    """Labels from a claim's spec; `prioritized_list` is defined by KEP-4816."""

    admin_access: str
    prioritized_list: str

    @classmethod
    def of(cls, spec: ResourceClaimSpec) -> SpecLabels:
        requests = spec.devices.requests or ()
        is_admin = any(request.exactly is not None and request.exactly.admin_access for request in requests)
        return cls(_flag(is_admin), _flag(any(request.first_available for request in requests)))


class ClaimLabels(NamedTuple):
    """The labels of a claim in gauges of existing claims."""

    allocated: str
    admin_access: str
    source: str
    prioritized_list: str

    @classmethod
    def of(cls, claim: ResourceClaim) -> ClaimLabels:
        spec, annotations = SpecLabels.of(claim.spec), claim.metadata.annotations
        source = ""
        if POD_CLAIM_NAME in annotations:
            source = "resource_claim_template"
        elif annotations.get(EXTENDED_RESOURCE_CLAIM) == "true":
            source = "extended_resource"
        return cls(_flag(claim.status.allocation is not None), spec.admin_access, source, spec.prioritized_list)


class QueueReading(NamedTuple):
    """The state of a work queue: the number of waiting keys, and how long each key has been processed."""

    name: str
    waiting: int
    working_s: Sequence[float]


class QueueMetrics:
    """Metrics of all work queues. Queues of the same name are reported together."""

    def __init__(self) -> None:
        self.adds = CounterMetric("workqueue_adds_total", "Keys added.", ("name",))
        self.retries = CounterMetric("workqueue_retries_total", "Keys retried after a failure.", ("name",))
        self.waited = HistogramMetric(
            "workqueue_queue_duration_seconds", "Time that keys waited in the queue.", ("name",), QUEUE_BUCKETS_S
        )
        self.worked = HistogramMetric(
            "workqueue_work_duration_seconds", "Time that keys took to process.", ("name",), QUEUE_BUCKETS_S
        )
        self.readings: list[Callable[[], QueueReading]] = []

    def all(self) -> Iterator[Metric]:
        yield from (self.adds, self.retries, self.waited, self.worked)
        yield self._gauge("workqueue_depth", "Keys waiting.", lambda reading: reading.waiting, sum)
        yield self._gauge(
            "workqueue_unfinished_work_seconds",
            "Time spent so far on keys being processed.",
            lambda reading: sum(reading.working_s),
            sum,
        )
        yield self._gauge(
            "workqueue_longest_running_processor_seconds",
            "Time spent so far on the oldest key being processed.",
            lambda reading: max(reading.working_s, default=0.0),
            max,
        )

    def _gauge(
        self,
        name: str,
        help_text: str,
        measure: Callable[[QueueReading], float],
        join: Callable[[list[float]], float],
    ) -> GaugeMetric:
        def read() -> Iterable[tuple[LabelValues, float]]:
            by_name: dict[str, list[float]] = {}
            for reading in self.readings:
                current = reading()
                by_name.setdefault(current.name, []).append(measure(current))
            return [((name,), join(values)) for name, values in by_name.items()]

        return GaugeMetric(name, help_text, ("name",), read)


class ControllerMetrics:
    """Lives as long as the process, across terms of leadership."""

    def __init__(self) -> None:
        self.queues = QueueMetrics()
        self.creates = CounterMetric(
            "resourceclaim_controller_create_total", "Claims created from templates.", ("prioritized_list",)
        )
        self.create_failures = CounterMetric(
            "resourceclaim_controller_create_failures_total", "Claims that could not be created.", ("prioritized_list",)
        )
        self.create_attempts = CounterMetric(
            "dynamic_resource_allocation_resourceclaim_creates_total",
            "Created claims and failed attempts.",
            ("status", "admin_access", "owner_api_group", "owner_api_kind", "prioritized_list"),
        )
        self.evictions = CounterMetric(
            "device_taint_eviction_controller_pod_deletions_total", "Pods deleted because of tainted devices."
        )
        self.eviction_delays = HistogramMetric(
            "device_taint_eviction_controller_pod_deletion_duration_seconds",
            "Time from the moment when a pod had to be evicted until it was deleted.",
            buckets=EVICTION_BUCKETS_S,
        )
        prefix = "resourcepoolstatusrequest_controller"
        self.pool_status_processed = CounterMetric(
            f"{prefix}_requests_processed_total", "Answered requests for the status of pools.", ("driver_name",)
        )
        self.pool_status_errors = CounterMetric(
            f"{prefix}_request_processing_errors_total", "Answers that could not be written.", ("driver_name",)
        )
        self.pool_status_duration = HistogramMetric(
            f"{prefix}_request_processing_duration_seconds",
            "Time that an answer took to compute.",
            ("driver_name",),
            QUEUE_BUCKETS_S,
        )
        self.node_evictions = CounterMetric(
            "node_collector_evictions_total", "Nodes that got a taint that evicts pods.", ("zone",)
        )
        self.node_taint_evictions = CounterMetric(
            "taint_eviction_controller_pod_deletions_total", "Pods deleted because of taints of their nodes."
        )
        self.collected_pods = CounterMetric(
            "pod_gc_collector_force_delete_pods_total", "Pods deleted because no node would end them.", ("reason",)
        )
        # The labels of all claims; set by the claim lifecycle controller.
        self.claims: Callable[[], Iterable[ClaimLabels]] = tuple

    def claim_created(self, labels: SpecLabels, *, owner_group: str, owner_kind: str) -> None:
        self.creates.add(labels.prioritized_list)
        self.create_attempts.add("success", labels.admin_access, owner_group, owner_kind, labels.prioritized_list)

    def claim_refused(self, labels: SpecLabels, *, owner_group: str, owner_kind: str) -> None:
        self.create_failures.add(labels.prioritized_list)
        self.create_attempts.add("failure", labels.admin_access, owner_group, owner_kind, labels.prioritized_list)

    def all(self) -> tuple[Metric, ...]:
        return (
            *self.queues.all(),
            UNREADABLE_OBJECTS,
            self.creates,
            self.create_failures,
            self.create_attempts,
            *self._claim_gauges(),
            self.evictions,
            self.eviction_delays,
            self.pool_status_processed,
            self.pool_status_errors,
            self.pool_status_duration,
            self.node_evictions,
            self.node_taint_evictions,
            self.collected_pods,
        )

    def text(self) -> str:
        return exposition(self.all())

    def _claim_gauges(self) -> Iterator[GaugeMetric]:
        """Counted when the metrics are read."""
        claims = Counter(self.claims())
        total: Counter[LabelValues] = Counter()
        allocated: Counter[LabelValues] = Counter()
        for labels, count in claims.items():
            total[(labels.prioritized_list,)] += count
            allocated[(labels.prioritized_list,)] += count if labels.allocated == "true" else 0
        yield GaugeMetric(
            "resourceclaim_controller_resource_claims", "Claims that exist.", ("prioritized_list",), total.items
        )
        yield GaugeMetric(
            "resourceclaim_controller_allocated_resource_claims",
            "Claims that are allocated.",
            ("prioritized_list",),
            allocated.items,
        )
        yield GaugeMetric(
            "dynamic_resource_allocation_resource_claims",
            "Existing claims by allocation state and source.",
            ClaimLabels._fields,
            claims.items,
        )


def _flag(value: bool) -> str:
    return "true" if value else "false"
