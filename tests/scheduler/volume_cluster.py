"""A cluster with volumes as values: documents in, the scheduler's view and the rules for a pod out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dralloc.kube.codec import decode, encode
from dralloc.kube.core_v1 import Node
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.storage_v1 import CSINode
from dralloc.kube.volumes_v1 import (
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.contract import Decision, Placement
from dralloc.scheduler.decide.cycle import Cycle
from dralloc.scheduler.decide.node_reasons import reason_of
from dralloc.scheduler.decide.node_verdicts import Fits
from dralloc.scheduler.state.cluster_state import ClusterState
from tests.scheduler.cluster_values import NOW
from tests.support.workloads import Document


def view_of(documents: Iterable[Document]) -> ClusterState:
    state = ClusterState()
    handlers: dict[str, tuple[type[ApiObject], Callable[[Any, Any], object]]] = {
        "Node": (Node, state.node_changed),
        "Pod": (Pod, state.pod_changed),
        "PersistentVolume": (PersistentVolume, state.volumes.volume_changed),
        "PersistentVolumeClaim": (PersistentVolumeClaim, state.volumes.claim_changed),
        "StorageClass": (StorageClass, state.volumes.class_changed),
        "CSINode": (CSINode, state.volumes.csi_node_changed),
        "CSIDriver": (CSIDriver, state.volumes.driver_changed),
        "CSIStorageCapacity": (CSIStorageCapacity, state.volumes.capacity_changed),
        "VolumeAttachment": (VolumeAttachment, state.volumes.attachment_changed),
    }
    for document in documents:
        object_type, handle = handlers[document["kind"]]
        handle(None, decode(encode(with_uid(document)), object_type))
    return state


def with_uid(document: Document) -> Document:
    metadata = document["metadata"]
    return {**document, "metadata": {"uid": f"uid-{metadata['name']}", **metadata}}


def pod_of(document: Document) -> Pod:
    return decode(encode(with_uid(document)), Pod)


def decide(state: ClusterState, document: Document) -> Decision:
    return Cycle(state, FeatureGates.defaults()).decide(pod_of(document), NOW)


def reasons(state: ClusterState, document: Document) -> dict[str, str]:
    """What each node says about the pod; empty for nodes that fit."""
    verdicts = Cycle(state, FeatureGates.defaults()).verdicts(pod_of(document))
    return {
        name: "" if isinstance(verdict, Fits) else str(reason_of(verdict, state.nodes[name], None))
        for name, verdict in verdicts.items()
    }


def place(state: ClusterState, document: Document) -> Placement:
    """Decides and assumes, as the scheduler does."""
    decision = decide(state, document)
    assert isinstance(decision, Placement), decision
    made = decision.commit(lambda: "share")
    state.assume(pod_of(document), made.node, made.allocations, made.volumes)
    return decision
