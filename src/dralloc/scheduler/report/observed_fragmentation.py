"""The fragmentation that the metrics show: typical are the pods that the scheduler has placed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from dralloc.allocator.features import Features
from dralloc.api.pod_v1 import Pod
from dralloc.scheduler.contract import Decision, Placement
from dralloc.scheduler.decide.cycle import SchedulingAttempt
from dralloc.scheduler.decide.typical_pods import TypicalPods
from dralloc.scheduler.report.fragmentation import Fragmentation
from dralloc.scheduler.report.stranded_devices import IdleDevices
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.scheduler.state.placed_pods import claims_used_by


class ObservedFragmentation:
    """`pods` are those that exist; they are looked at once, for what was placed in earlier terms."""

    def __init__(self, cluster: ClusterState, features: Features, pods: Callable[[], Iterable[Pod]]) -> None:
        self._cluster = cluster
        self._features = features.of_scheduler()
        self._pods: Callable[[], Iterable[Pod]] | None = pods
        self._typical = TypicalPods()
        self._fragmentation = Fragmentation(cluster, self._features)

    def decided(self, attempt: SchedulingAttempt, decision: Decision) -> None:
        if self._pods is None and isinstance(decision, Placement) and attempt.claims.unallocated:
            self._typical.observe(attempt.key, attempt.table.requirements, attempt.claims.unallocated)

    def by_driver(self) -> Mapping[str, IdleDevices]:
        """What changed since the last time is computed again; everything, if other pods are typical now."""
        if self._pods is not None:
            for pod in self._pods():
                claims = filter(None, map(self._cluster.find_claim, claims_used_by(pod)))
                self._typical.count(pod, claims, self._cluster.classes, self._features)
            self._pods = None
        if (top := self._typical.top()) != self._fragmentation.typical:
            self._fragmentation.typical = top
        return self._fragmentation.by_driver()
