"""The disruption budgets of the cluster: preemption prefers victims that they allow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dralloc.kube.pod_v1 import Pod
from dralloc.kube.policy_v1 import PodDisruptionBudget
from dralloc.scheduler.state.cluster_events import ClusterEvent


class CountedBudgets:
    """The budgets at one moment, by number. `allowed` is how many disruptions each of them allows."""

    def __init__(self, budgets: Sequence[PodDisruptionBudget] = (), pods: Iterable[Pod] = ()) -> None:
        known = tuple(pods)
        self._by_namespace: dict[str, list[tuple[int, PodDisruptionBudget]]] = {}
        for number, budget in enumerate(budgets):
            self._by_namespace.setdefault(budget.metadata.namespace, []).append((number, budget))
        self.allowed = tuple(budget.allowed_of(known) for budget in budgets)

    def of(self, pod: Pod) -> tuple[int, ...]:
        """The numbers of the budgets that an eviction of the pod uses up. One that it has used up already is not among them."""
        found = self._by_namespace.get(pod.metadata.namespace)
        if not found or not pod.metadata.labels:
            return ()
        name = pod.metadata.name
        return tuple(
            number for number, budget in found if name not in budget.status.disrupted_pods and budget.selects(pod)
        )


class WatchedBudgets:
    def __init__(self) -> None:
        self._budgets: dict[tuple[str, str], PodDisruptionBudget] = {}
        self.revision = 0

    def changed(
        self, before: PodDisruptionBudget | None, after: PodDisruptionBudget | None
    ) -> tuple[ClusterEvent, ...]:
        """A budget never keeps a pod from its node, so no pod waits for one."""
        self.revision += 1
        for budget in filter(None, (before, after)):
            self._budgets.pop((budget.metadata.namespace, budget.metadata.name), None)
        if after is not None:
            self._budgets[after.metadata.namespace, after.metadata.name] = after
        return ()

    def count(self, pods: Iterable[Pod]) -> CountedBudgets:
        """`pods` are all pods that have a node."""
        return CountedBudgets(tuple(self._budgets.values()), pods if self._budgets else ())
