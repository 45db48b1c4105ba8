"""What a drain would do: which pods are evicted, which of them find another place, and which do not.

The taint eviction controller decides who is evicted because of devices, and the claim controller what becomes of the claims of
evicted pods. The engine then places the pods that their controllers create again, together with those that wait already, in
the order of the scheduler's queue.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from msgspec.structs import replace

from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.engine import Engine, pods_by_priority
from dralloc.answers.placements import PodPlacement, UnplacedPod
from dralloc.controllers.claim_lifecycle.plan import ConsumerFacts, Deallocate, RemoveConsumers, plan_claim
from dralloc.controllers.taint_eviction.plan_eviction import find_eviction
from dralloc.controllers.taint_eviction.tainted_devices import TaintedDevices, published_devices
from dralloc.devices.identity import ClaimId, DeviceId
from dralloc.devices.taints import selects
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_claims import ClaimUse, claims_of, controller_of
from dralloc.kube.pod_v1 import MIRROR_POD, Pod, PodStatus
from dralloc.kube.resource_v1 import DeviceTaintRule, ResourceClaim, ResourceClaimStatus, ResourceSlice
from dralloc.kube.timestamps import print_timestamp
from dralloc.scheduler.settings import ONLY_SCHEDULER_NAMES
from dralloc.scheduler.state.placed_pods import pod_key


class DrainResult(Enum):
    """What becomes of a pod."""

    PLACED = "Placed"
    # It is created again, and fits nowhere.
    UNPLACED = "Unplaced"
    # No controller creates it again.
    LOST = "Lost"
    # A drain leaves it where it is.
    STAYS = "Stays"
    # It was being deleted already.
    TERMINATING = "Terminating"


@dataclass(frozen=True, slots=True)
class EvictedPod:
    """A pod that is evicted; where taints evict it, with the time and the rules that demand it."""

    pod: Pod
    at: datetime | None = None
    rules: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DrainedPod:
    """A pod of the blast radius: the node where it would be placed, or else why not."""

    evicted: EvictedPod
    result: DrainResult
    node: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class BlastRadius:
    """All pods that a drain concerns, and the devices that it taints."""

    pods: tuple[DrainedPod, ...]
    devices: tuple[DeviceId, ...] = ()

    @property
    def is_harmless(self) -> bool:
        """True if every evicted pod finds another place."""
        return not self.count(DrainResult.UNPLACED, DrainResult.LOST)

    def count(self, *results: DrainResult) -> int:
        return sum(each.result in results for each in self.pods)


def drain_node(
    objects: ClusterObjects, name: str, scheduler_names: Collection[str] = ONLY_SCHEDULER_NAMES
) -> BlastRadius:
    """All pods on the node are evicted, except mirror pods and the pods of daemon sets. Raises UnknownObject."""
    node = objects.find_node(name)
    cordoned = replace(node, spec=replace(node.spec, unschedulable=True))
    nodes = [cordoned if each is node else each for each in objects.nodes]
    evicted: list[EvictedPod] = []
    others: list[DrainedPod] = []
    for pod in objects.all(Pod).values():
        if pod.spec.node_name != name or pod.is_finished:
            continue
        if reason := why_left_alone(pod):
            others.append(DrainedPod(EvictedPod(pod), DrainResult.STAYS, node=name, message=reason))
        else:
            evicted.append(EvictedPod(pod))
    return BlastRadius((*_results(objects, evicted, nodes, scheduler_names), *others))


def why_left_alone(pod: Pod) -> str:
    """Why a drain leaves the pod where it is; empty if it does not."""
    if MIRROR_POD in pod.metadata.annotations:
        return "mirror pod, which the kubelet runs from a file"
    owner = controller_of(pod.metadata)
    return f"pod of DaemonSet {owner.name}" if owner is not None and owner.kind == "DaemonSet" else ""


def drain_devices(
    objects: ClusterObjects, rules: Sequence[DeviceTaintRule], scheduler_names: Collection[str] = ONLY_SCHEDULER_NAMES
) -> BlastRadius:
    """What would happen if the rules were created: the devices of evicted pods are not allocated again."""
    tainted = TaintedDevices()
    if "DRADeviceTaintRules" in objects.gates:
        for rule in rules:
            tainted.put_rule(rule)
    else:
        objects.notes.append("the feature gate DRADeviceTaintRules is off: taint rules have no effect")
    evicted: list[EvictedPod] = []
    for pod in objects.all(Pod).values():
        for_groups = "DRAWorkloadResourceClaims" in objects.gates
        eviction = find_eviction(pod, _claims_of(objects, pod), tainted.taints_of, objects.now, for_groups=for_groups)
        if eviction is not None:
            evicted.append(EvictedPod(pod, eviction.at, eviction.rules))
    for rule in rules:
        objects.add(rule)
    published = published_devices(objects.all(ResourceSlice).values())
    devices = [each for each in published if any(selects(rule.spec.device_selector, each) for rule in rules)]
    return BlastRadius(tuple(_results(objects, evicted, objects.nodes, scheduler_names)), tuple(devices))


def _claims_of(objects: ClusterObjects, pod: Pod) -> Iterator[tuple[ClaimUse, ResourceClaim]]:
    for use in claims_of(pod):
        claim = objects.all(ResourceClaim).get((pod.metadata.namespace, use.claim))
        if claim is not None:
            yield use, claim


# --- After the eviction ---------------------------------------------------------------------------------------------------


def _results(
    objects: ClusterObjects, evicted: Sequence[EvictedPod], nodes: Collection[Node], scheduler_names: Collection[str]
) -> Iterator[DrainedPod]:
    after = _without_pods(objects, [each.pod for each in evicted])
    for each in evicted:
        if not each.pod.is_terminating and controller_of(each.pod.metadata) is not None:
            after.add(_created_again(each, objects.now))
    engine = Engine(after, objects.now, nodes=nodes, scheduler_names=scheduler_names)
    waiting = (pod for pod in pods_by_priority(after, None) if not pod.spec.node_name)
    placed = {pod_key(pod): engine.place(pod) for pod in waiting}
    for each in evicted:
        match placed.get(pod_key(each.pod)):
            case None if each.pod.is_terminating:
                yield DrainedPod(each, DrainResult.TERMINATING, message="is being deleted already")
            case None:
                yield DrainedPod(each, DrainResult.LOST, message="no controller creates it again")
            case PodPlacement(node=node):
                yield DrainedPod(each, DrainResult.PLACED, node=node)
            case UnplacedPod(message=message):
                yield DrainedPod(each, DrainResult.UNPLACED, message=message)


def _created_again(evicted: EvictedPod, now: datetime) -> Pod:
    """The pod that the controller of the evicted one creates, when that is gone. It keeps the name, to be recognized."""
    pod = evicted.pod
    created = print_timestamp(evicted.at or now)
    metadata = replace(pod.metadata, uid="", resource_version="", creation_timestamp=created)
    return replace(pod, metadata=metadata, spec=replace(pod.spec, node_name=""), status=PodStatus())


def _without_pods(objects: ClusterObjects, pods: Sequence[Pod]) -> ClusterObjects:
    """The objects after these pods ended: claims made for them are deleted, others as the claim controller leaves them."""
    gone = {pod_key(pod): pod.metadata.uid for pod in pods}
    uids = frozenset(gone.values())
    kept = [pod for key, pod in objects.all(Pod).items() if key not in gone]
    used = {
        ClaimId(pod.metadata.namespace, use.claim)
        for pod in kept
        if pod.spec.node_name and not pod.is_finished
        for use in claims_of(pod)
    }
    claims: list[ResourceClaim] = []
    for key, claim in objects.all(ResourceClaim).items():
        owner = controller_of(claim.metadata)
        if owner is None or owner.kind != "Pod" or gone.get((key[0], owner.name)) != owner.uid:
            claims.append(released_claim(claim, ConsumerFacts(gone=uids, in_use=ClaimId.of(claim) in used)))
    after = dataclasses.replace(objects, objects={**objects.objects, Pod: {}, ResourceClaim: {}})
    for obj in (*kept, *claims):
        after.add(obj)
    return after


def released_claim(claim: ResourceClaim, consumers: ConsumerFacts) -> ResourceClaim:
    """The claim as the claim controller leaves it when consumers are gone."""
    if consumers.gone.isdisjoint(consumer.uid for consumer in claim.status.reserved_for):
        return claim
    for action in plan_claim(claim, consumers):
        match action:
            case RemoveConsumers(kept=kept):
                claim = replace(claim, status=replace(claim.status, reserved_for=kept))
            case Deallocate():
                claim = replace(claim, status=ResourceClaimStatus())
    return claim
