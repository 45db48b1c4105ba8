"""Conversion between the versions of `resource.k8s.io` and the hub (v1). No conversion fails: an invalid combination is
carried over and left to validation.

v1beta2 has v1's shape. v1beta1 differs in two places (see `v1beta1`), and holds a slice's `nodeName` and `allNodes` as
plain values, so that it cannot distinguish unset from empty there.
"""

from __future__ import annotations

from typing import Final, TypeVar

from msgspec.structs import replace

from dralloc.api import resource_v1 as hub
from dralloc.api import v1beta1
from dralloc.api.meta_v1 import ApiObject

V1: Final = "v1"
V1BETA2: Final = "v1beta2"
V1BETA1: Final = "v1beta1"
# Newest first: the order in which clients should prefer them.
VERSIONS: Final = (V1, V1BETA2, V1BETA1)

HUB_API_VERSION: Final = f"{hub.GROUP}/{V1}"

ObjectT = TypeVar("ObjectT", bound=ApiObject)


def to_hub(sent: ApiObject) -> ApiObject:
    """Returns the object in the hub's shape. Kind and metadata are the same in all versions."""
    match sent:
        case v1beta1.ResourceSlice():
            return hub.ResourceSlice(
                api_version=HUB_API_VERSION, kind=sent.kind, metadata=sent.metadata, spec=_slice_spec_to_hub(sent.spec)
            )
        case v1beta1.ResourceClaim():
            spec = _claim_spec_to_hub(sent.spec)
            return hub.ResourceClaim(
                api_version=HUB_API_VERSION, kind=sent.kind, metadata=sent.metadata, spec=spec, status=sent.status
            )
        case v1beta1.ResourceClaimTemplate():
            template = hub.ResourceClaimTemplateSpec(
                metadata=sent.spec.metadata, spec=_claim_spec_to_hub(sent.spec.spec)
            )
            return hub.ResourceClaimTemplate(
                api_version=HUB_API_VERSION, kind=sent.kind, metadata=sent.metadata, spec=template
            )
        case _:
            return _in_version(sent, V1)


def from_hub(stored: ApiObject, version: str) -> ApiObject:
    """Returns the object in the shape of this version."""
    if version != V1BETA1:
        return _in_version(stored, version)
    api_version = f"{hub.GROUP}/{version}"
    match stored:
        case hub.ResourceSlice():
            slice_spec = _slice_spec_from_hub(stored.spec)
            return v1beta1.ResourceSlice(
                api_version=api_version, kind=stored.kind, metadata=stored.metadata, spec=slice_spec
            )
        case hub.ResourceClaim():
            spec = _claim_spec_from_hub(stored.spec)
            return v1beta1.ResourceClaim(
                api_version=api_version, kind=stored.kind, metadata=stored.metadata, spec=spec, status=stored.status
            )
        case hub.ResourceClaimTemplate():
            template = v1beta1.ResourceClaimTemplateSpec(
                metadata=stored.spec.metadata, spec=_claim_spec_from_hub(stored.spec.spec)
            )
            return v1beta1.ResourceClaimTemplate(
                api_version=api_version, kind=stored.kind, metadata=stored.metadata, spec=template
            )
        case _:
            return _in_version(stored, version)


def _in_version(obj: ObjectT, version: str) -> ObjectT:
    group, slash, _ = obj.api_version.rpartition("/")
    api_version = f"{group}{slash}{version}"
    return obj if obj.api_version == api_version else replace(obj, api_version=api_version)


# --- Slices ----------------------------------------------------------------------------------------------------


def _slice_spec_to_hub(spec: v1beta1.ResourceSliceSpec) -> hub.ResourceSliceSpec:
    return hub.ResourceSliceSpec(
        driver=spec.driver,
        pool=spec.pool,
        node_name=spec.node_name or None,
        node_selector=spec.node_selector,
        all_nodes=spec.all_nodes or None,
        devices=None if spec.devices is None else tuple(_device_to_hub(device) for device in spec.devices),
        per_device_node_selection=spec.per_device_node_selection,
        shared_counters=spec.shared_counters,
        partition_type_attribute=spec.partition_type_attribute,
        skip_node_operations=spec.skip_node_operations,
    )


def _slice_spec_from_hub(spec: hub.ResourceSliceSpec) -> v1beta1.ResourceSliceSpec:
    return v1beta1.ResourceSliceSpec(
        driver=spec.driver,
        pool=spec.pool,
        node_name=spec.node_name or "",
        node_selector=spec.node_selector,
        all_nodes=spec.all_nodes or False,
        devices=None if spec.devices is None else tuple(_device_from_hub(device) for device in spec.devices),
        per_device_node_selection=spec.per_device_node_selection,
        shared_counters=spec.shared_counters,
        partition_type_attribute=spec.partition_type_attribute,
        skip_node_operations=spec.skip_node_operations,
    )


def _device_to_hub(device: v1beta1.Device) -> hub.Device:
    if device.basic is None:
        return hub.Device(name=device.name)
    return hub.Device(
        name=device.name, **{field: getattr(device.basic, field) for field in v1beta1.BasicDevice.__struct_fields__}
    )


def _device_from_hub(device: hub.Device) -> v1beta1.Device:
    basic = v1beta1.BasicDevice(**{field: getattr(device, field) for field in v1beta1.BasicDevice.__struct_fields__})
    return v1beta1.Device(name=device.name, basic=basic)


# --- Claims ----------------------------------------------------------------------------------------------------


def _claim_spec_to_hub(spec: v1beta1.ResourceClaimSpec) -> hub.ResourceClaimSpec:
    requests = spec.devices.requests
    devices = hub.DeviceClaim(
        requests=None if requests is None else tuple(_request_to_hub(request) for request in requests),
        constraints=spec.devices.constraints,
        config=spec.devices.config,
    )
    return hub.ResourceClaimSpec(devices=devices, reserved_for=spec.reserved_for)


def _claim_spec_from_hub(spec: hub.ResourceClaimSpec) -> v1beta1.ResourceClaimSpec:
    requests = spec.devices.requests
    devices = v1beta1.DeviceClaim(
        requests=None if requests is None else tuple(_request_from_hub(request) for request in requests),
        constraints=spec.devices.constraints,
        config=spec.devices.config,
    )
    return v1beta1.ResourceClaimSpec(devices=devices, reserved_for=spec.reserved_for)


def _request_to_hub(request: v1beta1.DeviceRequest) -> hub.DeviceRequest:
    exactly = None
    if _has_exact_fields(request):
        exactly = hub.ExactDeviceRequest(
            device_class_name=request.device_class_name,
            selectors=request.selectors or (),
            allocation_mode=request.allocation_mode,
            count=request.count,
            admin_access=request.admin_access,
            tolerations=request.tolerations or (),
            capacity=request.capacity,
            derived_attributes=request.derived_attributes or (),
        )
    return hub.DeviceRequest(name=request.name, exactly=exactly, first_available=request.first_available)


def _has_exact_fields(request: v1beta1.DeviceRequest) -> bool:
    return bool(
        request.device_class_name
        or request.allocation_mode
        or request.count
        or request.selectors is not None
        or request.admin_access is not None
        or request.tolerations is not None
        or request.capacity is not None
        or request.derived_attributes is not None
    )


def _request_from_hub(request: hub.DeviceRequest) -> v1beta1.DeviceRequest:
    exactly = request.exactly
    if exactly is None:
        return v1beta1.DeviceRequest(name=request.name, first_available=request.first_available)
    return v1beta1.DeviceRequest(
        name=request.name,
        device_class_name=exactly.device_class_name,
        selectors=exactly.selectors or None,
        allocation_mode=exactly.allocation_mode,
        count=exactly.count,
        admin_access=exactly.admin_access,
        first_available=request.first_available,
        tolerations=exactly.tolerations or None,
        capacity=exactly.capacity,
        derived_attributes=exactly.derived_attributes or None,
    )
