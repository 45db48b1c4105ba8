"""The cluster without some of its pods, as a view that decisions can read. Nothing is changed: each view shares the rest.

What a pod leaves behind follows the rules of the claim controller: a claim is deallocated once it has no reservation and no pod
uses it. A claim that another pod shares, or that a workload holds, keeps its devices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TypeVar

from msgspec.structs import replace

from dralloc.devices.identity import ClaimId
from dralloc.kube.extended_resources import ExtendedResourceClasses
from dralloc.kube.pod_claims import CLAIM_FINALIZER, controller_of, is_pod
from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim, ResourceClaimStatus
from dralloc.scheduler.state.change_log import ChangeLog
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.scheduler.state.node_state import NodeState
from dralloc.scheduler.state.placed_pods import PlacedPod, PodKey, pod_key
from dralloc.scheduler.state.pod_topology import PodTopology
from dralloc.scheduler.state.volume_state import VolumeState

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")


class _Overlay(Mapping[KeyT, ValueT]):
    """A mapping with some values replaced."""

    def __init__(self, base: Mapping[KeyT, ValueT], changed: Mapping[KeyT, ValueT]) -> None:
        self._base = base
        self._changed = changed

    def __getitem__(self, key: KeyT) -> ValueT:
        return self._changed[key] if key in self._changed else self._base[key]

    def __iter__(self) -> Iterator[KeyT]:
        return iter(self._base)

    def __len__(self) -> int:
        return len(self._base)


class ReducedView:
    """A `ClusterView`. `removed` are the pods that it leaves out; it does not follow changes of the cluster."""

    def __init__(self, cluster: ClusterState, *, releases: bool = True) -> None:
        """All pods are left in; claims that only pods hold which are gone are deallocated already, if it `releases` them."""
        self._cluster = cluster
        self.removed: frozenset[PodKey] = frozenset()
        self.snapshot = cluster.snapshot
        self.changes = ChangeLog()
        self._nodes: dict[str, NodeState] = {}
        # Claims that are not as the cluster has them.
        self.claims: dict[ClaimId, ResourceClaim] = {}
        self._removed_uids: frozenset[str] = frozenset()
        if releases:
            for claim in _unheld_claims(cluster):
                self._release(ClaimId.of(claim), claim)

    def without(self, keys: Collection[PodKey]) -> ReducedView:
        """The view without these pods, too."""
        reduced = object.__new__(ReducedView)
        reduced._cluster, reduced.changes = self._cluster, self.changes
        pods = [found for key in keys if (found := self._cluster.placed_pods.find(key)) is not None]
        reduced.removed = self.removed.union(keys)
        reduced._removed_uids = self._removed_uids.union(pod.uid for pod in pods)
        reduced.snapshot, reduced._nodes, reduced.claims = self.snapshot, dict(self._nodes), dict(self.claims)
        for pod in pods:
            if (node := reduced._nodes.get(pod.node) or self._cluster.nodes.get(pod.node)) is not None:
                reduced._nodes[pod.node] = node.with_load(node.load.minus(pod.needs))
        for claim_id in {claim_id for pod in pods for claim_id in pod.claims}:
            # Devices of nominated pods are counted under claims that only the snapshot has.
            claim = reduced.find_claim(claim_id) or self.snapshot.claims.get(claim_id)
            if claim is not None and claim.status.allocation is not None:
                reduced._release(claim_id, claim)
        return reduced

    # --- The view ---------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> Mapping[str, NodeState]:
        return _Overlay(self._cluster.nodes, self._nodes)

    @property
    def classes(self) -> Mapping[str, DeviceClass]:
        return self._cluster.classes

    @cached_property
    def pod_topology(self) -> PodTopology:
        return self._cluster.pod_topology.without(map(self._own_key, self.removed))

    @cached_property
    def volumes(self) -> VolumeState:
        return self._cluster.volumes.without(map(self._own_key, self.removed))

    def find_claim(self, claim_id: ClaimId) -> ResourceClaim | None:
        return self.claims.get(claim_id) or self._cluster.find_claim(claim_id)

    def is_in_use(self, claim_id: ClaimId) -> bool:
        return any(key not in self.removed for key in self._cluster.placed_pods.users(claim_id))

    @property
    def extended_classes(self) -> ExtendedResourceClasses:
        return self._cluster.extended_classes

    def extended_claim_of(self, pod_uid: str) -> ClaimId | None:
        return self._cluster.extended_claim_of(pod_uid)

    @property
    def differs(self) -> bool:
        """True if pods are left out, or claims deallocated."""
        return bool(self.removed or self.claims)

    # --- Claims -----------------------------------------------------------------------------------------------------

    def frees(self, pod: PlacedPod) -> Iterable[ClaimId]:
        """The claims of a pod that the view leaves out which have lost their devices."""
        return (each for each in pod.claims if each in self.claims and self.claims[each].status.allocation is None)

    def _release(self, claim_id: ClaimId, claim: ResourceClaim) -> None:
        """Takes the removed pods from the claim; deallocates it if the claim controller would."""
        removed = self._removed_uids
        kept = tuple(
            each for each in claim.status.reserved_for if each.uid not in removed and self._cluster.is_alive(each)
        )
        owner = controller_of(claim.metadata)
        is_temporary = not claim_id.namespace or CLAIM_FINALIZER in claim.metadata.finalizers
        if kept or self.is_in_use(claim_id) or not (is_temporary or (owner is not None and owner.uid in removed)):
            self.claims[claim_id] = replace(claim, status=replace(claim.status, reserved_for=kept))
            return
        self.claims[claim_id] = replace(claim, status=ResourceClaimStatus())
        self.snapshot = self.snapshot.without_claim(claim_id)

    def _own_key(self, key: PodKey) -> PodKey:
        pod = self._cluster.placed_pods.find(key)
        return pod_key(pod.pod) if pod is not None else key


def _unheld_claims(cluster: ClusterState) -> list[ResourceClaim]:
    """The allocated claims with consumers that are gone, or without any. Written to be fast: it looks at every claim."""
    living, unheld = cluster.living, []
    for tracked in cluster.claims.all():
        claim = tracked.effective
        status = claim.status
        if status.allocation is None:
            continue
        if not status.reserved_for:
            unheld.append(claim)
            continue
        for consumer in status.reserved_for:
            if consumer.uid not in living and is_pod(consumer):
                unheld.append(claim)
                break
    return unheld
