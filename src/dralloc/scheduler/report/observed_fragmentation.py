"""The fragmentation that the metrics show: typical are the pods that the scheduler has placed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping

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
    """`pods` are those that exist; they are counted once, for what was placed in earlier terms."""

    def __init__(self, cluster: ClusterState, features: Features, pods: Callable[[], Iterable[Pod]]) -> None:
        self._cluster = cluster
        self._features = features.of_scheduler()
        self._pods = pods
        # Of the pods that existed when it was first asked; None before.
        self._uncounted: deque[Pod] | None = None
        self._typical = TypicalPods()
        self._fragmentation = Fragmentation(cluster, self._features)

    def decided(self, attempt: SchedulingAttempt, decision: Decision) -> None:
        if self._uncounted is not None and isinstance(decision, Placement) and attempt.claims.unallocated:
            self._typical.observe(attempt.key, attempt.table.requirements, attempt.claims.unallocated)

    def by_driver(self) -> Mapping[str, IdleDevices]:
        for _ in self.follow():
            pass
        return self._fragmentation.by_driver()

    def follow(self) -> Iterator[None]:
        """Take in what changed, one pod or place in each step; all places, if other pods are typical now."""
        if self._uncounted is None:
            self._uncounted = deque(self._pods())
        while self._uncounted:
            pod = self._uncounted.popleft()
            claims = filter(None, map(self._cluster.find_claim, claims_used_by(pod)))
            self._typical.count(pod, claims, self._cluster.classes, self._features)
            yield
        if (top := self._typical.top()) != self._fragmentation.typical:
            self._fragmentation.typical = top
        yield from self._fragmentation.follow()
