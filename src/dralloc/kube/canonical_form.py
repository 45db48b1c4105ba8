"""The canonical form of objects: times in UTC, driver parameters as `encode` prints them, and `None` instead of an empty
list where Kubernetes prints `null` or distinguishes the two.

Two objects in canonical form have the same meaning exactly if they are equal. Times are converted first, because an
object with an invalid time does not decode at all. Lists and parameters are converted last, because validation counts
the bytes that were sent and distinguishes an empty list from an absent one.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from dralloc.kube import resource_v1
from dralloc.kube.codec import encode
from dralloc.kube.meta_v1 import ApiObject, Condition
from dralloc.kube.resource_v1alpha3 import ResourcePoolStatusRequest
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.kube.timestamps import canonical_timestamp
from dralloc.kube.trees import ExactNumber
from dralloc.kube.wire import Time, map_changed

_JSON: Final = msgspec.json.Decoder(float_hook=ExactNumber)

# --- Times -----------------------------------------------------------------------------------------------------


ObjectT = TypeVar("ObjectT", bound=ApiObject)


def with_canonical_times(obj: ObjectT) -> ObjectT:
    """Returns the object with all its times in UTC and whole seconds; raises `BadTimestamp` for an invalid time."""
    return _with_canonical_times(_with_metadata_times(obj))  # type: ignore[return-value]


def _with_canonical_times(obj: ApiObject) -> ApiObject:
    match obj:
        case resource_v1.ResourceSlice():
            devices = map_changed(obj.spec.devices or (), _device_times)
            return (
                obj
                if not devices or devices is obj.spec.devices
                else replace(obj, spec=replace(obj.spec, devices=devices))
            )
        case resource_v1.DeviceTaintRule():
            taint, conditions = _taint_times(obj.spec.taint), map_changed(obj.status.conditions, _condition_times)
            if taint is obj.spec.taint and conditions is obj.status.conditions:
                return obj
            return replace(obj, spec=replace(obj.spec, taint=taint), status=replace(obj.status, conditions=conditions))
        case PodGroup():
            conditions = map_changed(obj.status.conditions, _condition_times)
            unchanged = conditions is obj.status.conditions
            return obj if unchanged else replace(obj, status=replace(obj.status, conditions=conditions))
        case ResourcePoolStatusRequest(status=answer) if answer is not None:
            conditions = map_changed(answer.conditions, _condition_times)
            unchanged = conditions is answer.conditions
            return obj if unchanged else replace(obj, status=replace(answer, conditions=conditions))
        case resource_v1.ResourceClaim():
            status = _claim_status_times(obj.status)
            return obj if status is obj.status else replace(obj, status=status)
        case _:
            return obj


def _with_metadata_times(obj: ApiObject) -> ApiObject:
    metadata = obj.metadata
    if metadata.creation_timestamp is None and metadata.deletion_timestamp is None:
        return obj
    created, deleted = _canonical_time(metadata.creation_timestamp), _canonical_time(metadata.deletion_timestamp)
    if created == metadata.creation_timestamp and deleted == metadata.deletion_timestamp:
        return obj
    return replace(obj, metadata=replace(metadata, creation_timestamp=created, deletion_timestamp=deleted))


def _canonical_time(time: Time | None) -> Time | None:
    return None if time is None else canonical_timestamp(time)


def _device_times(device: resource_v1.Device) -> resource_v1.Device:
    if not device.taints:
        return device
    taints = map_changed(device.taints, _taint_times)
    return device if taints is device.taints else replace(device, taints=taints)


def _taint_times(taint: resource_v1.DeviceTaint) -> resource_v1.DeviceTaint:
    time = _canonical_time(taint.time_added)
    return taint if time == taint.time_added else replace(taint, time_added=time)


def _condition_times(condition: Condition) -> Condition:
    time = _canonical_time(condition.last_transition_time)
    return condition if time == condition.last_transition_time else replace(condition, last_transition_time=time)


def _claim_status_times(status: resource_v1.ResourceClaimStatus) -> resource_v1.ResourceClaimStatus:
    allocation = status.allocation
    if allocation is not None and allocation.allocation_timestamp is not None:
        time = canonical_timestamp(allocation.allocation_timestamp)
        if time != allocation.allocation_timestamp:
            status = replace(status, allocation=replace(allocation, allocation_timestamp=time))
    devices = map_changed(status.devices, _device_status_times)
    return status if devices is status.devices else replace(status, devices=devices)


def _device_status_times(device: resource_v1.AllocatedDeviceStatus) -> resource_v1.AllocatedDeviceStatus:
    conditions = map_changed(device.conditions or (), _condition_times)
    return device if not conditions or conditions is device.conditions else replace(device, conditions=conditions)


# --- Lists and parameters --------------------------------------------------------------------------------------


def canonicalize(obj: ObjectT) -> ObjectT:
    """Returns the object in the form in which it is stored."""
    return _canonicalize(obj)  # type: ignore[return-value]


def _canonicalize(obj: ApiObject) -> ApiObject:
    match obj:
        case resource_v1.ResourceSlice():
            spec = obj.spec
            if spec.devices == () or spec.shared_counters == ():
                spec = replace(spec, devices=spec.devices or None, shared_counters=spec.shared_counters or None)
            return obj if spec is obj.spec else replace(obj, spec=spec)
        case resource_v1.DeviceClass():
            config = map_changed(obj.spec.config, _canonical_config)
            return obj if config is obj.spec.config else replace(obj, spec=replace(obj.spec, config=config))
        case resource_v1.ResourceClaim():
            claim_spec, status = _canonical_claim_spec(obj.spec), _canonical_claim_status(obj.status)
            unchanged = claim_spec is obj.spec and status is obj.status
            return obj if unchanged else replace(obj, spec=claim_spec, status=status)
        case resource_v1.ResourceClaimTemplate():
            claim_spec = _canonical_claim_spec(obj.spec.spec)
            return obj if claim_spec is obj.spec.spec else replace(obj, spec=replace(obj.spec, spec=claim_spec))
        case _:
            return obj


def _canonical_claim_spec(spec: resource_v1.ResourceClaimSpec) -> resource_v1.ResourceClaimSpec:
    devices = spec.devices
    config = map_changed(devices.config, _canonical_config)
    if devices.requests != () and config is devices.config:
        return spec
    return replace(spec, devices=replace(devices, requests=devices.requests or None, config=config))


def _canonical_claim_status(status: resource_v1.ResourceClaimStatus) -> resource_v1.ResourceClaimStatus:
    allocation = status.allocation
    if allocation is not None:
        config = map_changed(allocation.devices.config, _canonical_config)
        if config is not allocation.devices.config:
            status = replace(status, allocation=replace(allocation, devices=replace(allocation.devices, config=config)))
    devices = map_changed(status.devices, _canonical_device_status)
    return status if devices is status.devices else replace(status, devices=devices)


def _canonical_device_status(device: resource_v1.AllocatedDeviceStatus) -> resource_v1.AllocatedDeviceStatus:
    data = _canonical_json(device.data)
    if data is device.data and device.conditions != ():
        return device
    return replace(device, data=data, conditions=device.conditions or None)


ConfigT = TypeVar(
    "ConfigT",
    resource_v1.DeviceClassConfiguration,
    resource_v1.DeviceClaimConfiguration,
    resource_v1.DeviceAllocationConfiguration,
)


def _canonical_config(config: ConfigT) -> ConfigT:
    opaque = config.opaque
    if opaque is None:
        return config
    parameters = _canonical_json(opaque.parameters)
    return config if parameters is opaque.parameters else replace(config, opaque=replace(opaque, parameters=parameters))


def _canonical_json(text: msgspec.Raw) -> msgspec.Raw:
    if text == resource_v1.NULL:
        return resource_v1.NULL
    # Patches and other encodings decode and print the object: the text of the parameters must survive that.
    printed = encode(_JSON.decode(bytes(text)))
    return text if text == printed else msgspec.Raw(printed)
