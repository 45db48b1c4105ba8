"""Defaults of absent values, applied before an object is validated or stored.

An object that needs no default is returned as it is, so defaulting is idempotent and cheap.
"""

from __future__ import annotations

from typing import Final, TypeVar

from msgspec.structs import replace

from dralloc.kube import resource_v1
from dralloc.kube.wire import Time, map_changed

CountedT = TypeVar("CountedT", resource_v1.ExactDeviceRequest, resource_v1.DeviceSubRequest)


def default_resource_slice(obj: resource_v1.ResourceSlice, now: Time) -> resource_v1.ResourceSlice:
    """Sets the time of every taint without one."""
    devices = obj.spec.devices
    if not devices:
        return obj
    defaulted = map_changed(devices, lambda device: _default_device(device, now))
    return obj if defaulted is devices else replace(obj, spec=replace(obj.spec, devices=defaulted))


def default_device_taint_rule(obj: resource_v1.DeviceTaintRule, now: Time) -> resource_v1.DeviceTaintRule:
    taint = _default_taint(obj.spec.taint, now)
    return obj if taint is obj.spec.taint else replace(obj, spec=replace(obj.spec, taint=taint))


def default_resource_claim(obj: resource_v1.ResourceClaim, *, flattened: bool) -> resource_v1.ResourceClaim:
    spec = _default_claim_spec(obj.spec, flattened=flattened)
    if spec is not obj.spec:
        obj = replace(obj, spec=spec)
    allocation = obj.status.allocation
    if allocation is None:
        return obj
    defaulted = _default_allocation(allocation)
    return obj if defaulted is allocation else replace(obj, status=replace(obj.status, allocation=defaulted))


def default_resource_claim_template(
    obj: resource_v1.ResourceClaimTemplate, *, flattened: bool
) -> resource_v1.ResourceClaimTemplate:
    spec = _default_claim_spec(obj.spec.spec, flattened=flattened)
    return obj if spec is obj.spec.spec else replace(obj, spec=replace(obj.spec, spec=spec))


def _default_device(device: resource_v1.Device, now: Time) -> resource_v1.Device:
    if not device.taints:
        return device
    taints = map_changed(device.taints, lambda taint: _default_taint(taint, now))
    return device if taints is device.taints else replace(device, taints=taints)


def _default_taint(taint: resource_v1.DeviceTaint, now: Time) -> resource_v1.DeviceTaint:
    return taint if taint.time_added is not None else replace(taint, time_added=now)


def _default_claim_spec(spec: resource_v1.ResourceClaimSpec, *, flattened: bool) -> resource_v1.ResourceClaimSpec:
    requests = spec.devices.requests
    if not requests:
        return spec
    defaulted = map_changed(requests, lambda request: _default_request(request, flattened=flattened))
    return spec if defaulted is requests else replace(spec, devices=replace(spec.devices, requests=defaulted))


def _default_request(request: resource_v1.DeviceRequest, *, flattened: bool) -> resource_v1.DeviceRequest:
    exactly = request.exactly
    if exactly is not None:
        # v1beta1 cannot tell whether a request without a class is meant as an exact request, and gets no defaults.
        counted = not flattened or exactly.device_class_name
        exactly = _default_tolerations(_default_count(exactly) if counted else exactly)
    alternatives = map_changed(request.first_available, lambda sub: _default_tolerations(_default_count(sub)))
    if exactly is request.exactly and alternatives is request.first_available:
        return request
    return replace(request, exactly=exactly, first_available=alternatives)


# All that a claim can have, for summed capacity.
_DEFAULT_COUNTS: Final = {resource_v1.EXACT_COUNT: 1, resource_v1.AGGREGATED_CAPACITY: 32}


def _default_count(request: CountedT) -> CountedT:
    mode = request.allocation_mode or resource_v1.EXACT_COUNT
    count = request.count or _DEFAULT_COUNTS.get(mode, 0)
    if mode == request.allocation_mode and count == request.count:
        return request
    return replace(request, allocation_mode=mode, count=count)


TolerantT = TypeVar(
    "TolerantT", resource_v1.ExactDeviceRequest, resource_v1.DeviceSubRequest, resource_v1.DeviceRequestAllocationResult
)


def _default_tolerations(owner: TolerantT) -> TolerantT:
    if not owner.tolerations:
        return owner
    tolerations = map_changed(owner.tolerations, _default_toleration)
    return owner if tolerations is owner.tolerations else replace(owner, tolerations=tolerations)


def _default_toleration(toleration: resource_v1.DeviceToleration) -> resource_v1.DeviceToleration:
    return toleration if toleration.operator else replace(toleration, operator=resource_v1.EQUAL)


def _default_allocation(allocation: resource_v1.AllocationResult) -> resource_v1.AllocationResult:
    results = map_changed(allocation.devices.results, _default_tolerations)
    if results is allocation.devices.results:
        return allocation
    return replace(allocation, devices=replace(allocation.devices, results=results))
