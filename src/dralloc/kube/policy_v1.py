"""`policy/v1`: pod disruption budgets, and what they allow.

A disruption controller counts disruptions in the status of a budget. A budget that none has looked at limits no eviction; what its
specification would allow can be computed from the pods (`allowed_of`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fractions import Fraction
from math import ceil
from typing import Final

from msgspec import field

from dralloc.kube.meta_v1 import ApiObject, LabelSelector
from dralloc.kube.pod_v1 import FAILED, PENDING, SUCCEEDED, Pod
from dralloc.kube.wire import Int64, Time, Wire
from dralloc.primitives.whole_numbers import whole_number

GROUP: Final = "policy"
ALWAYS_ALLOW: Final = "AlwaysAllow"


class PodDisruptionBudgetSpec(Wire):
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    # Without a selector, no pod is selected.
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(Wire):
    # None: no controller has counted yet.
    observed_generation: Int64 | None = None
    # 32 bits in Kubernetes; the server that stores budgets knows no widths.
    disruptions_allowed: Int64 = 0
    current_healthy: Int64 = 0
    desired_healthy: Int64 = 0
    expected_pods: Int64 = 0
    disrupted_pods: dict[str, Time] = field(default_factory=dict)


class PodDisruptionBudget(ApiObject):
    spec: PodDisruptionBudgetSpec = field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = field(default_factory=PodDisruptionBudgetStatus)

    def selects(self, pod: Pod) -> bool:
        selector = self.spec.selector
        is_near = pod.metadata.namespace == self.metadata.namespace
        return selector is not None and is_near and selector.selects(pod.metadata.labels)

    @property
    def is_counted(self) -> bool:
        """True if a controller has counted; the budget limits evictions only then."""
        return self.status.observed_generation is not None

    @property
    def is_stale(self) -> bool:
        """True if no controller has counted since the specification changed: then nothing may be evicted."""
        return (self.status.observed_generation or 0) < (self.metadata.generation or 0)

    def protects(self, pod: Pod) -> bool:
        """False for a pod that is not ready and may therefore be evicted, whatever the budget allows."""
        if is_ready(pod):
            return True
        if self.spec.unhealthy_pod_eviction_policy == ALWAYS_ALLOW:
            return False
        return not 0 < self.status.desired_healthy <= self.status.current_healthy

    def allowed_of(self, pods: Collection[Pod]) -> int:
        """The disruptions that the controller allows; where none has counted, those that the specification allows of the pods."""
        if self.is_counted:
            return 0 if self.is_stale else max(self.status.disruptions_allowed, 0)
        selected = [pod for pod in pods if self.selects(pod) and not pod.is_finished]
        healthy = sum(bool(pod.spec.node_name) and not pod.is_terminating for pod in selected)
        if self.spec.max_unavailable is not None:
            desired = len(selected) - _number(self.spec.max_unavailable, len(selected))
        else:
            desired = _number(self.spec.min_available or 0, len(selected))
        return max(healthy - desired, 0)


def budgets_of(pod: Pod, budgets: Iterable[PodDisruptionBudget]) -> list[PodDisruptionBudget]:
    """The budgets that an eviction of the pod has to respect; none for a pod that does not run or is being deleted."""
    if pod.is_terminating or pod.status.phase in (PENDING, SUCCEEDED, FAILED):
        return []
    return [budget for budget in budgets if budget.selects(pod)]


def is_ready(pod: Pod) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)


def _number(amount: int | str, total: int) -> int:
    """A number, or a percentage of the total, rounded up; 0 for text that is neither."""
    if isinstance(amount, int):
        return amount
    digits = amount.removesuffix("%")
    if not digits.isdecimal() or not amount.endswith("%"):
        return 0
    percent = whole_number(digits)
    # Of more than everything, there is no more to keep.
    return ceil(Fraction(percent * total, 100)) if percent is not None else total
