"""What the controllers count, by the names that dashboards know: those of the KEPs, and those of Kubernetes 1.37."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from dralloc.api.pod_claims import EXTENDED_RESOURCE_CLAIM, POD_CLAIM_NAME
from dralloc.api.resource_v1 import ResourceClaim, ResourceClaimSpec
from dralloc.primitives.metrics import CounterMetric, GaugeMetric, HistogramMetric, LabelValues, Metric, exposition

# Seconds: 10 ns to 10 s in steps of ten, as Kubernetes has them for every work queue.
QUEUE_BUCKETS_S: Final = tuple(10.0**exponent for exponent in range(-8, 2))
EVICTION_BUCKETS_S: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0)


class SpecLabels(NamedTuple):
    """What dashboards tell claims apart by; the second is what KEP-4816 promises."""

    admin_access: str
    prioritized_list: str

    @classmethod
    def of(cls, spec: ResourceClaimSpec) -> SpecLabels:
        requests = spec.devices.requests or ()
        is_admin = any(request.exactly is not None and request.exactly.admin_access for request in requests)
        return cls(_flag(is_admin), _flag(any(request.first_available for request in requests)))


class ClaimLabels(NamedTuple):
    """How a claim is counted among those that exist."""

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
    """A work queue at this moment: how many keys wait, and how long each key in work has been there."""

    name: str
    waiting: int
    working_s: Sequence[float]


class QueueMetrics:
    """Of all work queues. Several may have one name: they are then one to whoever looks."""

    def __init__(self) -> None:
        self.adds = CounterMetric("workqueue_adds_total", "Keys that were added.", ("name",))
        self.retries = CounterMetric("workqueue_retries_total", "Keys that came back after a failure.", ("name",))
        self.waited = HistogramMetric(
            "workqueue_queue_duration_seconds", "How long keys waited.", ("name",), QUEUE_BUCKETS_S
        )
        self.worked = HistogramMetric(
            "workqueue_work_duration_seconds", "How long keys took.", ("name",), QUEUE_BUCKETS_S
        )
        self.readings: list[Callable[[], QueueReading]] = []

    def all(self) -> Iterator[Metric]:
        yield from (self.adds, self.retries, self.waited, self.worked)
        yield self._gauge("workqueue_depth", "Keys that wait.", lambda reading: reading.waiting, sum)
        yield self._gauge(
            "workqueue_unfinished_work_seconds",
            "Time spent so far on keys in work.",
            lambda reading: sum(reading.working_s),
            sum,
        )
        yield self._gauge(
            "workqueue_longest_running_processor_seconds",
            "Time spent so far on the oldest of them.",
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
    """One of these lives as long as the process, however often it comes to be in charge."""

    def __init__(self) -> None:
        self.queues = QueueMetrics()
        self.creates = CounterMetric(
            "resourceclaim_controller_create_total", "Claims made from templates.", ("prioritized_list",)
        )
        self.create_failures = CounterMetric(
            "resourceclaim_controller_create_failures_total", "Claims that could not be made.", ("prioritized_list",)
        )
        self.create_attempts = CounterMetric(
            "dynamic_resource_allocation_resourceclaim_creates_total",
            "Claims made, and attempts that failed.",
            ("status", "admin_access", "owner_api_group", "owner_api_kind", "prioritized_list"),
        )
        self.evictions = CounterMetric(
            "device_taint_eviction_controller_pod_deletions_total", "Pods deleted because of tainted devices."
        )
        self.eviction_delays = HistogramMetric(
            "device_taint_eviction_controller_pod_deletion_duration_seconds",
            "From the moment when a pod had to go until it was deleted.",
            buckets=EVICTION_BUCKETS_S,
        )
        # Every claim there is, as it is counted; set by whoever watches claims.
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
            self.creates,
            self.create_failures,
            self.create_attempts,
            *self._claim_gauges(),
            self.evictions,
            self.eviction_delays,
        )

    def text(self) -> str:
        return exposition(self.all())

    def _claim_gauges(self) -> Iterator[GaugeMetric]:
        """Counted when somebody looks."""
        claims = Tally(self.claims())
        total: Tally[LabelValues] = Tally()
        allocated: Tally[LabelValues] = Tally()
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
            "Claims that exist, by what became of them and where they come from.",
            ClaimLabels._fields,
            claims.items,
        )


def _flag(value: bool) -> str:
    return "true" if value else "false"
