"""What the volumes of a pod mean for nodes, as Kubernetes' VolumeRestrictions, NodeVolumeLimits, VolumeBinding and VolumeZone
decide it, in this order."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dralloc.devices.node_selectors import (
    ANYWHERE,
    Anchor,
    NodeFacts,
    anchors,
    anchors_of_node,
)
from dralloc.kube.pod_v1 import Volume
from dralloc.kube.volume_claims import (
    NO_PROVISIONER,
    READ_WRITE_ONCE_POD,
    SELECTED_NODE,
    STORAGE,
    VolumeClaimKey,
    capacity_of,
    class_of_claim,
    class_of_volume,
    is_bound_to,
    is_possible_for,
    may_be_chosen_for,
    requested_storage,
)
from dralloc.kube.volumes_v1 import (
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    StorageClass,
)
from dralloc.primitives.quantity import Quantity
from dralloc.primitives.work_allowance import check_work, work_done
from dralloc.scheduler.decide.node_fit import NodeMisfit
from dralloc.scheduler.decide.pod_volumes import BINDING, RESTRICTIONS, ZONE, PodVolumes
from dralloc.scheduler.state.node_state import NodeState
from dralloc.scheduler.state.volume_state import VolumePlan, VolumeState, is_reachable

LIMITS: Final = "NodeVolumeLimits"
NO_DISK: Final = "had no available disk"
IN_USE: Final = (
    "unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
TOO_MANY: Final = "exceed max volume count"
WRONG_PLACE: Final = "didn't match PersistentVolume's node affinity"
NO_SUCH_VOLUME: Final = "unavailable due to one or more pvc(s) bound to non-existent pv(s)"
WRONG_ZONE: Final = "had no available volume zone"

# To compare two disks.
WORK_OF_DISKS: Final = 10

ZONE_LABEL: Final = "topology.kubernetes.io/zone"
REGION_LABEL: Final = "topology.kubernetes.io/region"
# The labels that place volumes and nodes, with the newer label for each.
TOPOLOGY_LABELS: Final[Mapping[str, str]] = {
    "failure-domain.beta.kubernetes.io/zone": ZONE_LABEL,
    "failure-domain.beta.kubernetes.io/region": REGION_LABEL,
    ZONE_LABEL: ZONE_LABEL,
    REGION_LABEL: REGION_LABEL,
}

# A driver and the volume's name there, or the claim whose volume is not made yet.
_VolumeId = tuple[str, str | VolumeClaimKey]


class _Replaced(NamedTuple):
    """A plugin of Kubernetes that a CSI driver has replaced, and where it has the name of a volume."""

    provisioner: str
    driver: str
    name: str


REPLACED: Final[Mapping[str, _Replaced]] = {
    "aws_elastic_block_store": _Replaced("kubernetes.io/aws-ebs", "ebs.csi.aws.com", "volumeID"),
    "azure_disk": _Replaced("kubernetes.io/azure-disk", "disk.csi.azure.com", "diskURI"),
    "cinder": _Replaced("kubernetes.io/cinder", "cinder.csi.openstack.org", "volumeID"),
    "gce_persistent_disk": _Replaced("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "pdName"),
    "portworx_volume": _Replaced("kubernetes.io/portworx-volume", "pxd.portworx.com", "volumeID"),
}
_DRIVERS: Final = {each.provisioner: each.driver for each in REPLACED.values()}


class VolumeRules:
    """The rules for one pod at one moment."""

    def __init__(self, pod: PodVolumes, volumes: VolumeState) -> None:
        self._pod = pod
        self._volumes = volumes
        self._chooser = VolumeChooser(pod.unbound, volumes) if pod.unbound else None
        self._held = next((claim for claim in pod.named if self._is_held(claim)), None)
        self._new = frozenset((*_volume_ids(pod.claims, volumes), *_disk_ids(pod.disks)))
        self._replaced = frozenset(_replaced_ids(pod, volumes)) if self._new else frozenset()
        self._choices: dict[str, VolumeChoice] = {}
        self._misfits: dict[str, NodeMisfit | None] = {}

    def misfit(self, node: NodeState) -> NodeMisfit | None:
        if node.name not in self._misfits:
            self._misfits[node.name] = next(self._problems(node), None)
        return self._misfits[node.name]

    def plan(self, node: NodeState) -> VolumePlan | None:
        """What becomes of the unbound claims on a node that fits; None if there are none."""
        if self._chooser is None:
            return None
        self.misfit(node)
        return self._choices[node.name].plan

    def scores(self, nodes: Collection[NodeState]) -> Mapping[str, int]:
        """How much storage stays free, for nodes that fit."""
        if self._chooser is None:
            return {}
        return {node.name: self._choices[node.name].score for node in nodes if self.misfit(node) is None}

    def _problems(self, node: NodeState) -> Iterator[NodeMisfit]:
        if self._pod.disks and self._has_conflict(node.name):
            yield NodeMisfit(RESTRICTIONS, NO_DISK)
        if self._held is not None:
            yield NodeMisfit(RESTRICTIONS, f"{IN_USE} (claim {VolumeClaimKey.of(self._held)})")
        if self._new and (refused := self._over_limit(node.name)):
            yield NodeMisfit(LIMITS, refused)
        if reasons := tuple(self._unbindable(node)):
            yield NodeMisfit(BINDING, ", ".join(reasons))
        if wrong := self._in_other_zone(node.offer.labels):
            yield NodeMisfit(ZONE, f"{WRONG_ZONE} (volume {wrong.metadata.name})")

    # --- Volumes that others use ------------------------------------------------------------------------------------

    def _is_held(self, claim: PersistentVolumeClaim) -> bool:
        """True if only one pod may use the claim, and one does."""
        only_one = READ_WRITE_ONCE_POD in claim.spec.access_modes
        return only_one and self._volumes.user_of(VolumeClaimKey.of(claim)) is not None

    def _has_conflict(self, node: str) -> bool:
        taken = [disk for placed in self._volumes.pods_on(node).values() for disk in placed.disks]
        check_work()
        work_done(WORK_OF_DISKS * len(taken) * len(self._pod.disks))
        check_work()
        return any(_excludes(disk, other) for disk in self._pod.disks for other in taken)

    # --- Limits -----------------------------------------------------------------------------------------------------

    def _over_limit(self, node: str) -> str | None:
        """Why the node's storage drivers cannot serve the volumes."""
        csi_node = self._volumes.csi_nodes.get(node)
        installed = csi_node.spec.drivers if csi_node is not None else ()
        names = {driver.name for driver in installed}
        # A plugin counts as replaced on nodes that have drivers at all.
        new = self._new if csi_node is not None else self._new - self._replaced
        for driver in sorted({driver for driver, _ in new} - names):
            known = self._volumes.drivers.get(driver)
            if known is not None and known.spec.prevent_pod_scheduling_if_missing:
                return f"{driver} CSI driver is not installed on the node"
        limits = {
            driver.name: driver.allocatable.count
            for driver in installed
            if driver.allocatable is not None and driver.allocatable.count is not None
        }
        if not limits:
            return None
        used = frozenset(self._used_on(node))
        attached = Counter(driver for driver, _ in used | frozenset(self._attached_to(node)))
        added = Counter(driver for driver, _ in self._new - used)
        for driver, count in added.items():
            if driver in limits and attached[driver] + count > limits[driver]:
                return f"{TOO_MANY} (driver {driver}, limit {limits[driver]})"
        return None

    def _used_on(self, node: str) -> Iterator[_VolumeId]:
        for placed in self._volumes.pods_on(node).values():
            claims = (self._volumes.stored_claim(use.key) for use in placed.claims)
            yield from _volume_ids((claim for claim in claims if claim is not None), self._volumes)
            yield from _disk_ids(placed.disks)

    def _attached_to(self, node: str) -> Iterator[_VolumeId]:
        for attachment in self._volumes.attachments_on(node):
            volume = self._volumes.stored_volume(attachment.spec.source.persistent_volume_name or "")
            if attachment.spec.attacher and volume is not None and volume.spec.csi is not None:
                yield attachment.spec.attacher, volume.spec.csi.volume_handle

    # --- Where the volumes are --------------------------------------------------------------------------------------

    def _unbindable(self, node: NodeState) -> Iterator[str]:
        place = NodeFacts("", node.offer.labels)
        lost = False
        for claim in self._pod.bound:
            volume = self._volumes.find_volume(claim.spec.volume_name)
            if volume is None:
                lost = True
                break
            if not is_reachable(volume, place):
                yield f"{WRONG_PLACE} (volume {volume.metadata.name})"
                break
        if self._chooser is not None:
            choice = self._choices[node.name] = self._chooser.on(node.name, place)
            if choice.reason:
                yield f"{choice.reason} (claim {choice.claim})"
        if lost:
            yield NO_SUCH_VOLUME

    def _in_other_zone(self, labels: Mapping[str, str]) -> PersistentVolume | None:
        """A volume that is not in the node's zone or region. Nodes without such labels are everywhere."""
        if not self._pod.named_volumes or labels.keys().isdisjoint(TOPOLOGY_LABELS):
            return None
        return next((each for each in self._pod.named_volumes if not _is_in_zone(each.metadata.labels, labels)), None)


def _is_in_zone(volume: Mapping[str, str], node: Mapping[str, str]) -> bool:
    for key, newer in TOPOLOGY_LABELS.items():
        if key in volume:
            zones = [zone.strip() for zone in volume[key].split("__")]
            # Kubernetes ignores a label that it cannot read.
            if all(zones) and node.get(key, node.get(newer)) not in zones:
                return False
    return True


def _volume_ids(claims: Iterable[PersistentVolumeClaim], volumes: VolumeState) -> Iterator[_VolumeId]:
    """The volumes of storage drivers that the claims have, or will have."""
    for claim in claims:
        volume = volumes.stored_volume(claim.spec.volume_name)
        if volume is None:
            storage_class = volumes.classes.get(class_of_claim(claim))
            if storage_class is not None and (provisioner := storage_class.provisioner):
                yield _DRIVERS.get(provisioner, provisioner), VolumeClaimKey.of(claim)
        elif (source := volume.spec.csi) is None:
            yield from _sources(volume.spec)
        elif source.driver and source.volume_handle:
            yield source.driver, source.volume_handle


def _disk_ids(disks: Iterable[Volume]) -> Iterator[_VolumeId]:
    for disk in disks:
        yield from _sources(disk)


def _sources(owner: Volume | PersistentVolumeSpec) -> Iterator[_VolumeId]:
    """The volume of a plugin that a driver has replaced, under the driver's name."""
    for member, replaced in REPLACED.items():
        if source := getattr(owner, member):
            yield replaced.driver, str(source.get(replaced.name))


def _replaced_ids(pod: PodVolumes, volumes: VolumeState) -> Iterator[_VolumeId]:
    """Those of the pod's volumes that name a replaced plugin and no driver."""
    yield from _disk_ids(pod.disks)
    for claim in pod.claims:
        volume = volumes.stored_volume(claim.spec.volume_name)
        storage_class = volumes.classes.get(class_of_claim(claim))
        if volume is not None and volume.spec.csi is None:
            yield from _sources(volume.spec)
        elif volume is None and storage_class is not None and storage_class.provisioner in _DRIVERS:
            yield _DRIVERS[storage_class.provisioner], VolumeClaimKey.of(claim)


def _excludes(disk: Volume, other: Volume) -> bool:
    """True if two pods of a node cannot use these: the same disk, unless both only read it."""

    def both(one: dict[str, Any] | None, two: dict[str, Any] | None, key: str) -> bool:
        return bool(one and two) and one.get(key) == two.get(key)  # type: ignore[union-attr]

    if both(disk.aws_elastic_block_store, other.aws_elastic_block_store, "volumeID"):
        return True
    if both(disk.gce_persistent_disk, other.gce_persistent_disk, "pdName"):
        return not _read_only(disk.gce_persistent_disk, other.gce_persistent_disk)
    if both(disk.iscsi, other.iscsi, "iqn"):
        return not _read_only(disk.iscsi, other.iscsi)
    if disk.rbd and other.rbd:
        monitors = set(disk.rbd.get("monitors") or ()) & set(other.rbd.get("monitors") or ())
        pools = [each.get("pool") or "rbd" for each in (disk.rbd, other.rbd)]
        is_same = monitors and pools[0] == pools[1] and both(disk.rbd, other.rbd, "image")
        return bool(is_same) and not _read_only(disk.rbd, other.rbd)
    return False


def _read_only(*disks: dict[str, Any] | None) -> bool:
    return all(disk is not None and disk.get("readOnly") for disk in disks)


# --- Volume choice --------------------------------------------------------------------------------------------------
# Which volume each unbound claim of a pod gets on a node, as Kubernetes' VolumeBinding decides it.
#
# A free volume is preferred, the smallest that is large enough; without one, a new volume is made if the storage
# class has a provisioner that can make it for the node.


NO_VOLUME: Final = "didn't find available persistent volumes to bind"
NO_SPACE: Final = "did not have enough free storage"
NANOS: Final = 1_000_000_000
SCORE_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class VolumeChoice:
    """The volumes for a node and the score of the node, or why there are none, and for which claim."""

    plan: VolumePlan | None = None
    score: int = 0
    reason: str = ""
    claim: VolumeClaimKey | None = None


class VolumeChooser:
    """Chooses volumes for the unbound claims of one pod at one moment."""

    def __init__(self, claims: Iterable[PersistentVolumeClaim], volumes: VolumeState) -> None:
        self._volumes = volumes
        unbound = {VolumeClaimKey.of(claim): claim for claim in claims}
        self._selected = {key: claim for key, claim in unbound.items() if SELECTED_NODE in claim.metadata.annotations}
        free = sorted((claim for key, claim in unbound.items() if key not in self._selected), key=requested_storage)
        self._candidates = tuple(_Candidates(claim, volumes) for claim in free)

    def on(self, name: str, place: NodeFacts) -> VolumeChoice:
        """The choice for the node with this name; `place` has only its labels, because volumes are not tied to names."""
        for key, claim in self._selected.items():
            if claim.metadata.annotations[SELECTED_NODE] != name:
                return VolumeChoice(reason=NO_VOLUME, claim=key)
        chosen: dict[str, tuple[PersistentVolumeClaim, PersistentVolume]] = {}
        missing = list(self._selected.values())
        for candidates in self._candidates:
            volume = candidates.on(place, chosen)
            if volume is None:
                missing.append(candidates.claim)
            else:
                chosen[volume.metadata.name] = candidates.claim, volume
        provisions = [(claim, self._provision(claim, place)) for claim in missing]
        for claim, found in provisions:
            if isinstance(found, str):
                return VolumeChoice(reason=found, claim=VolumeClaimKey.of(claim))
        plan = VolumePlan(
            {VolumeClaimKey.of(claim): volume for volume, (claim, _) in chosen.items()},
            tuple(map(VolumeClaimKey.of, missing)),
        )
        capacities = [(claim, found) for claim, found in provisions if isinstance(found, CSIStorageCapacity)]
        return VolumeChoice(plan, _score(chosen.values(), capacities))

    def _provision(self, claim: PersistentVolumeClaim, place: NodeFacts) -> CSIStorageCapacity | str | None:
        """Why no volume can be made for the node; else the storage that it would come from, if it is known."""
        storage_class = self._volumes.classes[class_of_claim(claim)]
        if storage_class.provisioner in ("", NO_PROVISIONER) or not _is_allowed(storage_class, place):
            return NO_VOLUME
        driver = self._volumes.drivers.get(storage_class.provisioner)
        if STORAGE not in claim.spec.resources.requests or driver is None or not driver.spec.storage_capacity:
            return None
        bytes_needed = _value(requested_storage(claim))
        for capacity in self._volumes.capacities.values():
            limit = capacity.maximum_volume_size or capacity.capacity
            if (
                capacity.storage_class_name == storage_class.metadata.name
                and limit is not None
                and _value(limit) >= bytes_needed
                and capacity.node_topology is not None
                and capacity.node_topology.selects(place.labels)
            ):
                return capacity
        return NO_SPACE


class _Candidates:
    """The volumes that a claim may get, the smallest first, indexed by what their node affinity needs of a node."""

    def __init__(self, claim: PersistentVolumeClaim, volumes: VolumeState) -> None:
        self.claim = claim
        of_class = tuple(volumes.volumes_of_class(class_of_claim(claim)))
        named = (volume for volume in of_class if is_bound_to(volume, claim) and is_possible_for(volume, claim))
        # Chosen by a user, or by an earlier decision.
        self._named = next(named, None)
        self._free = sorted((each for each in of_class if may_be_chosen_for(each, claim)), key=capacity_of)
        self._by_anchor: dict[Anchor, list[int]] = {}
        for rank, volume in enumerate(self._free):
            for anchor in _anchors(volume):
                self._by_anchor.setdefault(anchor, []).append(rank)

    def on(self, place: NodeFacts, taken: Collection[str]) -> PersistentVolume | None:
        if self._named is not None and self._named.metadata.name not in taken:
            return self._named if is_reachable(self._named, place) else None
        ranks = (self._by_anchor[anchor] for anchor in anchors_of_node(place) if anchor in self._by_anchor)
        possible = (self._free[rank] for rank in heapq.merge(*ranks))
        return next((each for each in possible if each.metadata.name not in taken and is_reachable(each, place)), None)


def _anchors(volume: PersistentVolume) -> Iterable[Anchor]:
    affinity = volume.spec.node_affinity
    return (ANYWHERE,) if affinity is None or affinity.required is None else anchors(affinity.required)


def _is_allowed(storage_class: StorageClass, place: NodeFacts) -> bool:
    terms = storage_class.allowed_topologies
    return not terms or any(
        term.match_label_expressions
        and all(place.labels.get(each.key) in each.values for each in term.match_label_expressions)
        for term in terms
    )


def _score(
    chosen: Iterable[tuple[PersistentVolumeClaim, PersistentVolume]],
    provisioned: Iterable[tuple[PersistentVolumeClaim, CSIStorageCapacity]],
) -> int:
    """From 0 to 100: how much of the storage stays free, as an average of the storage classes."""
    used: dict[str, tuple[int, int]] = {}
    for claim, volume in chosen:
        requested, capacity = used.get(class_of_volume(volume), (0, 0))
        used[class_of_volume(volume)] = (
            requested + _value(requested_storage(claim)),
            capacity + _value(capacity_of(volume)),
        )
    if not used:
        for claim, storage in provisioned:
            requested, _ = used.get(storage.storage_class_name, (0, 0))
            total = _value(storage.capacity) if storage.capacity is not None else 0
            used[storage.storage_class_name] = requested + _value(requested_storage(claim)), total
    parts = [_free_part(requested, capacity) for requested, capacity in used.values()]
    return int(sum(parts) / len(parts) + 0.5) if parts else 0


def _free_part(requested: int, capacity: int) -> int:
    return SCORE_MAX - requested * SCORE_MAX // capacity if capacity and requested <= capacity else 0


def _value(amount: Quantity) -> int:
    """In whole units, rounded up."""
    return -(-amount.nanos // NANOS)
