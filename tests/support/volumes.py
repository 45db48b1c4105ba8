"""Documents of persistent volumes, claims to them and storage, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dralloc.kube.volume_claims import BIND_COMPLETED
from tests.support.workloads import Document

HOSTNAME = "kubernetes.io/hostname"
LOCAL, REMOTE = "local", "remote"


def volume(
    name: str,
    size: str = "10Gi",
    *,
    storage_class: str = LOCAL,
    hosts: Sequence[str] = (),
    phase: str = "Available",
    modes: Sequence[str] = ("ReadWriteOnce",),
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Document:
    """A volume, on these hosts if any are named."""
    required = {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": list(hosts)}]}]
    }
    affinity = {"nodeAffinity": {"required": required}} if hosts else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": list(modes),
            "storageClassName": storage_class,
            **affinity,
            **({} if "csi" in spec else {"hostPath": {"path": "/data"}}),
            **spec,
        },
        "status": {"phase": phase},
    }


def volume_claim(
    name: str,
    size: str = "5Gi",
    *,
    storage_class: str | None = LOCAL,
    bound_to: str = "",
    modes: Sequence[str] = ("ReadWriteOnce",),
    annotations: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Document:
    """A claim; one that is `bound_to` a volume is bound completely."""
    bound = {BIND_COMPLETED: "yes"} if bound_to else {}
    named = {"storageClassName": storage_class} if storage_class is not None else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {**bound, **(annotations or {})},
            **(metadata or {}),
        },
        "spec": {
            "accessModes": list(modes),
            "resources": {"requests": {"storage": size}},
            **named,
            **({"volumeName": bound_to} if bound_to else {}),
            **spec,
        },
        "status": {"phase": "Bound" if bound_to else "Pending"},
    }


def storage_class(
    name: str = LOCAL,
    provisioner: str = "kubernetes.io/no-provisioner",
    mode: str = "WaitForFirstConsumer",
    **members: Any,
) -> Document:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
        **members,
    }


def csi_node(name: str, **limits: int | None) -> Document:
    """The drivers of a node, with `_` for `.` in their names, and how many volumes each can attach."""
    drivers = [
        {
            "name": driver.replace("_", "."),
            "nodeID": name,
            **({"allocatable": {"count": limit}} if limit is not None else {}),
        }
        for driver, limit in limits.items()
    ]
    return _storage("CSINode", name, spec={"drivers": drivers})


def csi_driver(name: str, **spec: Any) -> Document:
    return _storage("CSIDriver", name, spec=spec)


def storage_capacity(
    name: str, storage_class: str, capacity: str, labels: Mapping[str, str], **members: Any
) -> Document:
    made = _storage("CSIStorageCapacity", name, storageClassName=storage_class, capacity=capacity, **members)
    made["metadata"]["namespace"] = "default"
    return {**made, "nodeTopology": {"matchLabels": dict(labels)}}


def attachment(name: str, node: str, attacher: str, volume: str) -> Document:
    source = {"persistentVolumeName": volume}
    return _storage("VolumeAttachment", name, spec={"attacher": attacher, "nodeName": node, "source": source})


def csi(driver: str, handle: str) -> Document:
    return {"driver": driver, "volumeHandle": handle}


def _storage(kind: str, name: str, **members: Any) -> Document:
    return {"apiVersion": "storage.k8s.io/v1", "kind": kind, "metadata": {"name": name}, **members}


def using(document: Document, *claims: str) -> Document:
    """The pod with a volume for each claim."""
    document["spec"]["volumes"] = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": claim}} for number, claim in enumerate(claims)
    ]
    return document
