"""Persistent volumes, the claims to them and the storage behind them, with decisions that are not written yet.

A volume that is chosen for a claim is taken, and a claim whose volume will be made has its node, from the moment that the decision
is assumed. Pods without such volumes leave no trace here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from typing import Generic, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from dralloc.devices.node_selectors import NodeFacts, NodeSelectorError, matches
from dralloc.kube.core_v1 import ObjectReference
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_v1 import Pod, Volume
from dralloc.kube.storage_v1 import CSINode
from dralloc.kube.volume_claims import (
    SELECTED_NODE,
    VolumeClaimKey,
    VolumeClaimUse,
    class_of_volume,
    volume_claims_of,
)
from dralloc.kube.volumes_v1 import (
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from dralloc.scheduler.state.cluster_events import VOLUMES_CHANGED, Events, volume_claim_changed
from dralloc.scheduler.state.placed_pods import PodKey, pod_key
from dralloc.scheduler.state.tracked_claim import revision_of

KeyT = TypeVar("KeyT")
MemberT = TypeVar("MemberT")
ValueT = TypeVar("ValueT")
StoredT = TypeVar("StoredT", bound=ApiObject)


class VolumePlan(Struct, frozen=True, gc=False):
    """How the unbound claims of a pod get volumes on its node: by the name of an existing volume, or of a new one."""

    chosen: Mapping[VolumeClaimKey, str] = field(default_factory=dict)
    provisioned: tuple[VolumeClaimKey, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.chosen or self.provisioned)


class PlacedVolumes(Struct, frozen=True, gc=False):
    """The volumes of a placed pod that other pods have to respect."""

    node: str
    pod_uid: str
    claims: tuple[VolumeClaimUse, ...]
    disks: tuple[Volume, ...]


def has_volumes(pod: Pod) -> bool:
    """True if volumes of the pod may restrict it to some nodes. Most pods have others only, so this is written to be fast."""
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
            return True
        if volume.gce_persistent_disk or volume.aws_elastic_block_store or volume.iscsi or volume.rbd:
            return True
        if volume.azure_disk or volume.cinder or volume.portworx_volume:
            return True
    return False


def is_disk(volume: Volume) -> bool:
    """True for disks that a pod names itself: some cannot be shared, some count for the limits of a driver."""
    shared = volume.gce_persistent_disk or volume.aws_elastic_block_store or volume.iscsi or volume.rbd
    return bool(shared or volume.azure_disk or volume.cinder or volume.portworx_volume)


class VolumeState:
    def __init__(self) -> None:
        self.classes: dict[str, StorageClass] = {}
        self.csi_nodes: dict[str, CSINode] = {}
        self.drivers: dict[str, CSIDriver] = {}
        self.capacities: dict[tuple[str, str], CSIStorageCapacity] = {}
        self._volumes: _NewestObjects[str, PersistentVolume] = _NewestObjects()
        self._by_class: dict[str, dict[str, None]] = {}
        self._claims: _NewestObjects[VolumeClaimKey, PersistentVolumeClaim] = _NewestObjects()
        self._attachments: dict[str, dict[str, VolumeAttachment]] = {}
        self._pods: dict[PodKey, PlacedVolumes] = {}
        self._on_nodes: dict[str, dict[PodKey, PlacedVolumes]] = {}
        self._users: dict[VolumeClaimKey, set[PodKey]] = {}
        # Decisions that are not stored: by the pod's UID, and what they mean for volumes and claims.
        self._plans: dict[str, VolumePlan] = {}
        self._chosen: dict[str, VolumeClaimKey] = {}
        self._selected_nodes: dict[VolumeClaimKey, str] = {}

    # --- What decisions read ----------------------------------------------------------------------------------------

    def find_volume(self, name: str) -> PersistentVolume | None:
        """The volume with the decisions about it applied."""
        stored = self._volumes.find(name)
        key = self._chosen.get(name) if self._chosen else None
        if stored is None or key is None or (stored.spec.claim_ref is not None and stored.spec.claim_ref.uid):
            return stored
        claim = self._claims.find(key)
        reference = ObjectReference(
            namespace=key.namespace, name=key.name, uid=claim.metadata.uid if claim is not None else ""
        )
        return replace(stored, spec=replace(stored.spec, claim_ref=reference))

    def find_claim(self, key: VolumeClaimKey) -> PersistentVolumeClaim | None:
        """The claim with the decisions about it applied."""
        stored = self._claims.find(key)
        node = self._selected_nodes.get(key) if self._selected_nodes else None
        if stored is None or node is None or SELECTED_NODE in stored.metadata.annotations:
            return stored
        annotations = {**stored.metadata.annotations, SELECTED_NODE: node}
        return replace(stored, metadata=replace(stored.metadata, annotations=annotations))

    def volumes_of_class(self, name: str) -> Iterable[PersistentVolume]:
        """In the order of their names."""
        found = map(self.find_volume, sorted(self._by_class.get(name, ())))
        return (volume for volume in found if volume is not None)

    def user_of(self, key: VolumeClaimKey) -> PodKey | None:
        """A pod that has a node, or is assumed to get one, and names the claim."""
        return min(self._users.get(key, ()), default=None)

    def pods_on(self, node: str) -> Mapping[PodKey, PlacedVolumes]:
        """The pods on the node that have volumes."""
        return self._on_nodes.get(node, {})

    def attachments_on(self, node: str) -> Iterable[VolumeAttachment]:
        return self._attachments.get(node, {}).values()

    # --- What binding reads -----------------------------------------------------------------------------------------

    def stored_volume(self, name: str) -> PersistentVolume | None:
        return self._volumes.find(name)

    def stored_claim(self, key: VolumeClaimKey) -> PersistentVolumeClaim | None:
        return self._claims.find(key)

    # --- Pods -------------------------------------------------------------------------------------------------------

    def put(self, pod: Pod, node: str) -> None:
        """Adds the pod; one that is on the node already stays as it is, because volumes of pods do not change."""
        if not pod.spec.volumes or not has_volumes(pod):
            return
        key = pod_key(pod)
        known = self._pods.get(key)
        if known is not None and (known.node, known.pod_uid) == (node, pod.metadata.uid):
            return
        self.remove(key)
        claims, disks = tuple(volume_claims_of(pod)), tuple(filter(is_disk, pod.spec.volumes))
        placed = self._pods[key] = PlacedVolumes(node, pod.metadata.uid, claims, disks)
        self._on_nodes.setdefault(node, {})[key] = placed
        for use in claims:
            if not use.is_ephemeral:
                self._users.setdefault(use.key, set()).add(key)

    def remove(self, key: PodKey) -> None:
        known = self._pods.pop(key, None)
        if known is None:
            return
        _drop(self._on_nodes, known.node, key)
        for claim in {use.key for use in known.claims if not use.is_ephemeral}:
            self._users[claim].discard(key)
            if not self._users[claim]:
                del self._users[claim]

    def without(self, keys: Iterable[PodKey]) -> VolumeState:
        """The state without these pods. This one stays as it is."""
        reduced = copy(self)
        reduced._pods = dict(self._pods)
        reduced._on_nodes = {node: dict(pods) for node, pods in self._on_nodes.items()}
        reduced._users = {claim: set(pods) for claim, pods in self._users.items()}
        for key in keys:
            reduced.remove(key)
        return reduced

    def assume(self, pod: Pod, node: str, plan: VolumePlan) -> None:
        self._plans[pod.metadata.uid] = plan
        self._chosen |= {volume: key for key, volume in plan.chosen.items()}
        self._selected_nodes |= dict.fromkeys(plan.provisioned, node)

    def forget(self, pod_uid: str) -> Events:
        """Takes back what was assumed for the pod. Pods that share a claim share the decision about it."""
        plan = self._plans.pop(pod_uid, None) if self._plans else None
        if plan is None:
            return ()
        kept = [other for other in self._plans.values() if other.chosen or other.provisioned]
        for key, volume in plan.chosen.items():
            if all(other.chosen.get(key) != volume for other in kept):
                self._chosen.pop(volume, None)
        for key in plan.provisioned:
            if all(key not in other.provisioned for other in kept):
                self._selected_nodes.pop(key, None)
        return (VOLUMES_CHANGED,)

    # --- Objects ----------------------------------------------------------------------------------------------------

    def volume_changed(self, before: PersistentVolume | None, after: PersistentVolume | None) -> Events:
        """Takes a volume from a watch or from the answer to a write. An older revision is ignored."""
        volume = after or before
        assert volume is not None
        name = volume.metadata.name
        known = self._volumes.find(name)
        if not self._volumes.change(name, before, after):
            return ()
        if known is not None:
            _drop(self._by_class, class_of_volume(known), name)
        if after is not None:
            self._by_class.setdefault(class_of_volume(after), {})[name] = None
        return (VOLUMES_CHANGED,)

    def claim_changed(self, before: PersistentVolumeClaim | None, after: PersistentVolumeClaim | None) -> Events:
        claim = after or before
        assert claim is not None
        key = VolumeClaimKey.of(claim)
        return (volume_claim_changed(key),) if self._claims.change(key, before, after) else ()

    def class_changed(self, before: StorageClass | None, after: StorageClass | None) -> Events:
        return _changed(self.classes, _name(before or after), after)

    def csi_node_changed(self, before: CSINode | None, after: CSINode | None) -> Events:
        return _changed(self.csi_nodes, _name(before or after), after)

    def driver_changed(self, before: CSIDriver | None, after: CSIDriver | None) -> Events:
        return _changed(self.drivers, _name(before or after), after)

    def capacity_changed(self, before: CSIStorageCapacity | None, after: CSIStorageCapacity | None) -> Events:
        capacity = before or after
        assert capacity is not None
        return _changed(self.capacities, (capacity.metadata.namespace, capacity.metadata.name), after)

    def attachment_changed(self, before: VolumeAttachment | None, after: VolumeAttachment | None) -> Events:
        name = _name(before or after)
        if before is not None:
            _drop(self._attachments, before.spec.node_name, name)
        if after is not None:
            self._attachments.setdefault(after.spec.node_name, {})[name] = after
        return (VOLUMES_CHANGED,) if after is None else ()


class _NewestObjects(Generic[KeyT, StoredT]):
    """Objects that arrive from a watch and from answers to writes, in any order: the newest of each is kept."""

    def __init__(self) -> None:
        self._objects: dict[KeyT, StoredT] = {}

    def find(self, key: KeyT) -> StoredT | None:
        return self._objects.get(key)

    def change(self, key: KeyT, before: StoredT | None, after: StoredT | None) -> bool:
        """False if a newer object is known."""
        known = self._objects.get(key)
        if after is None:
            assert before is not None
            if known is None or known.metadata.uid != before.metadata.uid:
                return False
            del self._objects[key]
            return True
        if known is not None and known.metadata.uid == after.metadata.uid and revision_of(after) < revision_of(known):
            return False
        self._objects[key] = after
        return after != known


def _name(item: ApiObject | None) -> str:
    assert item is not None
    return item.metadata.name


def _changed(known: dict[KeyT, StoredT], key: KeyT, after: StoredT | None) -> Events:
    """Keeps the object. What only its metadata says helps no pod."""
    before = known.pop(key, None)
    if after is None:
        return ()
    known[key] = after
    is_same = before is not None and replace(before, metadata=after.metadata) == after
    return () if is_same else (VOLUMES_CHANGED,)


def _drop(groups: dict[KeyT, dict[MemberT, ValueT]], group: KeyT, key: MemberT) -> None:
    members = groups.get(group)
    if members is not None:
        members.pop(key, None)
        if not members:
            del groups[group]


# --- Volume reach ---------------------------------------------------------------------------------------------------
# Which nodes can use a persistent volume.


def is_reachable(volume: PersistentVolume, place: NodeFacts) -> bool:
    """True if the volume's node affinity allows a node with these labels."""
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    try:
        return matches(affinity.required, place)
    except NodeSelectorError:
        return False
