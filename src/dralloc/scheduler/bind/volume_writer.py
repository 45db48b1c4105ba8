"""Binds the volumes of a pod before the pod: writes what was decided, then waits until the claims are bound.

A volume that was chosen gets a reference to the claim; a claim whose volume is to be made gets the name of the node. The controller of
persistent volumes, or a provisioner, does the rest. As in Kubernetes, writes are not taken back: the pod's next attempt uses the
same volume, and a provisioner that fails removes the node from the claim.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from dralloc.client.api_calls import ApiCalls
from dralloc.client.known_resources import resource_read_as
from dralloc.client.typed_resource import ObjectKey, version_of
from dralloc.devices.node_selectors import NodeFacts
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.volume_claims import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    VolumeClaimKey,
    claim_reference,
    is_bound,
    is_bound_to,
)
from dralloc.kube.volumes_v1 import PersistentVolume, PersistentVolumeClaim
from dralloc.scheduler.bind.write_slots import WriteSlots
from dralloc.scheduler.state.cluster_events import ClusterEvent
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.scheduler.state.volume_state import VolumePlan, is_reachable

VOLUMES: Final = resource_read_as(PersistentVolume)
CLAIMS: Final = resource_read_as(PersistentVolumeClaim)
# How long Kubernetes waits until claims are bound.
TIMEOUT_S: Final = 600.0


class VolumesNotBound(Exception):
    """The claims of a pod were not bound as decided."""


class VolumeWriter:
    """`is_pending`: true while a pod exists and has no node."""

    def __init__(
        self, calls: ApiCalls, cluster: ClusterState, *, slots: WriteSlots, is_pending: Callable[[Pod], bool]
    ) -> None:
        self._calls = calls
        self._cluster = cluster
        self._volumes = cluster.volumes
        self._slots = slots
        self._is_pending = is_pending
        # Set at the next change that a waiting pod should look at.
        self._changed = asyncio.Event()
        # How many pods wait.
        self.waiting = 0

    def notify(self, event: ClusterEvent) -> None:
        if event.kind in ("VolumesChanged", "VolumeClaimChanged", "PodChanged", "NodeChanged"):
            self._changed.set()
            self._changed = asyncio.Event()

    async def settle(self, pod: Pod, node: str, plan: VolumePlan) -> None:
        """Returns when all claims are bound. Raises VolumesNotBound, or the error of a write."""
        for key, name in plan.chosen.items():
            await self._choose(key, name)
        for key in plan.provisioned:
            await self._select_node(key, node)
        if self._is_done(pod, node, plan):
            return
        async with self._slots.lent():
            await self._wait(pod, node, plan)

    # --- Writing ----------------------------------------------------------------------------------------------------

    async def _choose(self, key: VolumeClaimKey, name: str) -> None:
        volume, claim = self._volumes.stored_volume(name), self._volumes.stored_claim(key)
        if volume is None or claim is None:
            raise VolumesNotBound(f'persistentvolume "{name}" or persistentvolumeclaim "{key.name}" was deleted')
        reference = volume.spec.claim_ref
        if reference is not None and reference.uid == claim.metadata.uid:
            return
        if reference is not None and not is_bound_to(volume, claim):
            raise VolumesNotBound(f'persistentvolume "{name}" was bound to another claim')
        # A volume that a user has reserved for the claim is not marked.
        marks = {} if reference is not None else {"annotations": {BOUND_BY_CONTROLLER: "yes"}}
        patch = {
            "metadata": {**version_of(volume), **marks},
            "spec": {"claimRef": claim_reference(claim)},
        }
        written = await self._calls.patch(VOLUMES, ObjectKey("", name), patch)
        self._volumes.volume_changed(volume, written)

    async def _select_node(self, key: VolumeClaimKey, node: str) -> None:
        claim = self._volumes.stored_claim(key)
        if claim is None:
            raise VolumesNotBound(f'persistentvolumeclaim "{key.name}" was deleted')
        if claim.metadata.annotations.get(SELECTED_NODE) == node:
            return
        patch = {"metadata": {**version_of(claim), "annotations": {SELECTED_NODE: node}}}
        written = await self._calls.patch(CLAIMS, ObjectKey(key.namespace, key.name), patch)
        self._volumes.claim_changed(claim, written)

    # --- Waiting ----------------------------------------------------------------------------------------------------

    async def _wait(self, pod: Pod, node: str, plan: VolumePlan) -> None:
        self.waiting += 1
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while not self._is_done(pod, node, plan):
                    await self._changed.wait()
        except TimeoutError:
            raise VolumesNotBound(f"binding volumes: not bound within {TIMEOUT_S:g} s") from None
        finally:
            self.waiting -= 1

    def _is_done(self, pod: Pod, node: str, plan: VolumePlan) -> bool:
        """True if all claims are bound. Raises VolumesNotBound if they will not be."""
        if not self._is_pending(pod):
            raise VolumesNotBound("binding volumes: pod does not exist any more")
        known = self._cluster.nodes.get(node)
        if known is None:
            raise VolumesNotBound(f'binding volumes: failed to get node "{node}"')
        place = NodeFacts("", known.offer.labels)
        for name in plan.chosen.values():
            volume = self._volumes.stored_volume(name)
            if volume is None or volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
                raise VolumesNotBound(f'binding volumes: ClaimRef got reset for pv "{name}"')
            _check_place(volume, place, node)
        for key in plan.provisioned:
            self._check_provisioned(key, place, node)
        claims = map(self._volumes.stored_claim, (*plan.chosen, *plan.provisioned))
        return all(claim is not None and is_bound(claim) for claim in claims)

    def _check_provisioned(self, key: VolumeClaimKey, place: NodeFacts, node: str) -> None:
        claim = self._volumes.stored_claim(key)
        if claim is None or claim.metadata.annotations.get(SELECTED_NODE) != node:
            raise VolumesNotBound(f'binding volumes: provisioning failed for PVC "{key.name}"')
        volume = self._volumes.stored_volume(claim.spec.volume_name)
        if volume is not None:
            _check_place(volume, place, node)


def _check_place(volume: PersistentVolume, place: NodeFacts, node: str) -> None:
    if not is_reachable(volume, place):
        name = volume.metadata.name
        raise VolumesNotBound(f'binding volumes: pv "{name}" node affinity doesn\'t match node "{node}"')
