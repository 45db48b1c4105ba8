"""Conversion between the versions of `resource.k8s.io` and the hub (v1). No conversion fails: an invalid combination is
carried over and left to validation.

v1beta2 has v1's shape. v1beta1 differs in two places (see `v1beta1`), and holds a slice's `nodeName` and `allNodes` as
plain values, so that it cannot distinguish unset from empty there.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dralloc.kube import resource_v1 as hub
from dralloc.kube import v1beta1
from dralloc.kube.meta_v1 import ApiObject

V1: Final = "v1"
V1BETA2: Final = "v1beta2"
V1BETA1: Final = "v1beta1"
# Newest first: the order in which clients should prefer them.
VERSIONS: Final = (V1, V1BETA2, V1BETA1)

HUB_API_VERSION: Final = f"{hub.GROUP}/{V1}"

ObjectT = TypeVar("ObjectT", bound=ApiObject)
StructT = TypeVar("StructT", bound=Struct)


def to_hub(sent: ApiObject) -> ApiObject:
    """Returns the object in the hub's shape. Kind and metadata are the same in all versions."""
    match sent:
        case v1beta1.ResourceSlice():
            return _carry(sent, hub.ResourceSlice, api_version=HUB_API_VERSION, spec=_slice_spec_to_hub(sent.spec))
        case v1beta1.ResourceClaim():
            return _carry(sent, hub.ResourceClaim, api_version=HUB_API_VERSION, spec=_claim_spec_to_hub(sent.spec))
        case v1beta1.ResourceClaimTemplate():
            template = _carry(sent.spec, hub.ResourceClaimTemplateSpec, spec=_claim_spec_to_hub(sent.spec.spec))
            return _carry(sent, hub.ResourceClaimTemplate, api_version=HUB_API_VERSION, spec=template)
        case _:
            return _in_version(sent, V1)


def from_hub(stored: ApiObject, version: str) -> ApiObject:
    if version != V1BETA1:
        return _in_version(stored, version)
    api_version = f"{hub.GROUP}/{version}"
    match stored:
        case hub.ResourceSlice():
            slice_spec = _slice_spec_from_hub(stored.spec)
            return _carry(stored, v1beta1.ResourceSlice, api_version=api_version, spec=slice_spec)
        case hub.ResourceClaim():
            spec = _claim_spec_from_hub(stored.spec)
            return _carry(stored, v1beta1.ResourceClaim, api_version=api_version, spec=spec)
        case hub.ResourceClaimTemplate():
            spec = _claim_spec_from_hub(stored.spec.spec)
            template = _carry(stored.spec, v1beta1.ResourceClaimTemplateSpec, spec=spec)
            return _carry(stored, v1beta1.ResourceClaimTemplate, api_version=api_version, spec=template)
        case _:
            return _in_version(stored, version)


def _carry(source: Struct, target: type[StructT], **changed: Any) -> StructT:
    """Returns the struct in another type: the fields that have the same name in both, and those that change."""
    carried = {name: getattr(source, name) for name in _shared_fields(source.__class__, target)}
    return target(**(carried | changed))


@cache
def _shared_fields(one: type[Struct], other: type[Struct]) -> tuple[str, ...]:
    return tuple(name for name in one.__struct_fields__ if name in other.__struct_fields__)


def _in_version(obj: ObjectT, version: str) -> ObjectT:
    group, slash, _ = obj.api_version.rpartition("/")
    api_version = f"{group}{slash}{version}"
    return obj if obj.api_version == api_version else replace(obj, api_version=api_version)


# --- Slices ----------------------------------------------------------------------------------------------------


def _slice_spec_to_hub(spec: v1beta1.ResourceSliceSpec) -> hub.ResourceSliceSpec:
    return _carry(
        spec,
        hub.ResourceSliceSpec,
        node_name=spec.node_name or None,
        all_nodes=spec.all_nodes or None,
        devices=None if spec.devices is None else tuple(_device_to_hub(device) for device in spec.devices),
    )


def _slice_spec_from_hub(spec: hub.ResourceSliceSpec) -> v1beta1.ResourceSliceSpec:
    return _carry(
        spec,
        v1beta1.ResourceSliceSpec,
        node_name=spec.node_name or "",
        all_nodes=spec.all_nodes or False,
        devices=None if spec.devices is None else tuple(_device_from_hub(device) for device in spec.devices),
    )


def _device_to_hub(device: v1beta1.Device) -> hub.Device:
    return hub.Device(name=device.name) if device.basic is None else _carry(device.basic, hub.Device, name=device.name)


def _device_from_hub(device: hub.Device) -> v1beta1.Device:
    return v1beta1.Device(name=device.name, basic=_carry(device, v1beta1.BasicDevice))


# --- Claims ----------------------------------------------------------------------------------------------------


def _claim_spec_to_hub(spec: v1beta1.ResourceClaimSpec) -> hub.ResourceClaimSpec:
    requests = spec.devices.requests
    converted = None if requests is None else tuple(_request_to_hub(request) for request in requests)
    return _carry(spec, hub.ResourceClaimSpec, devices=_carry(spec.devices, hub.DeviceClaim, requests=converted))


def _claim_spec_from_hub(spec: hub.ResourceClaimSpec) -> v1beta1.ResourceClaimSpec:
    requests = spec.devices.requests
    converted = None if requests is None else tuple(_request_from_hub(request) for request in requests)
    devices = _carry(spec.devices, v1beta1.DeviceClaim, requests=converted)
    return _carry(spec, v1beta1.ResourceClaimSpec, devices=devices)


# The fields of an exact request that v1beta1 distinguishes from empty ones.
_LISTS: Final = ("selectors", "tolerations", "derived_attributes")


def _request_to_hub(request: v1beta1.DeviceRequest) -> hub.DeviceRequest:
    exactly = None
    if _has_exact_fields(request):
        lists = {name: getattr(request, name) or () for name in _LISTS}
        exactly = _carry(request, hub.ExactDeviceRequest, **lists)
    return _carry(request, hub.DeviceRequest, exactly=exactly)


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
        or request.device_preference is not None
        or request.allocations is not None
    )


def _request_from_hub(request: hub.DeviceRequest) -> v1beta1.DeviceRequest:
    exactly = request.exactly
    if exactly is None:
        return _carry(request, v1beta1.DeviceRequest)
    lists = {name: getattr(exactly, name) or None for name in _LISTS}
    return _carry(exactly, v1beta1.DeviceRequest, name=request.name, first_available=request.first_available, **lists)
