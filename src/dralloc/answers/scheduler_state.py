"""The state of a scheduler that has read the objects of a what-if question."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from dralloc.answers.api_refusals import priority_classes, with_group_priority, with_priority
from dralloc.answers.cluster_objects import ClusterObjects, exists
from dralloc.answers.node_ranks import rank_function
from dralloc.answers.template_claims import known_group
from dralloc.kube.core_v1 import Namespace, Node
from dralloc.kube.meta_v1 import ApiObject, ObjectMeta, OwnerReference
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.policy_v1 import PodDisruptionBudget
from dralloc.kube.resource_v1 import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.kube.storage_v1 import CSINode
from dralloc.kube.volume_claims import volume_claims_of
from dralloc.kube.volumes_v1 import (
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from dralloc.primitives.quantity import Quantity
from dralloc.scheduler.state.class_settings import NO_SETTINGS, ClassSettings
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.scheduler.state.volume_state import VolumeState


def state_of(
    objects: ClusterObjects,
    nodes: Iterable[Node],
    rank: Callable[[str], int] | None = None,
    class_settings: Mapping[str, ClassSettings] = NO_SETTINGS,
) -> ClusterState:
    """The objects as the scheduler sees them; `rank` orders equally good nodes, by default as the scheduler does."""
    gates = objects.gates_in_use
    state = ClusterState(
        rank=rank or rank_function(objects.nodes),
        for_workloads="DRAReservedForWorkloads" in gates,
        for_groups="DRAWorkloadResourceClaims" in gates,
        class_settings=class_settings,
    )
    for node in nodes:
        state.node_changed(None, with_room(node))
    for namespace in objects.all(Namespace).values():
        state.namespace_changed(None, namespace)
    for resource_slice in objects.all(ResourceSlice).values():
        state.slice_changed(None, resource_slice)
    for device_class in objects.all(DeviceClass).values():
        state.class_changed(None, device_class)
    for rule in objects.all(DeviceTaintRule).values():
        state.rule_changed(None, rule)
    for claim in objects.all(ResourceClaim).values():
        state.claim_changed(None, claim)
    classes = priority_classes(objects)
    for group in objects.all(PodGroup).values():
        state.group_changed(None, with_group_priority(known_group(group), classes))
    for pod in objects.all(Pod).values():
        state.pod_changed(None, with_priority(pod, classes))
    for budget in objects.all(PodDisruptionBudget).values():
        state.budgets.changed(None, budget)
    add_volumes(state.volumes, objects)
    return state


def replace_in(state: ClusterState, old: ApiObject | None, new: ApiObject | None) -> None:
    """Puts one object in the place of another one of the same kind; None where there is none."""
    match old or new:
        case ResourceClaim():
            # Not as an update, which would need a newer revision.
            for before, after in ((old, None), (None, new)):
                if before is not None or after is not None:
                    state.claim_changed(before, after)  # type: ignore[arg-type]  # both are claims
        case ResourceSlice():
            state.slice_changed(old, new)  # type: ignore[arg-type]
        case DeviceClass():
            state.class_changed(old, new)  # type: ignore[arg-type]
        case Pod():
            state.pod_changed(old, new)  # type: ignore[arg-type]
        case Node():
            state.node_changed(old, new)  # type: ignore[arg-type]
        case DeviceTaintRule():
            state.rule_changed(old, new)  # type: ignore[arg-type]


def with_room(node: Node) -> Node:
    """The node; one of a manifest that states no allocatable resources has enough of everything."""
    if node.status.allocatable or exists(node):
        return node
    plenty = {name: Quantity.parse("1P") for name in ("cpu", "memory", "ephemeral-storage", "pods")}
    return replace(node, status=replace(node.status, allocatable=plenty))


# --- Cluster volumes ------------------------------------------------------------------------------------------------
# Persistent volumes in what-if answers: those of the objects, and the claims that a controller would make for a
# pod.


def add_volumes(state: VolumeState, objects: ClusterObjects) -> None:
    for volume in objects.all(PersistentVolume).values():
        state.volume_changed(None, volume)
    for claim in objects.all(PersistentVolumeClaim).values():
        state.claim_changed(None, claim)
    for storage_class in objects.all(StorageClass).values():
        state.class_changed(None, storage_class)
    for csi_node in objects.all(CSINode).values():
        state.csi_node_changed(None, csi_node)
    for driver in objects.all(CSIDriver).values():
        state.driver_changed(None, driver)
    for capacity in objects.all(CSIStorageCapacity).values():
        state.capacity_changed(None, capacity)
    for attachment in objects.all(VolumeAttachment).values():
        state.attachment_changed(None, attachment)


def add_ephemeral_claims(state: VolumeState, pod: Pod) -> None:
    """Adds the claims of the pod's ephemeral volumes that do not exist yet."""
    templates = [volume.ephemeral for volume in pod.spec.volumes if volume.ephemeral is not None]
    if not templates:
        return
    uses = (use for use in volume_claims_of(pod) if use.is_ephemeral)
    owner = OwnerReference(api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid, controller=True)
    for use, source in zip(uses, templates, strict=True):
        template = source.volume_claim_template
        if template is not None and state.stored_claim(use.key) is None:
            metadata = ObjectMeta(namespace=use.key.namespace, name=use.key.name, owner_references=(owner,))
            state.claim_changed(None, PersistentVolumeClaim(metadata=metadata, spec=template.spec))
