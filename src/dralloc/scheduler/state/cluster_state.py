"""The cluster as the scheduler sees it: what the API shows, plus decisions that are not written yet.

A decision counts from the moment it is assumed, so the next pod is placed on what is left, however long the writes take. A
decision whose writes fail is forgotten. No I/O: watches report changes here and get back the cluster events that follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from msgspec.structs import replace

from dralloc.devices.device_usage import pools_used
from dralloc.devices.identity import ClaimId, PoolId
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.core_v1 import Namespace, Node
from dralloc.kube.extended_resources import ExtendedResourceClasses, served_by_devices
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.pod_claims import group_name, is_pod, shares_claim
from dralloc.kube.pod_v1 import Pod, PodExtendedResourceClaimStatus
from dralloc.kube.resource_v1 import (
    AllocationResult,
    ConsumerReference,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceSlice,
)
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.scheduler.state.change_log import (
    ChangeLog,
    EverythingChanged,
    NodeChanged,
    NodeLoaded,
    PoolFreed,
    PoolTaken,
)
from dralloc.scheduler.state.claim_table import ClaimTable, unallocated
from dralloc.scheduler.state.class_settings import NO_SETTINGS, ClassSettings, ConfiguredClasses
from dralloc.scheduler.state.cluster_events import (
    DEVICES_CHANGED,
    DEVICES_FREED,
    NODE_CHANGED,
    NODE_RESOURCES_FREED,
    PODS_MOVED,
    ClusterEvent,
    Events,
    claim_changed,
    class_changed,
    extended_resource_changed,
    group_changed,
)
from dralloc.scheduler.state.group_members import PodGroupKey
from dralloc.scheduler.state.node_state import NodeOffer, NodeState
from dralloc.scheduler.state.placed_pods import PlacedPod, PlacedPods, PodKey, claims_used_by, nomination_key, pod_key
from dralloc.scheduler.state.pod_resources import PodResources, resize_fields, resources_of, resources_on_node
from dralloc.scheduler.state.pod_topology import PodTopology
from dralloc.scheduler.state.pool_ownership import owns_every_pool
from dralloc.scheduler.state.volume_state import VolumePlan, VolumeState
from dralloc.scheduler.state.watched_budgets import WatchedBudgets

DELETED_NODES_REMEMBERED: Final = 100


class AssumedClaim(Protocol):
    """A claim that is made with a decision (`contract.ExtendedClaim`)."""

    @property
    def claim(self) -> ResourceClaim: ...

    @property
    def status(self) -> PodExtendedResourceClaimStatus: ...


class ClusterState:
    """`rank` breaks ties between equally good nodes; `owns_pool` is true for the pools that we allocate from."""

    def __init__(
        self,
        *,
        rank: Callable[[str], int] = lambda _: 0,
        owns_pool: Callable[[PoolId], bool] = owns_every_pool,
        for_workloads: bool = True,
        for_groups: bool = False,
        class_settings: Mapping[str, ClassSettings] = NO_SETTINGS,
    ) -> None:
        self.nodes: dict[str, NodeState] = {}
        # How many nodes were deleted since readers of the changes began anew. They may remember them.
        self._nodes_deleted = 0
        self.classes: dict[str, DeviceClass] = {}
        self.snapshot = Snapshot()
        self.changes = ChangeLog()
        self._rank = rank
        self._owns_pool = owns_pool
        self._for_workloads = for_workloads
        self._for_groups = for_groups
        self._configured = ConfiguredClasses(class_settings)
        self.claims = ClaimTable(self._count_devices)
        self.extended_classes = ExtendedResourceClasses()
        self.pod_groups: dict[tuple[str, str], PodGroup] = {}
        self._pods = PlacedPods()
        # The UIDs of all pods that have not ended, and pods that are counted on their nominated node, by UID.
        self.living: set[str] = set()
        self.nominated: dict[str, PlacedPod] = {}
        self.pod_topology = PodTopology()
        self.volumes = VolumeState()
        self.budgets = WatchedBudgets()

    # --- The view that decisions read -------------------------------------------------------------------------------

    def find_claim(self, claim_id: ClaimId) -> ResourceClaim | None:
        """The claim with the decisions about it applied."""
        tracked = self.claims.find(claim_id)
        return tracked.effective if tracked is not None else None

    def is_in_use(self, claim_id: ClaimId) -> bool:
        """True if a pod that has a node, or is assumed to get one, uses the claim, in `reservedFor` or not (KEP-5194)."""
        return self._pods.is_in_use(claim_id)

    def extended_claim_of(self, pod_uid: str) -> ClaimId | None:
        return self.claims.of_extended_resources(pod_uid)

    @property
    def placed_pods(self) -> PlacedPods:
        return self._pods

    def is_alive(self, consumer: ConsumerReference) -> bool:
        """True if the consumer of a claim exists, as far as this is known: workloads are not watched."""
        return consumer.uid in self.living or not is_pod(consumer)

    # --- What binding reads -----------------------------------------------------------------------------------------

    def is_proven(self, claim_id: ClaimId) -> bool:
        """True if no other claim can hold the claim's devices: a check has shown it, or pods run with them."""
        tracked = self.claims.find(claim_id)
        return tracked is not None and (
            tracked.is_proven
            or any(self._is_running(claim_id, consumer) for consumer in tracked.stored.status.reserved_for)
        )

    def _is_running(self, claim_id: ClaimId, consumer: ConsumerReference) -> bool:
        if is_pod(consumer):
            pod = self._pods.find((claim_id.namespace, consumer.name))
            return pod is not None and pod.uid == consumer.uid and not pod.is_assumed
        # A workload's pods are not listed.
        users = map(self._pods.find, self._pods.users(claim_id))
        return any(pod is not None and not pod.is_assumed for pod in users)

    # --- Decisions --------------------------------------------------------------------------------------------------

    def assume(
        self,
        pod: Pod,
        node: str,
        allocations: Mapping[ClaimId, AllocationResult],
        volumes: VolumePlan | None = None,
        extended: AssumedClaim | None = None,
        needs: PodResources | None = None,
    ) -> None:
        """Counts the decision from now on: the pod is on the node and uses these claims with these allocations.

        `extended` is the claim of the pod's extended resources, which is not stored yet; `needs`, if they are known, what the pod
        uses of the node itself: pods that are alike then share them.
        """
        if extended is not None:
            self.claims.expect(extended.claim)
        for claim_id, allocation in allocations.items():
            tracked = self.claims.find(claim_id)
            assert tracked is not None, "a decision names claims that are known"
            group = self._group_that_shares(pod, claim_id)
            tracked.assume(pod, allocation, for_workloads=self._for_workloads, group=group)
            self._count_devices(claim_id, tracked.effective)
        placed = PlacedPod(pod, node, needs or _needs(pod, extended), tuple(allocations), is_assumed=True)
        self.living.add(pod.metadata.uid)
        self._place(pod_key(pod), placed)
        self.pod_topology.put(pod, node)
        self.volumes.put(pod, node)
        if volumes is not None:
            self.volumes.assume(pod, node, volumes)

    def _group_that_shares(self, pod: Pod, claim_id: ClaimId) -> PodGroup | None:
        """The pod's group, if the pod uses the claim as its member."""
        name = group_name(pod) if self._for_groups else ""
        group = self.pod_groups.get((pod.metadata.namespace, name)) if name else None
        return group if shares_claim(pod, claim_id.name, group) else None

    def forget(self, pod: Pod, claims: Iterable[ClaimId]) -> Events:
        """Takes back what was assumed for the pod and is not stored."""
        key = pod_key(pod)
        known = self._pods.find(key)
        events: list[ClusterEvent] = [*self.volumes.forget(pod.metadata.uid)]
        if known is not None and known.is_assumed and known.uid == pod.metadata.uid:
            events += self._leave_node(key)
        for claim_id in claims:
            events += self.claims.forget(claim_id, pod.metadata.uid)
        return tuple(events)

    # --- Nominations ------------------------------------------------------------------------------------------------

    def nominate(
        self, pod: Pod, node: str, allocations: Iterable[AllocationResult], extended: AssumedClaim | None = None
    ) -> None:
        """Counts a pod that waits for the end of other pods on the node, with the devices that it is going to get.

        Its claims stay unallocated: the devices may still be in use. They are counted under claims that do not exist.
        """
        self.withdraw(pod.metadata.uid)
        nominated = (_claim_of_nominated(pod, number, each) for number, each in enumerate(allocations))
        claims = {ClaimId.of(claim): claim for claim in nominated}
        for claim_id, claim in claims.items():
            self._count_devices(claim_id, claim)
        placed = PlacedPod(pod, node, _needs(pod, extended), tuple(claims), is_assumed=True, is_nominated=True)
        self.nominated[pod.metadata.uid] = placed
        self._place(nomination_key(pod), placed)
        self.pod_topology.put(pod, node)
        self.volumes.put(pod, node)

    def withdraw(self, pod_uid: str) -> Events:
        """Counts the pod no longer on its nominated node."""
        placed = self.nominated.pop(pod_uid, None)
        if placed is None:
            return ()
        self._unplace(nomination_key(placed.pod))
        self.pod_topology.remove(pod_key(placed.pod))
        self.volumes.remove(pod_key(placed.pod))
        for claim_id in placed.claims:
            self._count_devices(claim_id, unallocated(self.snapshot.claims[claim_id]))
        return (NODE_RESOURCES_FREED, PODS_MOVED, *((DEVICES_FREED,) if placed.claims else ()))

    # --- Nodes and pods ---------------------------------------------------------------------------------------------

    def node_changed(self, before: Node | None, after: Node | None) -> Events:
        if after is None:
            assert before is not None
            self._forget_node(before.metadata.name)
            # Fewer domains can help a pod that is to be spread over them.
            return (NODE_CHANGED,)
        offer = NodeOffer.of(after)
        known = self.nodes.get(offer.name)
        if known is not None and known.offer == offer:
            return ()
        self.nodes[offer.name] = NodeState(offer, self._pods.load(offer.name), self._rank(offer.name))
        self.snapshot = self.snapshot.with_node(offer.place)
        self.changes.add(NodeChanged(offer.name))
        return (NODE_CHANGED,)

    def _forget_node(self, name: str) -> None:
        del self.nodes[name]
        self.snapshot = self.snapshot.without_node(name)
        self.changes.add(NodeChanged(name))
        self._nodes_deleted += 1
        if self._nodes_deleted > max(len(self.nodes), DELETED_NODES_REMEMBERED):
            self._nodes_deleted = 0
            self.changes.add(EverythingChanged())

    def pod_changed(self, before: Pod | None, after: Pod | None) -> Events:
        pod = after or before
        assert pod is not None
        key, uid = pod_key(pod), pod.metadata.uid
        known = self._pods.find(key)
        if after is None or after.is_finished:
            self.living.discard(uid)
            return self._leave_node(key) if known is not None and known.uid == uid else self.withdraw(uid)
        self.living.add(uid)
        if not after.spec.node_name:
            # One that is being deleted will not get its nominated node.
            return self.withdraw(uid) if after.is_terminating else ()
        if uid in self.nominated:
            return (*self.withdraw(uid), *self.pod_changed(before, after))
        self.volumes.put(after, after.spec.node_name)
        self.volumes.forget(after.metadata.uid)
        moved = (PODS_MOVED,) if self.pod_topology.put(after, after.spec.node_name) or _is_assumed(known) else ()
        claims = claims_used_by(after)
        if known is None or (known.uid, known.node, known.claims) != (after.metadata.uid, after.spec.node_name, claims):
            needs = resources_on_node(after)
            self._place(key, PlacedPod(after, after.spec.node_name, needs, claims))
            # Another scheduler may have bound the pod to another node than we assumed.
            left = known is not None and known.node != after.spec.node_name
            return (NODE_RESOURCES_FREED, *moved) if left else moved
        self._pods.confirm(key, after)
        is_resized = before is None or resize_fields(before) != resize_fields(after)
        return (*self._resize(key, after), *moved) if is_resized else moved

    def _resize(self, key: PodKey, pod: Pod) -> Events:
        known, needs = self._pods.find(key), resources_on_node(pod)
        assert known is not None
        if needs == known.needs:
            return ()
        self._place(key, replace(known, needs=needs))
        is_smaller = any(needs.amounts.get(name, 0) < nanos for name, nanos in known.needs.amounts.items())
        return (NODE_RESOURCES_FREED,) if is_smaller else ()

    def _place(self, key: PodKey, pod: PlacedPod) -> None:
        if self._pods.find(key) is not None:
            self._unplace(key)
        self._pods.put(key, pod)
        self._load_changed(NodeLoaded(pod.node))

    def _leave_node(self, key: PodKey) -> Events:
        claims = self._unplace(key).claims
        self.pod_topology.remove(key)
        self.volumes.remove(key)
        return (NODE_RESOURCES_FREED, PODS_MOVED, *map(claim_changed, filter(self._is_left_to_waiting_pods, claims)))

    def _is_left_to_waiting_pods(self, claim_id: ClaimId) -> bool:
        """True if the claim is being deleted, and no pod with a node uses it any more: others may keep it from going."""
        claim = self.claims.stored(claim_id)
        return claim is not None and claim.metadata.deletion_timestamp is not None and not self.is_in_use(claim_id)

    def _unplace(self, key: PodKey) -> PlacedPod:
        pod = self._pods.remove(key)
        self._load_changed(NodeChanged(pod.node))
        return pod

    def _load_changed(self, change: NodeLoaded | NodeChanged) -> None:
        state = self.nodes.get(change.name)
        if state is not None:
            self.nodes[change.name] = state.with_load(self._pods.load(change.name))
            self.changes.add(change)

    def namespace_changed(self, before: Namespace | None, after: Namespace | None) -> Events:
        return (PODS_MOVED,) if self.pod_topology.namespace_changed(before, after) else ()

    def group_changed(self, before: PodGroup | None, after: PodGroup | None) -> Events:
        group = after or before
        assert group is not None
        key = (group.metadata.namespace, group.metadata.name)
        if after is None:
            self.pod_groups.pop(key, None)
        else:
            self.pod_groups[key] = after
        is_same = before is not None and after is not None and before.spec == after.spec
        return () if is_same else (group_changed(PodGroupKey(*key)),)

    # --- Claims -----------------------------------------------------------------------------------------------------

    def claim_changed(self, before: ResourceClaim | None, after: ResourceClaim | None) -> Events:
        return self.claims.changed(before, after)

    def _count_devices(self, claim_id: ClaimId, claim: ResourceClaim) -> None:
        """Counts the claim's devices as used, in place of those that it used before."""
        known = self.snapshot.claims.get(claim_id)
        if (known.status.allocation if known is not None else None) == claim.status.allocation:
            return
        self.snapshot = self.snapshot.with_claim(claim)
        if known is not None:
            for pool_id in pools_used(known):
                self.changes.add(PoolFreed(pool_id, self.snapshot.only_node(pool_id)))
        for pool_id in pools_used(claim):
            self.changes.add(PoolTaken(pool_id, self.snapshot.only_node(pool_id)))

    # --- Devices ----------------------------------------------------------------------------------------------------

    def slice_changed(self, before: ResourceSlice | None, after: ResourceSlice | None) -> Events:
        return self._slice_changed(before, self._configured.with_strategies(before, after))

    def _slice_changed(self, before: ResourceSlice | None, after: ResourceSlice | None) -> Events:
        changed = self.snapshot
        if before is not None and (after is None or not self._owns_pool(PoolId.of_slice(after))):
            changed = changed.without_slice(before.metadata.name)
        if after is not None and self._owns_pool(PoolId.of_slice(after)):
            changed = changed.with_slice(after)
        if changed is self.snapshot:
            return ()
        pools = {PoolId.of_slice(version) for version in (before, after) if version is not None}
        node_names = _nodes_of_pools(self.snapshot, pools) | _nodes_of_pools(changed, pools)
        self.snapshot = changed
        # A slice without a node name may be visible to any node.
        for name in node_names:
            self.changes.add(NodeChanged(name) if name else EverythingChanged())
        return (DEVICES_CHANGED,)

    def rule_changed(self, before: DeviceTaintRule | None, after: DeviceTaintRule | None) -> Events:
        if after is not None:
            if before is not None and before.spec == after.spec:
                return ()
            self.snapshot = self.snapshot.with_rule(after)
        elif before is not None:
            self.snapshot = self.snapshot.without_rule(before.metadata.name)
        self.changes.add(EverythingChanged())
        return (DEVICES_CHANGED,)

    def class_changed(self, before: DeviceClass | None, after: DeviceClass | None) -> Events:
        events: Events = ()
        for seen, amended in self._configured.class_changed(before, after):
            events = self._slice_changed(seen, amended)
        events += tuple(map(extended_resource_changed, self.extended_classes.change(before, after)))
        if after is not None:
            self.classes[after.metadata.name] = self._configured.with_preference(after)
            if before is None or before.spec != after.spec:
                return (*events, class_changed(after.metadata.name))
        elif before is not None:
            self.classes.pop(before.metadata.name, None)
        return events


def _needs(pod: Pod, extended: AssumedClaim | None) -> PodResources:
    """What the pod is going to use of its node."""
    needs = resources_of(pod.spec)
    return needs.without(served_by_devices(extended.status)) if extended is not None else needs


def _claim_of_nominated(pod: Pod, number: int, allocation: AllocationResult) -> ResourceClaim:
    """A claim that counts devices for a nominated pod. No claim of the API has a name like this, nor no namespace."""
    metadata = ObjectMeta(name=f"{pod.metadata.uid}/{number}", uid=pod.metadata.uid)
    return ResourceClaim(metadata=metadata, status=ResourceClaimStatus(allocation=allocation))


def _is_assumed(pod: PlacedPod | None) -> bool:
    return pod is not None and pod.is_assumed


def _nodes_of_pools(snapshot: Snapshot, pools: Iterable[PoolId]) -> frozenset[str]:
    """The node names in the pools' slices; includes an empty name for slices without one."""
    known = (snapshot.pools.get(pool_id) for pool_id in pools)
    return frozenset(indexed.node_name for pool in known if pool is not None for indexed in pool.slices)
