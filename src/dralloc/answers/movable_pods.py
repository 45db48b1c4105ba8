"""Which pods can be moved to make room, and why others cannot.

A pod is moved by eviction: its controller creates it again, and the scheduler places it. Pods that share a claim are moved
together or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from dralloc.answers.api_refusals import priority_classes, priority_of
from dralloc.answers.cluster_objects import ClusterObjects, exists
from dralloc.answers.drain import released_claim, why_left_alone
from dralloc.answers.engine import Engine
from dralloc.answers.placements import PodPlacement
from dralloc.answers.scenario import taint_rule
from dralloc.answers.scheduler_state import replace_in, with_room
from dralloc.client.typed_resource import key_of
from dralloc.controllers.claim_lifecycle.plan import ConsumerFacts
from dralloc.devices.device_usage import devices_used
from dralloc.devices.identity import ClaimId, DeviceId
from dralloc.kube.core_v1 import Node, Taint
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.node_taints import NO_SCHEDULE
from dralloc.kube.pod_claims import claims_of, controller_of, is_held_by_workload, is_pod
from dralloc.kube.pod_v1 import PENDING, SAFE_TO_EVICT, Pod, PodStatus
from dralloc.kube.policy_v1 import PodDisruptionBudget, budgets_of
from dralloc.kube.resource_v1 import (
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintSelector,
    ResourceClaim,
    ResourceClaimStatus,
)
from dralloc.kube.scheduling_v1 import USERS_HIGHEST
from dralloc.scheduler.decide.node_fit import names_in
from dralloc.scheduler.state.placed_pods import claims_used_by

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


# --- Relocation -----------------------------------------------------------------------------------------------------
# Pods that leave their nodes and get others, tried on the state of an engine. Every change can be taken back.


# The taint on what is kept for the pods of a plan; the pods that a place is made for tolerate it on nodes.
HOLD_KEY: Final = "dralloc.io/defrag"


@dataclass(frozen=True, slots=True)
class PlaceHolds:
    """What other pods are kept from while a plan is applied."""

    nodes: frozenset[str] = frozenset()
    devices: frozenset[DeviceId] = frozenset()

    def __or__(self, other: PlaceHolds) -> PlaceHolds:
        return PlaceHolds(self.nodes | other.nodes, self.devices | other.devices)


class SearchLimit(Exception):
    """More decisions were asked for than allowed."""


class Relocation:
    """`decisions_max` bounds what may be asked; SearchLimit is raised then."""

    def __init__(self, engine: Engine, decisions_max: int) -> None:
        self.engine = engine
        self._decisions_max = decisions_max
        self._nodes = {node.metadata.name: with_room(node) for node in engine.objects.nodes}
        self._undo: list[Callable[[], object]] = []
        # Decisions that were asked for.
        self.decisions = 0

    def mark(self) -> int:
        """A point to go back to."""
        return len(self._undo)

    def back_to(self, mark: int) -> None:
        while len(self._undo) > mark:
            self._undo.pop()()

    # --- Pods -------------------------------------------------------------------------------------------------------------

    def evict(self, pods: Iterable[Pod]) -> tuple[Pod, ...]:
        """The pods leave their nodes together; returns those that their controllers create in their place."""
        pods = tuple(pods)
        gone = frozenset(pod.metadata.uid for pod in pods)
        claims = dict.fromkeys(claim_id for pod in pods for claim_id in claims_used_by(pod))
        for pod in pods:
            self._replace(pod, None)
        for claim_id in claims:
            claim = self.engine.cluster.find_claim(claim_id)
            if claim is not None:
                self._replace(claim, _after(claim, gone))
        return tuple(map(_created_again, pods))

    def place(self, pod: Pod, node: str = "") -> PodPlacement | None:
        """Gives the pod the node, or the one that the scheduler chooses; None if it does not fit. Raises SearchLimit."""
        if self.decisions >= self._decisions_max:
            raise SearchLimit
        self.decisions += 1
        asked = replace(pod, spec=replace(pod.spec, node_name=node)) if node else pod
        placement = self.engine.placement(asked)
        if placement is None:
            return None
        placed = self.engine.assume(pod, placement)
        claims = tuple(map(ClaimId.of, placed.claims))
        self._undo.append(lambda: self.engine.cluster.forget(pod, claims))
        return placed

    # --- PlaceHolds ------------------------------------------------------------------------------------------------------------

    def hold(self, holds: PlaceHolds) -> None:
        for name in sorted(holds.nodes):
            self._replace(self._nodes[name], _held(self._nodes[name]))
        for device in sorted(holds.devices):
            self._replace(None, device_hold(device))

    def use(self, claim: ResourceClaim) -> None:
        """Counts a claim, which keeps its devices from everything else."""
        self._replace(None, claim)

    def release(self, holds: PlaceHolds) -> None:
        """Ends the holds."""
        for name in sorted(holds.nodes):
            self._replace(_held(self._nodes[name]), self._nodes[name])
        for device in sorted(holds.devices):
            self._replace(device_hold(device), None)

    def _replace(self, old: ApiObject | None, new: ApiObject | None) -> None:
        cluster = self.engine.cluster
        replace_in(cluster, old, new)
        self._undo.append(lambda: replace_in(cluster, new, old))


def devices_of(placed: PodPlacement) -> frozenset[DeviceId]:
    return frozenset(device for claim in placed.claims for device in devices_used(claim))


def devices_before(objects: ClusterObjects, pod: Pod) -> frozenset[DeviceId]:
    """The devices that the pod has where it is."""
    claims = (objects.all(ResourceClaim).get((each.namespace, each.name)) for each in claims_used_by(pod))
    return frozenset(device for claim in claims if claim is not None for device in devices_used(claim))


def node_hold() -> Taint:
    return Taint(key=HOLD_KEY, effect=NO_SCHEDULE)


def device_hold(device: DeviceId) -> DeviceTaintRule:
    selector = DeviceTaintSelector(driver=device.driver, pool=device.pool, device=device.device)
    name = f"dralloc-defrag-{device.pool}-{device.device}".lower().replace("/", "-").replace("_", "-")
    return taint_rule(name, DeviceTaint(key=HOLD_KEY, effect=NO_SCHEDULE), selector)


def _held(node: Node) -> Node:
    return replace(node, spec=replace(node.spec, taints=(*node.spec.taints, node_hold())))


def _new_uid(uid: str) -> str:
    """The UID of the pod that takes the place of another one; no server has such UIDs."""
    return f"{uid}/moved"


def _created_again(pod: Pod) -> Pod:
    metadata = replace(pod.metadata, uid=_new_uid(pod.metadata.uid), resource_version="", creation_timestamp=None)
    status = PodStatus(resource_claim_statuses=pod.status.resource_claim_statuses)
    return replace(pod, metadata=metadata, spec=replace(pod.spec, node_name=""), status=status)


def _after(claim: ResourceClaim, gone: frozenset[str]) -> ResourceClaim:
    """The claim when the pods are gone: one that was made for a pod is made again for the next one."""
    owner = controller_of(claim.metadata)
    if owner is None or owner.uid not in gone:
        return released_claim(claim, ConsumerFacts(gone=gone, in_use=False))
    owners = tuple(
        replace(each, uid=_new_uid(each.uid)) if each is owner else each for each in claim.metadata.owner_references
    )
    return replace(claim, metadata=replace(claim.metadata, owner_references=owners), status=ResourceClaimStatus())
