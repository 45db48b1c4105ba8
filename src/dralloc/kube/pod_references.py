"""The objects that a pod refers to: secrets, config maps, volume claims, service account and resource claims.

Pods are modelled only in part, so these functions read the plain JSON of a pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_Tree = Mapping[str, Any]

# Marks the pod that a node shows for a process that it started by itself.
MIRROR_POD: Final = "kubernetes.io/config.mirror"

_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
# Volumes with a reference to a secret, by the member that has it.
_SECRET_IN_VOLUME: Final = {
    "azureFile": ("secretName",),
    "cephfs": ("secretRef", "name"),
    "flexVolume": ("secretRef", "name"),
    "rbd": ("secretRef", "name"),
    "secret": ("secretName",),
    "scaleIO": ("secretRef", "name"),
    "iscsi": ("secretRef", "name"),
    "storageos": ("secretRef", "name"),
    "csi": ("nodePublishSecretRef", "name"),
}
# Volumes that need no object of the API.
_PLAIN_VOLUMES: Final = frozenset(
    {
        "awsElasticBlockStore", "azureDisk", "cephfs", "cinder", "downwardAPI", "emptyDir", "fc", "flexVolume", "flocker",
        "gcePersistentDisk", "gitRepo", "hostPath", "image", "iscsi", "nfs", "photonPersistentDisk", "portworxVolume",
        "quobyte", "rbd", "scaleIO", "storageos", "vsphereVolume",
    }
)  # fmt: skip
_OBJECTS_OF_VOLUMES: Final = {
    "configMap": "configmaps (via configmap volumes)",
    "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
_OBJECTS_OF_SOURCES: Final = {
    "configMap": "configmaps (via projected volumes)",
    "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}


class UnknownVolume(ValueError):
    """A volume of a kind that is not known, so that it may refer to any object."""


def referred_objects(pod: _Tree) -> Iterator[tuple[str, str]]:
    """Yields the objects that a pod needs on its node, as resource and name; all are in the pod's namespace."""
    spec, status = _member(pod, "spec"), _member(pod, "status")
    if account := _text(spec, "serviceAccountName"):
        yield "serviceaccounts", account
    for name in _secrets(spec):
        yield "secrets", name
    for name in _config_maps(spec):
        yield "configmaps", name
    for name in _volume_claims(spec, _text(pod, "metadata", "name")):
        yield "persistentvolumeclaims", name
    for name in _resource_claims(spec, status):
        yield "resourceclaims", name


def first_referred_kind(spec: _Tree) -> str:
    """The kind of the first API object that a pod refers to, in words; empty if it refers to none."""
    if _text(spec, "serviceAccountName"):
        return "serviceaccounts"
    if any(_secrets(spec)):
        return "secrets"
    if any(_config_maps(spec)):
        return "configmaps"
    if spec.get("resourceClaims"):
        return "resourceclaims"
    return next((found for volume in _items(spec, "volumes") if (found := _kind_of_volume(volume))), "")


def token_audiences(spec: _Tree) -> Iterator[str]:
    """Yields the audiences of the service account tokens that the pod mounts."""
    for source in _projected_sources(spec):
        token = source.get("serviceAccountToken")
        if isinstance(token, dict):
            yield _text(token, "audience")


def _kind_of_volume(volume: _Tree) -> str:
    if not volume.keys().isdisjoint(_PLAIN_VOLUMES):
        return ""
    for kind, objects in _OBJECTS_OF_VOLUMES.items():
        if volume.get(kind) is not None:
            return objects
    if volume.get("projected") is None:
        raise UnknownVolume(f'unknown volume type for volume  "{_text(volume, "name")}"')
    for source in _items(_member(volume, "projected"), "sources"):
        for kind, objects in _OBJECTS_OF_SOURCES.items():
            if source.get(kind) is not None:
                return objects
        if source.get("downwardAPI") is None:
            raise UnknownVolume(f'unknown source for projected volume "{_text(volume, "name")}"')
    return ""


def _secrets(spec: _Tree) -> Iterator[str]:
    for reference in _items(spec, "imagePullSecrets"):
        yield from _named(reference, "name")
    yield from _in_containers(spec, "secretRef", "secretKeyRef")
    for volume in _items(spec, "volumes"):
        for kind, path in _SECRET_IN_VOLUME.items():
            if kind in volume:
                yield from _named(_member(volume, kind), *path)
    for source in _projected_sources(spec):
        yield from _named(source, "secret", "name")


def _config_maps(spec: _Tree) -> Iterator[str]:
    yield from _in_containers(spec, "configMapRef", "configMapKeyRef")
    for volume in _items(spec, "volumes"):
        yield from _named(volume, "configMap", "name")
    for source in _projected_sources(spec):
        yield from _named(source, "configMap", "name")


def _in_containers(spec: _Tree, whole: str, one_key: str) -> Iterator[str]:
    """Yields the objects from which containers take their environment."""
    for kind in _CONTAINERS:
        for container in _items(spec, kind):
            for source in _items(container, "envFrom"):
                yield from _named(source, whole, "name")
            for variable in _items(container, "env"):
                if "valueFrom" in variable:
                    yield from _named(variable, "valueFrom", one_key, "name")


def _projected_sources(spec: _Tree) -> Iterator[_Tree]:
    for volume in _items(spec, "volumes"):
        if "projected" in volume:
            yield from _items(_member(volume, "projected"), "sources")


def _volume_claims(spec: _Tree, pod: str) -> Iterator[str]:
    for volume in _items(spec, "volumes"):
        if volume.get("persistentVolumeClaim") is not None:
            yield from _named(volume, "persistentVolumeClaim", "claimName")
        elif volume.get("ephemeral") is not None:
            yield f"{pod}-{_text(volume, 'name')}"


def _resource_claims(spec: _Tree, status: _Tree) -> Iterator[str]:
    entries = _items(spec, "resourceClaims")
    if entries:
        made = {
            _text(entry, "name"): _text(entry, "resourceClaimName") for entry in _items(status, "resourceClaimStatuses")
        }
        for entry in entries:
            name = _text(entry, "resourceClaimName") or made.get(_text(entry, "name"), "")
            if name:
                yield name
    yield from _named(status, "extendedResourceClaimStatus", "resourceClaimName")


def _items(tree: _Tree, member: str) -> Sequence[_Tree]:
    values = tree.get(member)
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else ()


def _member(tree: _Tree, name: str) -> _Tree:
    value = tree.get(name)
    return value if isinstance(value, dict) else {}


def _text(tree: _Tree, *path: str) -> str:
    value: Any = tree
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def _named(tree: _Tree, *path: str) -> Iterator[str]:
    if name := _text(tree, *path):
        yield name
