"""The rules for answers of a driver, as pure functions of the call and the answer."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from dralloc.driver_kit.caller import AnsweredClaim, AnsweredDevice, ClaimName, PluginInfo
from dralloc.driver_kit.findings import Finding, Remark, Violation
from dralloc.kube.request_name import RequestName
from dralloc.kube.resource_v1 import DeviceRequestAllocationResult, ResourceClaim
from dralloc.kube.validation.formats import validate_driver_name
from dralloc.node.kubelet.cdi import is_cdi_name
from dralloc.node.kubelet.plugin_sockets import CLAIM_ANSWER_BYTES_MAX, SOCKET_PATH_LENGTH_MAX
from dralloc.primitives.field_errors import FieldPath
from dralloc.rpc.plugin_services import DRA_PLUGIN_TYPE, DRA_SERVICES, DRA_V1, PluginService

ITS_OWN_ERROR: Final = "the driver itself answered with this error; find its cause in the code of the driver"


def check_info(info: PluginInfo) -> Iterator[Finding]:
    """What is wrong with an answer to GetInfo."""
    if info.type != DRA_PLUGIN_TYPE:
        yield Violation(f"the type is {info.type!r}; a kubelet requires {DRA_PLUGIN_TYPE!r}")
    for problem in validate_driver_name(info.name, FieldPath.of("name")):
        yield Violation(f"the name is not a valid driver name: {problem}")
    if info.endpoint and not info.endpoint.startswith("/"):
        yield Violation(f"the endpoint {info.endpoint!r} is not an absolute path")
    if len(os.fsencode(info.endpoint)) > SOCKET_PATH_LENGTH_MAX:
        yield Violation(f"the endpoint is longer than {SOCKET_PATH_LENGTH_MAX} bytes, the maximum for a socket")
    known = services_in(info, DRA_SERVICES)
    if not known:
        names = " or ".join(service.advertised for service in DRA_SERVICES)
        yield Violation(f"the driver advertises {', '.join(info.versions) or 'no version'}; a kubelet requires {names}")
    elif DRA_V1 not in known:
        yield Remark(f"the driver does not advertise {DRA_V1.advertised}, so it cannot report share IDs")
    elif (
        next(version for version in info.versions if version in {service.advertised for service in known})
        != DRA_V1.advertised
    ):
        yield Remark(f"a kubelet calls the first version that it supports, and {DRA_V1.advertised} is not the first")
    if len(set(info.versions)) != len(info.versions):
        yield Violation(f"a version is advertised twice: {', '.join(info.versions)}")


def services_in(info: PluginInfo, known: Iterable[PluginService]) -> tuple[PluginService, ...]:
    return tuple(service for service in known if service.advertised in info.versions)


def check_entries(asked: Iterable[ClaimName], answered: Mapping[str, AnsweredClaim]) -> Iterator[Finding]:
    """There is exactly one entry for each claim of the call; otherwise a kubelet fails the whole call."""
    names = {claim.uid: claim for claim in asked}
    for uid, claim in names.items():
        if uid not in answered:
            yield Violation(f"there is no entry for claim {claim.namespace}/{claim.name} ({uid})")
    for uid in answered.keys() - names.keys():
        yield Violation(f"there is an entry for {uid!r}, which was not in the call")


def check_success(claim: ClaimName, answered: Mapping[str, AnsweredClaim], doing: str) -> Iterator[Finding]:
    """The entry of the claim is not an error."""
    entry = answered.get(claim.uid)
    if entry is not None and entry.error:
        yield Violation(f"{doing} claim {claim.namespace}/{claim.name} failed: {entry.error}", ITS_OWN_ERROR)


def check_devices(
    claim: ResourceClaim, answered: AnsweredClaim, driver: str, *, with_shares: bool
) -> Iterator[Finding]:
    """The devices of the answer are those of the allocation, with names by which a kubelet can give them to containers."""
    allocation = claim.status.allocation
    assert allocation is not None, "only allocated claims are prepared"
    own = [result for result in allocation.devices.results if result.driver == driver]
    if not answered.devices and own:
        yield Remark(
            "the answer has no devices; containers get nothing from the claim, and the pod status shows no device health"
        )
    if answered.size > CLAIM_ANSWER_BYTES_MAX:
        yield Remark(
            f"the answer has {answered.size:,} bytes; the node agent of dralloc accepts {CLAIM_ANSWER_BYTES_MAX:,}, "
            "because every container that uses the claim repeats the devices in its status"
        )
    for device in answered.devices:
        yield from _check_device(device, own, with_shares=with_shares)
    answered_keys = [(device.pool, device.device, device.share_id) for device in answered.devices]
    if with_shares and len(set(answered_keys)) != len(answered_keys):
        yield Violation("the answer has a device twice")
    missing = {(result.pool, result.device) for result in own} - {(key[0], key[1]) for key in answered_keys}
    if answered.devices and missing:
        yield Remark(
            "allocated devices that the answer omits: " + ", ".join(sorted(f"{pool}/{name}" for pool, name in missing))
        )


def _check_device(
    device: AnsweredDevice, own: Iterable[DeviceRequestAllocationResult], *, with_shares: bool
) -> Iterator[Finding]:
    shown = f"device {device.pool}/{device.device}"
    meant = [result for result in own if (result.pool, result.device) == (device.pool, device.device)]
    if not meant:
        yield Violation(f"{shown} is not allocated to the claim from this driver")
        return
    requests = {RequestName.parse(result.request).main for result in meant}
    for request in device.requests:
        if "/" in request:
            yield Violation(f"{shown}: request {request!r} is a subrequest; containers refer to the main request")
        elif request not in requests:
            yield Violation(f"{shown}: allocated for request {', '.join(sorted(requests))}, not for {request!r}")
    shares = {result.share_id for result in meant}
    if with_shares and device.share_id not in shares:
        wanted = " or ".join(sorted(share or "none" for share in shares))
        yield Violation(f"{shown}: the share ID is {device.share_id or 'none'}, expected {wanted}")
    for name in device.cdi_device_ids:
        if not is_cdi_name(name):
            yield Violation(f"{shown}: {name!r} is not a CDI device name such as vendor.com/class=device")


def check_same(
    first: Mapping[str, AnsweredClaim], second: Mapping[str, AnsweredClaim], what: str, *, with_shares: bool = True
) -> Iterator[Finding]:
    """Two calls for the same claims get the same answer."""
    for uid, entry in first.items():
        other = second.get(uid)
        if other is not None and _content(entry, with_shares) != _content(other, with_shares):
            yield Violation(f"{what}: the answers differ: first {_shown(entry)}, then {_shown(other)}")


def _content(entry: AnsweredClaim, with_shares: bool) -> list[tuple[object, ...]]:
    return sorted(
        (device.pool, device.device, device.requests, device.cdi_device_ids, device.share_id or "")
        if with_shares
        else (device.pool, device.device, device.requests, device.cdi_device_ids)
        for device in entry.devices
    )


def _shown(entry: AnsweredClaim) -> str:
    if entry.error:
        return f"error {entry.error!r}"
    names = [f"{device.pool}/{device.device} as {', '.join(device.cdi_device_ids) or '-'}" for device in entry.devices]
    return "; ".join(names) or "no devices"
