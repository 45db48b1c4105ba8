"""Pods that leave their nodes and get others, tried on the state of an engine. Every change can be taken back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.drain import released_claim
from dralloc.answers.engine import Engine
from dralloc.answers.placements import PodPlacement
from dralloc.answers.scenario import taint_rule
from dralloc.answers.scheduler_state import replace_in, with_room
from dralloc.controllers.claim_lifecycle.plan import ConsumerFacts
from dralloc.devices.device_usage import devices_used
from dralloc.devices.identity import ClaimId, DeviceId
from dralloc.kube.core_v1 import Node, Taint
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.node_taints import NO_SCHEDULE
from dralloc.kube.pod_claims import controller_of
from dralloc.kube.pod_v1 import Pod, PodStatus
from dralloc.kube.resource_v1 import (
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintSelector,
    ResourceClaim,
    ResourceClaimStatus,
)
from dralloc.scheduler.state.placed_pods import claims_used_by

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
