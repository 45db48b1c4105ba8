"""Objects without the fields that no answer reads.

Live objects are reduced before a question is asked about them, and a dump contains the same reduced objects. So a live
answer cannot depend on anything that a dump leaves out. Environment, commands and images of containers, IP addresses, data
that drivers report, annotations and the record of who wrote which field are left out; of that record, the last write of slices
and claims stays. The types of the objects leave out most of it already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from dralloc.kube.apps_v1 import DaemonSet, Deployment
from dralloc.kube.batch_v1 import Job, PodTemplateSpec
from dralloc.kube.meta_v1 import ApiObject, ObjectMeta
from dralloc.kube.pod_v1 import MIRROR_POD, SAFE_TO_EVICT, Container, EphemeralVolumeSource, Pod, PodSpec, Volume
from dralloc.kube.resource_v1 import NULL, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from dralloc.kube.volume_claims import BETA_STORAGE_CLASS, BIND_COMPLETED, SELECTED_NODE
from dralloc.kube.volumes_v1 import PersistentVolumeClaimTemplate
from dralloc.kube.wire import map_changed
from dralloc.scheduler.decide.strategy_choice import ANNOTATION as STRATEGY

ObjectT = TypeVar("ObjectT", bound=ApiObject)

# The annotations that answers read, by the beginning of their keys.
_READ_KEYS: Final = (
    *("dralloc.io/", "resource.kubernetes.io/", MIRROR_POD),
    *(BIND_COMPLETED, SELECTED_NODE, BETA_STORAGE_CLASS),
    *(SAFE_TO_EVICT, STRATEGY),
)
# The whole manifest of the object, with everything that is left out here.
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def reduced(obj: ApiObject) -> ApiObject:
    """The object with the fields that answers read. Reducing it again changes nothing."""
    # Answers print claims; an annotation of a template becomes one of its claims.
    is_printed = isinstance(obj, ResourceClaim | ResourceClaimTemplate)
    metadata = _reduced_metadata(obj.metadata, is_printed=is_printed)
    if isinstance(obj, ResourceClaim | ResourceSlice) and (last := last_write(obj.metadata)) is not None:
        metadata = replace(metadata, managed_fields=({"manager": last.manager, "time": last.time},))
    match obj:
        case Pod():
            return replace(obj, metadata=metadata, spec=_reduced_spec(obj.spec))
        case Job() | Deployment() | DaemonSet():
            template = _reduced_template(obj.spec.template)
            return replace(obj, metadata=metadata, spec=replace(obj.spec, template=template))
        case ResourceClaim() if obj.status.devices:
            devices = tuple(replace(each, data=NULL, network_data=None) for each in obj.status.devices)
            return replace(obj, metadata=metadata, status=replace(obj.status, devices=devices))
        case ResourceClaimTemplate():
            made = _reduced_metadata(obj.spec.metadata, is_printed=True)
            return replace(obj, metadata=metadata, spec=replace(obj.spec, metadata=made))
        case _:
            return replace(obj, metadata=metadata)


class Write(NamedTuple):
    manager: str
    time: str


def last_write(metadata: ObjectMeta) -> Write | None:
    """The newest write that the object records; None if it records none."""
    found = [
        Write(str(each.get("manager", "")), each["time"])
        for each in metadata.managed_fields
        if isinstance(each.get("time"), str)
    ]
    return max(found, key=lambda each: each.time, default=None)


def without_writes(obj: ObjectT) -> ObjectT:
    """The object without the record of its writes, which only `dralloc doctor` reads."""
    return replace(obj, metadata=replace(obj.metadata, managed_fields=())) if obj.metadata.managed_fields else obj


def _reduced_metadata(metadata: ObjectMeta, *, is_printed: bool) -> ObjectMeta:
    return replace(
        metadata,
        annotations=_read_annotations(metadata.annotations, is_printed=is_printed),
        managed_fields=(),
        resource_version="",
        self_link="",
    )


def _read_annotations(annotations: Mapping[str, str], *, is_printed: bool) -> dict[str, str]:
    return {
        key: value
        for key, value in annotations.items()
        if (key != _LAST_APPLIED if is_printed else key.startswith(_READ_KEYS))
    }


def _reduced_template(template: PodTemplateSpec) -> PodTemplateSpec:
    return replace(
        template,
        metadata=_reduced_metadata(template.metadata, is_printed=False),
        spec=_reduced_spec(template.spec),
    )


def _reduced_spec(spec: PodSpec) -> PodSpec:
    return replace(
        spec,
        containers=map_changed(spec.containers, _without_image),
        init_containers=map_changed(spec.init_containers, _without_image),
        volumes=map_changed(spec.volumes, _reduced_volume),
    )


def _reduced_volume(volume: Volume) -> Volume:
    """Of the claim that is made for an ephemeral volume, only the specification is read."""
    template = volume.ephemeral.volume_claim_template if volume.ephemeral is not None else None
    if template is None:
        return volume
    source = EphemeralVolumeSource(volume_claim_template=PersistentVolumeClaimTemplate(spec=template.spec))
    return replace(volume, ephemeral=source)


def _without_image(container: Container) -> Container:
    return replace(container, image="") if container.image else container
