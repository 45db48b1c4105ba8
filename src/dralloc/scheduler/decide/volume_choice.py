"""Which volume each unbound claim of a pod gets on a node, as Kubernetes' VolumeBinding decides it.

A free volume is preferred, the smallest that is large enough; without one, a new volume is made if the storage class has a
provisioner that can make it for the node.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from dralloc.api.volume_claims import (
    NO_PROVISIONER,
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
from dralloc.api.volumes_v1 import CSIStorageCapacity, PersistentVolume, PersistentVolumeClaim, StorageClass
from dralloc.primitives.quantity import Quantity
from dralloc.scheduler.state.volume_reach import is_reachable
from dralloc.scheduler.state.volume_state import VolumePlan, VolumeState
from dralloc.snapshot.node_selectors import (
    ANYWHERE,
    Anchor,
    NodeFacts,
    anchors,
    anchors_of_node,
)

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
