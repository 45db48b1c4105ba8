"""The cluster as the scheduler believes it to be: what the API shows, and what it has decided and not yet written.

A decision counts from the moment it is made, so the next pod is placed on what is left, however long the writes take. It
is taken back where they fail. No I/O: whoever watches the API reports changes here, and gets back what they may help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from dralloc.api.core_v1 import Node
from dralloc.api.pod_claims import claims_of, is_pod
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import (
    AllocationResult,
    ConsumerReference,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from dralloc.devices.device_usage import pools_used
from dralloc.devices.identity import ClaimId, PoolId
from dralloc.scheduler.collisions import Holder, beaten_by
from dralloc.scheduler.decide.claim_checks import pod_key
from dralloc.scheduler.state.anti_affinity import Repelled, Repulsion
from dralloc.scheduler.state.change_log import ChangeLog, EverythingChanged, NodeChanged, PoolFreed, PoolTaken
from dralloc.scheduler.state.cluster_events import (
    DEVICES_CHANGED,
    DEVICES_FREED,
    NODE_CHANGED,
    NODE_RESOURCES_FREED,
    ClusterEvent,
    claim_changed,
    class_changed,
)
from dralloc.scheduler.state.node_state import EMPTY, Load, NodeOffer, NodeState
from dralloc.scheduler.state.pod_resources import Needs, needs_of, needs_on_node, size_of
from dralloc.scheduler.state.reservation import consumer_for
from dralloc.snapshot.cluster import Snapshot

PodKey = tuple[str, str]
News = tuple[ClusterEvent, ...]


class _OnNode(Struct, frozen=True, gc=False):
    """A pod that has a node, or that we have decided to give one."""

    uid: str
    node: str
    needs: Needs
    # The claims that it uses, listed there or not.
    uses: tuple[ClaimId, ...]
    is_assumed: bool


class _ClaimState(Struct):
    stored: ResourceClaim
    # Decided by us, not stored yet.
    allocation: AllocationResult | None = None
    consumers: dict[str, ConsumerReference] = field(default_factory=dict)
    # The revision that allocated it; 0 where we came too late to see that.
    allocated_at: int = 0
    # Nobody else has been given its devices.
    is_proven: bool = False
    _effective: ResourceClaim | None = None

    @property
    def effective(self) -> ResourceClaim:
        if self._effective is None:
            self._effective = self._work_out()
        return self._effective

    def forget_effective(self) -> None:
        self._effective = None

    def _work_out(self) -> ResourceClaim:
        status = self.stored.status
        allocation = status.allocation or self.allocation
        known = {reference.uid for reference in status.reserved_for}
        added = {reference.uid: reference for reference in self.consumers.values() if reference.uid not in known}
        if not added and allocation is status.allocation:
            return self.stored
        status = replace(status, allocation=allocation, reserved_for=(*status.reserved_for, *added.values()))
        return replace(self.stored, status=status)


def _any_pool(_: PoolId) -> bool:
    return True


class ClusterState:
    """`rank` decides between nodes that are equally good; `owns_pool` says whose devices may be given out here."""

    def __init__(
        self,
        *,
        rank: Callable[[str], int] = lambda _: 0,
        owns_pool: Callable[[PoolId], bool] = _any_pool,
        for_workloads: bool = True,
    ) -> None:
        self.nodes: dict[str, NodeState] = {}
        self.classes: dict[str, DeviceClass] = {}
        self.snapshot = Snapshot()
        self.changes = ChangeLog()
        self._rank = rank
        self._owns_pool = owns_pool
        self._for_workloads = for_workloads
        self._claims: dict[ClaimId, _ClaimState] = {}
        self._pods: dict[PodKey, _OnNode] = {}
        self._users: dict[ClaimId, set[PodKey]] = {}
        # Of nodes that are not known (yet): pods may be heard of before their node.
        self._loads: dict[str, Load] = {}
        self._repulsion = Repulsion()

    # --- What is asked ----------------------------------------------------------------------------------------

    def find_claim(self, claim_id: ClaimId) -> ResourceClaim | None:
        """The claim with what we have decided about it."""
        state = self._claims.get(claim_id)
        return state.effective if state is not None else None

    def stored_claim(self, claim_id: ClaimId) -> ResourceClaim | None:
        """The claim as the API has it."""
        state = self._claims.get(claim_id)
        return state.stored if state is not None else None

    def is_unwritten(self, claim_id: ClaimId, pod_uid: str) -> bool:
        """Whether something is decided about the claim that the pod needs and that is not stored yet."""
        state = self._claims[claim_id]
        return state.effective is not state.stored and (state.allocation is not None or pod_uid in state.consumers)

    def repelled(self, pod: Pod) -> tuple[Repelled, ...]:
        """From where the pod is kept away by pods that are there already."""
        return self._repulsion.of(pod, self.nodes)

    def is_on_node(self, key: PodKey) -> bool:
        return key in self._pods

    def is_in_use(self, claim_id: ClaimId) -> bool:
        """Whether a pod that has a node, or is to get one, uses the claim: a workload's pods are not listed (KEP-5194)."""
        return claim_id in self._users

    def is_proven(self, claim_id: ClaimId) -> bool:
        """Whether the claim's devices are known to be its own: somebody has made sure, or pods run with them."""
        state = self._claims.get(claim_id)
        return state is not None and (
            state.is_proven or any(self._is_running(claim_id, state, user) for user in state.stored.status.reserved_for)
        )

    def _is_running(self, claim_id: ClaimId, state: _ClaimState, user: ConsumerReference) -> bool:
        if not is_pod(user):
            # A workload's pods are not listed; those of a claim that was allocated before we came may run.
            return not state.allocated_at
        pod = self._pods.get((claim_id.namespace, user.name))
        return pod is not None and pod.uid == user.uid and not pod.is_assumed

    def prove(self, claim_id: ClaimId) -> None:
        """The claim's devices are its own."""
        if (state := self._claims.get(claim_id)) is not None:
            state.is_proven = True

    def earlier_holder(self, claim_id: ClaimId) -> ClaimId | None:
        """A claim that was given, before this one, a device that cannot serve both."""
        state = self._claims.get(claim_id)
        if state is None:
            return None
        others = (Holder(other.stored, other.allocated_at) for other in self._claims.values() if other is not state)
        return beaten_by(self.snapshot, Holder(state.stored, state.allocated_at), others)

    # --- Decisions ----------------------------------------------------------------------------------------------

    def assume(self, pod: Pod, node: str, allocations: Mapping[ClaimId, AllocationResult]) -> None:
        """The pod gets the node and uses these claims, which have these devices or get them."""
        for claim_id in allocations:
            state = self._claims[claim_id]
            consumer = consumer_for(state.effective, pod, for_workloads=self._for_workloads)
            if state.effective.status.allocation is None:
                is_for_any_pod = consumer is not None and not is_pod(consumer)
                state.allocation = replace(allocations[claim_id], reserved_for_any_pod=is_for_any_pod or None)
            if consumer is not None:
                state.consumers[pod.metadata.uid] = consumer
            state.forget_effective()
            self._use(state.effective)
        on_node = _OnNode(pod.metadata.uid, node, needs_of(pod.spec), tuple(allocations), is_assumed=True)
        self._put(pod_key(pod), on_node)

    def forget(self, pod: Pod, used: Iterable[ClaimId]) -> News:
        """The pod does not get its node after all. A claim that no other pod was to get with it is as it is stored."""
        key = pod_key(pod)
        known = self._pods.get(key)
        news: list[ClusterEvent] = []
        if known is not None and known.is_assumed and known.uid == pod.metadata.uid:
            self._drop(key)
            news.append(NODE_RESOURCES_FREED)
        for claim_id in used:
            state = self._claims.get(claim_id)
            if state is None:
                continue
            state.consumers.pop(pod.metadata.uid, None)
            if state.allocation is not None and not state.consumers:
                state.allocation = None
                news.append(DEVICES_FREED)
            state.forget_effective()
            self._use(state.effective)
            news.append(claim_changed(claim_id))
        return tuple(news)

    # --- Nodes and pods -------------------------------------------------------------------------------------------

    def node_changed(self, before: Node | None, after: Node | None) -> News:
        if after is None:
            assert before is not None
            self._forget_node(before.metadata.name)
            return ()
        offer = NodeOffer.of(after)
        known = self.nodes.get(offer.name)
        if known is not None and known.offer == offer:
            return ()
        load = self._loads.pop(offer.name, EMPTY) if known is None else known.load
        self.nodes[offer.name] = NodeState(offer, load, self._rank(offer.name))
        self.snapshot = self.snapshot.with_node(offer.place)
        self.changes.add(NodeChanged(offer.name))
        return (NODE_CHANGED,)

    def _forget_node(self, name: str) -> None:
        state = self.nodes.pop(name)
        if state.load.amounts:
            self._loads[name] = state.load
        self.snapshot = self.snapshot.without_node(name)
        self.changes.add(NodeChanged(name))

    def pod_changed(self, before: Pod | None, after: Pod | None) -> News:
        pod = after or before
        assert pod is not None
        key = pod_key(pod)
        known = self._pods.get(key)
        if after is None or after.is_finished:
            if known is None or known.uid != pod.metadata.uid:
                return ()
            self._drop(key)
            self._repulsion.remove(key)
            return (NODE_RESOURCES_FREED,)
        if not after.spec.node_name:
            return ()
        uses = _uses_of(after)
        if known is None or (known.uid, known.node, known.uses) != (after.metadata.uid, after.spec.node_name, uses):
            needs = needs_on_node(after)
            self._put(key, _OnNode(after.metadata.uid, after.spec.node_name, needs, uses, is_assumed=False))
            self._repulsion.remove(key)
            self._repulsion.add(after)
            # It may be on another node than we have decided on.
            return (NODE_RESOURCES_FREED,) if known is not None and known.node != after.spec.node_name else ()
        if known.is_assumed:
            self._pods[key] = replace(known, is_assumed=False)
        return self._resize(key, needs_on_node(after)) if before is None or size_of(before) != size_of(after) else ()

    def _resize(self, key: PodKey, needs: Needs) -> News:
        known = self._pods[key]
        if needs == known.needs:
            return ()
        self._put(key, replace(known, needs=needs))
        is_less = any(needs.amounts.get(name, 0) < nanos for name, nanos in known.needs.amounts.items())
        return (NODE_RESOURCES_FREED,) if is_less else ()

    def _put(self, key: PodKey, on_node: _OnNode) -> None:
        if key in self._pods:
            self._drop(key)
        self._pods[key] = on_node
        for claim_id in on_node.uses:
            self._users.setdefault(claim_id, set()).add(key)
        self._set_load(on_node.node, self._load(on_node.node).plus(on_node.needs))

    def _drop(self, key: PodKey) -> None:
        on_node = self._pods.pop(key)
        for claim_id in on_node.uses:
            users = self._users[claim_id]
            users.remove(key)
            if not users:
                del self._users[claim_id]
        self._set_load(on_node.node, self._load(on_node.node).minus(on_node.needs))

    def _load(self, node: str) -> Load:
        state = self.nodes.get(node)
        return state.load if state is not None else self._loads.get(node, EMPTY)

    def _set_load(self, node: str, load: Load) -> None:
        state = self.nodes.get(node)
        if state is None:
            self._loads[node] = load
        else:
            self.nodes[node] = state.with_load(load)
            self.changes.add(NodeChanged(node))

    # --- Claims ---------------------------------------------------------------------------------------------------

    def claim_changed(self, before: ResourceClaim | None, after: ResourceClaim | None) -> News:
        """News of a claim, from a watch. Older news than what we have is none."""
        if after is None:
            assert before is not None
            return self._forget_claim(before)
        claim_id = ClaimId.of(after)
        state = self._claims.get(claim_id)
        if state is not None and state.stored.metadata.uid != after.metadata.uid:
            return (*self._forget_claim(state.stored), *self.claim_changed(None, after))
        if state is None:
            self._claims[claim_id] = _ClaimState(after)
            self._use(after)
            return (claim_changed(claim_id),)
        return self._update_claim(state, after) if _revision(after) > _revision(state.stored) else ()

    def claim_written(self, claim: ResourceClaim) -> News:
        """What the API answered to a write of ours; it may come before the watch shows it, or long after."""
        state = self._claims.get(ClaimId.of(claim))
        if state is None or state.stored.metadata.uid != claim.metadata.uid:
            return ()
        return self.claim_changed(state.stored, claim)

    def _update_claim(self, state: _ClaimState, after: ResourceClaim) -> News:
        before = state.stored
        state.stored = after
        if after.status.allocation is not None:
            state.allocation = None
            if before.status.allocation is None:
                state.allocated_at, state.is_proven = _revision(after), False
        listed = {reference.uid for reference in after.status.reserved_for}
        state.consumers = {uid: consumer for uid, consumer in state.consumers.items() if consumer.uid not in listed}
        state.forget_effective()
        self._use(state.effective)
        news: list[ClusterEvent] = []
        if before.status.allocation is not None and after.status.allocation is None:
            news.append(DEVICES_FREED)
        if before.status != after.status or before.metadata.deletion_timestamp != after.metadata.deletion_timestamp:
            news.append(claim_changed(ClaimId.of(after)))
        return tuple(news)

    def _forget_claim(self, claim: ResourceClaim) -> News:
        claim_id = ClaimId.of(claim)
        state = self._claims.get(claim_id)
        if state is None or state.stored.metadata.uid != claim.metadata.uid:
            return ()
        del self._claims[claim_id]
        was_allocated = state.effective.status.allocation is not None
        self._use(replace(state.stored, status=replace(state.stored.status, allocation=None)))
        return (DEVICES_FREED, claim_changed(claim_id)) if was_allocated else (claim_changed(claim_id),)

    def _use(self, claim: ResourceClaim) -> None:
        """Count what the claim uses, in place of what it used before."""
        known = self.snapshot.claims.get(ClaimId.of(claim))
        if (known.status.allocation if known is not None else None) == claim.status.allocation:
            return
        self.snapshot = self.snapshot.with_claim(claim)
        if known is not None:
            for pool_id in pools_used(known):
                self.changes.add(PoolFreed(pool_id))
        for pool_id in pools_used(claim):
            self.changes.add(PoolTaken(pool_id))

    # --- Devices --------------------------------------------------------------------------------------------------

    def slice_changed(self, before: ResourceSlice | None, after: ResourceSlice | None) -> News:
        changed = self.snapshot
        if before is not None and (after is None or not self._owns_pool(PoolId.of_slice(after))):
            changed = changed.without_slice(before.metadata.name)
        if after is not None and self._owns_pool(PoolId.of_slice(after)):
            changed = changed.with_slice(after)
        if changed is self.snapshot:
            return ()
        pools = {PoolId.of_slice(seen) for seen in (before, after) if seen is not None}
        seen_by = _nodes_of_pools(self.snapshot, pools) | _nodes_of_pools(changed, pools)
        self.snapshot = changed
        # A slice that does not name its node may be for any.
        for node in seen_by:
            self.changes.add(NodeChanged(node) if node else EverythingChanged())
        return (DEVICES_CHANGED,)

    def rule_changed(self, before: DeviceTaintRule | None, after: DeviceTaintRule | None) -> News:
        if after is not None:
            if before is not None and before.spec == after.spec:
                return ()
            self.snapshot = self.snapshot.with_rule(after)
        elif before is not None:
            self.snapshot = self.snapshot.without_rule(before.metadata.name)
        self.changes.add(EverythingChanged())
        return (DEVICES_CHANGED,)

    def class_changed(self, before: DeviceClass | None, after: DeviceClass | None) -> News:
        if after is not None:
            self.classes[after.metadata.name] = after
            if before is None or before.spec != after.spec:
                return (class_changed(after.metadata.name),)
        elif before is not None:
            self.classes.pop(before.metadata.name, None)
        return ()


def _nodes_of_pools(snapshot: Snapshot, pools: Iterable[PoolId]) -> frozenset[str]:
    """The nodes that the pools' slices name; an empty name where one does not."""
    known = (snapshot.pools.get(pool_id) for pool_id in pools)
    return frozenset(indexed.node_name for pool in known if pool is not None for indexed in pool.slices)


def _uses_of(pod: Pod) -> tuple[ClaimId, ...]:
    """Each once, as a pod may name a claim twice."""
    return tuple(dict.fromkeys(ClaimId(pod.metadata.namespace, use.claim) for use in claims_of(pod)))


def _revision(claim: ResourceClaim) -> int:
    """Revisions of one server are numbers that grow. One that is none is older than everything."""
    text = claim.metadata.resource_version
    return int(text) if text.isdecimal() else 0
