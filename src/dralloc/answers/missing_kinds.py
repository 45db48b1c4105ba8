"""Which kinds an input lacks that could change an answer about it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from dralloc.answers.cluster_objects import ClusterObjects, relevant_kinds
from dralloc.kube.core_v1 import Namespace, ResourceQuota
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import (
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from dralloc.kube.scheduling_v1 import SYSTEM_CLASSES, PriorityClass
from dralloc.kube.volumes_v1 import PersistentVolume, PersistentVolumeClaim, StorageClass
from dralloc.scheduler.state.volume_state import has_volumes


def _has_devices(objects: ClusterObjects) -> bool:
    return bool(objects.all(ResourceSlice))


def _has_templates(objects: ClusterObjects) -> bool:
    return bool(objects.all(ResourceClaimTemplate))


def _asks_admin_access(objects: ClusterObjects) -> bool:
    specs = [claim.spec for claim in objects.all(ResourceClaim).values()]
    specs += [template.spec.spec for template in objects.all(ResourceClaimTemplate).values()]
    return any(
        request.exactly is not None and request.exactly.admin_access
        for spec in specs
        for request in spec.devices.requests or ()
    )


def _selects_namespaces(objects: ClusterObjects) -> bool:
    """True if a pod has affinity to pods of namespaces with certain labels."""
    affinities = [pod.spec.affinity for pod in objects.all(Pod).values() if pod.spec.affinity is not None]
    sides = [side for each in affinities for side in (each.pod_affinity, each.pod_anti_affinity) if side is not None]
    terms = [term for side in sides for term in side.required_during_scheduling_ignored_during_execution]
    terms += [
        each.pod_affinity_term for side in sides for each in side.preferred_during_scheduling_ignored_during_execution
    ]
    return any(term.namespace_selector is not None for term in terms)


def _has_volumes(objects: ClusterObjects) -> bool:
    return any(map(has_volumes, objects.all(Pod).values()))


def _names_priority_classes(objects: ClusterObjects) -> bool:
    return any(
        pod.spec.priority is None and pod.spec.priority_class_name not in ("", *SYSTEM_CLASSES)
        for pod in objects.all(Pod).values()
    )


# Whether objects of a kind could change the answer. A pod that names a missing template or class, and an input without nodes,
# get a message of their own.
_COULD_MATTER: Final[Mapping[type[ApiObject], Callable[[ClusterObjects], bool]]] = {
    ResourceSlice: lambda objects: not _has_devices(objects),
    ResourceClaim: _has_devices,
    DeviceTaintRule: _has_devices,
    Pod: lambda objects: objects.has_nodes,
    ResourceQuota: _has_templates,
    Namespace: lambda objects: _asks_admin_access(objects) or _selects_namespaces(objects),
    PriorityClass: _names_priority_classes,
    PersistentVolumeClaim: _has_volumes,
    PersistentVolume: _has_volumes,
    StorageClass: _has_volumes,
}


def missing_kinds(objects: ClusterObjects, wanted: Collection[type[ApiObject]]) -> Iterator[str]:
    """One sentence about the wanted kinds that the objects lack and that could change the answer; none if there are none."""
    lacking = [
        f"{kind.kind}{'es' if kind.kind.endswith('s') else 's'}"
        for object_type, kind in relevant_kinds()
        if object_type in wanted
        and not objects.all(object_type)
        and object_type in _COULD_MATTER
        and _COULD_MATTER[object_type](objects)
    ]
    if lacking:
        listed = " and no ".join(filter(None, (", ".join(lacking[:-1]), lacking[-1])))
        yield (
            f"no {listed} in {objects.place}: the answer assumes that the cluster has none; "
            "dralloc dump writes all kinds"
        )
