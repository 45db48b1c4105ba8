"""Default values of kinds that we model only in part, as data.

Controllers of other programs rely on them: a pointer that Kubernetes always sets is read without a check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from dralloc.kube.pod_defaults import default_template_spec

Tree = dict[str, Any]


class FieldDefault(NamedTuple):
    """The value of a field that is absent. A part of the path that ends in `[]` is a list, whose items all get the value;
    one that ends in `?` must be present. A value can be computed from the object that contains the field.
    """

    path: str
    value: Any
    # Only if this field of the object has this value.
    given: tuple[str, Any] | None = None


class PodTemplate(NamedTuple):
    """Where an object has a pod template, whose spec has the defaults of pods."""

    path: str


Rows = Sequence[FieldDefault | PodTemplate]

_TEMPLATE: Final = PodTemplate("spec.template")
_REPLICAS: Final = FieldDefault("spec.replicas", 1)
_HISTORY: Final = FieldDefault("spec.revisionHistoryLimit", 10)


def _rolling(strategy: str, **values: Any) -> Rows:
    """Updates replace pods one after the other."""
    is_rolling = (f"spec.{strategy}.type", "RollingUpdate")
    return (
        FieldDefault(*is_rolling),
        *(FieldDefault(f"spec.{strategy}.rollingUpdate.{name}", value, is_rolling) for name, value in values.items()),
    )


def _volume_claim(path: str) -> Rows:
    return (FieldDefault(f"{path}spec.volumeMode", "Filesystem"), FieldDefault(f"{path}status.phase", "Pending"))


def _labels_of_template(spec: Tree) -> Any:
    return ((spec.get("template") or {}).get("metadata") or {}).get("labels")


DEFAULTS: Final[Mapping[tuple[str, str], Rows]] = {
    ("apps", "Deployment"): (
        _REPLICAS,
        _HISTORY,
        FieldDefault("spec.progressDeadlineSeconds", 600),
        *_rolling("strategy", maxSurge="25%", maxUnavailable="25%"),
        _TEMPLATE,
    ),
    ("apps", "DaemonSet"): (_HISTORY, *_rolling("updateStrategy", maxSurge=0, maxUnavailable=1), _TEMPLATE),
    ("apps", "ReplicaSet"): (_REPLICAS, _TEMPLATE),
    ("apps", "StatefulSet"): (
        _REPLICAS,
        _HISTORY,
        FieldDefault("spec.podManagementPolicy", "OrderedReady"),
        FieldDefault("spec.persistentVolumeClaimRetentionPolicy.whenDeleted", "Retain"),
        FieldDefault("spec.persistentVolumeClaimRetentionPolicy.whenScaled", "Retain"),
        *_rolling("updateStrategy", partition=0),
        *_volume_claim("spec.volumeClaimTemplates[]."),
        _TEMPLATE,
    ),
    ("", "ReplicationController"): (_REPLICAS, FieldDefault("spec.selector", _labels_of_template), _TEMPLATE),
    ("", "PodTemplate"): (PodTemplate("template"),),
    ("batch", "CronJob"): (
        FieldDefault("spec.concurrencyPolicy", "Allow"),
        FieldDefault("spec.suspend", value=False),
        FieldDefault("spec.successfulJobsHistoryLimit", 3),
        FieldDefault("spec.failedJobsHistoryLimit", 1),
        PodTemplate("spec.jobTemplate.spec.template"),
    ),
    ("", "PersistentVolume"): (
        FieldDefault("spec.persistentVolumeReclaimPolicy", "Retain"),
        FieldDefault("spec.volumeMode", "Filesystem"),
        FieldDefault("spec.hostPath?.type", ""),
    ),
    ("", "PersistentVolumeClaim"): (FieldDefault("spec.volumeMode", "Filesystem"),),
    ("", "Service"): (
        FieldDefault("spec.type", "ClusterIP"),
        FieldDefault("spec.sessionAffinity", "None"),
        FieldDefault("spec.sessionAffinityConfig.clientIP.timeoutSeconds", 10800, ("spec.sessionAffinity", "ClientIP")),
        FieldDefault("spec.internalTrafficPolicy", "Cluster"),
        FieldDefault("spec.ports[].protocol", "TCP"),
        FieldDefault("spec.ports[].targetPort", lambda port: port.get("port")),
    ),
    ("", "Endpoints"): (FieldDefault("subsets[].ports[].protocol", "TCP"),),
    ("discovery.k8s.io", "EndpointSlice"): (
        FieldDefault("ports[].name", ""),
        FieldDefault("ports[].protocol", "TCP"),
    ),
    ("storage.k8s.io", "StorageClass"): (
        FieldDefault("reclaimPolicy", "Delete"),
        FieldDefault("volumeBindingMode", "Immediate"),
    ),
    ("storage.k8s.io", "CSIDriver"): (
        FieldDefault("spec.attachRequired", value=True),
        FieldDefault("spec.fsGroupPolicy", "ReadWriteOnceWithFSType"),
        FieldDefault("spec.podInfoOnMount", value=False),
        FieldDefault("spec.requiresRepublish", value=False),
        FieldDefault("spec.seLinuxMount", value=False),
        FieldDefault("spec.storageCapacity", value=False),
        FieldDefault("spec.volumeLifecycleModes", ["Persistent"]),
    ),
    ("autoscaling", "HorizontalPodAutoscaler"): (FieldDefault("spec.minReplicas", 1),),
}


def with_field_defaults(content: Tree, rows: Rows) -> Tree:
    """Returns the content of an object with the defaults of its absent fields."""
    for row in rows:
        if isinstance(row, PodTemplate):
            content = _changed(content, _optional(row.path), _with_template_defaults)
        elif row.given is None or _find(content, row.given[0]) == row.given[1]:
            *path, name = row.path.split(".")
            content = _changed(content, path, partial(_filled, name, row.value))
    return content


def _optional(path: str) -> list[str]:
    return [f"{part}?" for part in path.split(".")]


def _with_template_defaults(template: Tree) -> Tree:
    return {**template, "spec": default_template_spec(template.get("spec") or {})}


def _filled(name: str, value: Any, parent: Tree) -> Tree:
    if parent.get(name) is not None:
        return parent
    made = value(parent) if callable(value) else value
    return parent if made is None else {**parent, name: made}


def _changed(node: Tree, path: Sequence[str], change: Callable[[Tree], Tree]) -> Tree:
    """The node with the objects at the path changed. What does not have the shape of the path is left as it is."""
    if not path:
        return change(node)
    name, rest = path[0].rstrip("[]?"), path[1:]
    child = node.get(name)
    if path[0].endswith("[]"):
        items = child if isinstance(child, list) else []
        changed: Any = [_changed(item, rest, change) if isinstance(item, dict) else item for item in items]
        return {**node, name: changed} if items else node
    if child is None and not path[0].endswith("?"):
        child = {}
    return {**node, name: _changed(child, rest, change)} if isinstance(child, dict) else node


def _find(content: Tree, path: str) -> Any:
    found: Any = content
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found
