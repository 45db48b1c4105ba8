"""Which pods can be moved to make room, and why others cannot.

A pod is moved by eviction: its controller creates it again, and the scheduler places it. Pods that share a claim are moved
together or not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dralloc.answers.api_refusals import priority_classes, priority_of
from dralloc.answers.cluster_objects import ClusterObjects, exists
from dralloc.answers.drain import why_left_alone
from dralloc.client.typed_resource import key_of
from dralloc.devices.identity import ClaimId
from dralloc.kube.pod_claims import claims_of, controller_of, is_held_by_workload, is_pod
from dralloc.kube.pod_v1 import PENDING, SAFE_TO_EVICT, Pod
from dralloc.kube.policy_v1 import PodDisruptionBudget, budgets_of
from dralloc.kube.resource_v1 import ResourceClaim
from dralloc.kube.scheduling_v1 import USERS_HIGHEST
from dralloc.scheduler.decide.node_fit import names_in

LOST: Final = "no controller creates it again: it would be lost (--bare-pods moves it all the same)"


@dataclass(frozen=True, slots=True)
class MoveRules:
    """`priority_max` is that of the pods that a place is made for."""

    scheduler_names: Collection[str]
    priority_max: int = USERS_HIGHEST
    bare_pods: bool = False


@dataclass(frozen=True, slots=True)
class MoveUnit:
    """Pods that are moved together: one, or all that share claims."""

    pods: tuple[Pod, ...]
    priority: int

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(pod.spec.node_name for pod in self.pods)


@dataclass(frozen=True, slots=True)
class FixedPod:
    pod: Pod
    reason: str


def sort_pods(objects: ClusterObjects, rules: MoveRules) -> tuple[tuple[MoveUnit, ...], tuple[FixedPod, ...]]:
    """The units that can be moved, those of low priority first, and the other pods that have a node."""
    return _Sorter(objects, rules).sort()


class _Sorter:
    def __init__(self, objects: ClusterObjects, rules: MoveRules) -> None:
        self._objects = objects
        self._rules = rules
        self._classes = priority_classes(objects)
        pods = objects.all(Pod).values()
        self._placed = [pod for pod in pods if pod.spec.node_name and not pod.is_finished]
        self._budgets = {
            each: each.allowed_of(self._placed) for each in map(_ByIdentity, objects.all(PodDisruptionBudget).values())
        }
        self._users: dict[ClaimId, list[Pod]] = {}
        for pod in self._placed:
            for use in claims_of(pod):
                self._users.setdefault(ClaimId(pod.metadata.namespace, use.claim), []).append(pod)

    def sort(self) -> tuple[tuple[MoveUnit, ...], tuple[FixedPod, ...]]:
        units: list[MoveUnit] = []
        fixed: list[FixedPod] = []
        for pods in self._groups():
            reasons = {str(key_of(pod)): self._reason(pod) for pod in pods}
            staying = next((name for name, reason in reasons.items() if reason), "")
            shared = self._budget_reason(pods) if not staying else ""
            if not staying and not shared:
                units.append(MoveUnit(tuple(pods), max(priority_of(pod, self._classes) for pod in pods)))
                continue
            for pod in pods:
                told = reasons[str(key_of(pod))] or shared
                fixed.append(FixedPod(pod, told or f"it shares claims with pod {staying}: {reasons[staying]}"))
        units.sort(key=lambda unit: (unit.priority, len(unit.pods), str(key_of(unit.pods[0]))))
        return tuple(units), tuple(fixed)

    def _groups(self) -> Iterator[list[Pod]]:
        """Pods that share claims, directly or by way of other pods."""
        seen: set[str] = set()
        for first in self._placed:
            if str(key_of(first)) in seen:
                continue
            seen.add(str(key_of(first)))
            group, position = [first], 0
            while position < len(group):
                pod, position = group[position], position + 1
                for use in claims_of(pod):
                    for other in self._users[ClaimId(pod.metadata.namespace, use.claim)]:
                        if str(key_of(other)) not in seen:
                            seen.add(str(key_of(other)))
                            group.append(other)
            yield group

    def _reason(self, pod: Pod) -> str:
        """Why the pod cannot be moved; empty if it can."""
        spec, priority = pod.spec, priority_of(pod, self._classes)
        if pod.is_terminating:
            return "it is being deleted already"
        if stays := why_left_alone(pod):
            return stays
        if controller_of(pod.metadata) is None and not self._rules.bare_pods:
            return LOST
        if spec.scheduler_name and spec.scheduler_name not in self._rules.scheduler_names:
            return f"another scheduler would place it again: {spec.scheduler_name}"
        if exists(pod) and pod.status.phase == PENDING:
            return "it is starting: its devices are being prepared on the node"
        if priority > self._rules.priority_max:
            return f"its priority {priority} is above {self._rules.priority_max}"
        if spec.scheduling_group is not None:
            return "it belongs to a group of pods that run together"
        if pod.metadata.annotations.get(SAFE_TO_EVICT) == "false":
            return f"its annotation {SAFE_TO_EVICT} is false"
        return next(filter(None, (self._claim_reason(pod, use.claim) for use in claims_of(pod))), "")

    def _claim_reason(self, pod: Pod, name: str) -> str:
        claim = self._objects.all(ResourceClaim).get((pod.metadata.namespace, name))
        subject = f"claim {pod.metadata.namespace}/{name}"
        if claim is None or claim.status.allocation is None:
            return f"{subject} has no devices"
        allocation = claim.status.allocation
        if any(result.admin_access for result in allocation.devices.results):
            return f"{subject} has admin access to devices that others use"
        if is_held_by_workload(claim):
            return f"{subject} is reserved for a workload, whose other pods are not listed"
        if allocation.node_selector is None or names_in(allocation.node_selector) is None:
            return f"{subject} has devices that are not part of one node: a move does not free them"
        known = {user.metadata.uid for user in self._users[ClaimId.of(claim)]}
        others = [each.name for each in claim.status.reserved_for if is_pod(each) and each.uid not in known]
        if others:
            return f"{subject} is still reserved for pod {others[0]}, which has no node or has ended"
        return ""

    def _budget_reason(self, pods: Iterable[Pod]) -> str:
        used: dict[_ByIdentity, int] = {}
        for pod in pods:
            found = [each for each in self._budgets if budgets_of(pod, [each.budget])]
            if len(found) > 1:
                return f"pod {key_of(pod)} has more than one disruption budget, which evictions do not support"
            for each in found:
                used[each] = used.get(each, 0) + each.budget.protects(pod)
        for each, count in used.items():
            if count > self._budgets[each]:
                return f"disruption budget {each.budget.metadata.name} allows {self._budgets[each]} more disruptions"
        return ""


@dataclass(frozen=True, slots=True, eq=False)
class _ByIdentity:
    """A budget as a key."""

    budget: PodDisruptionBudget

    def allowed_of(self, pods: Collection[Pod]) -> int:
        return self.budget.allowed_of(pods)


def reasons_by_count(fixed: Iterable[FixedPod]) -> Mapping[str, list[Pod]]:
    """The pods that stay, by reason, the most frequent first."""
    found: dict[str, list[Pod]] = {}
    for each in fixed:
        found.setdefault(each.reason, []).append(each.pod)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))
