"""The claim as a driver sees it: its own devices, each with share, consumed capacity and configuration; and what it makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from dralloc.api.meta_v1 import Condition
from dralloc.api.request_name import RequestName
from dralloc.api.resource_v1 import (
    NULL,
    AllocatedDeviceStatus,
    ConsumerReference,
    DeviceAllocationConfiguration,
    DeviceRequest,
    DeviceRequestAllocationResult,
    NetworkDeviceData,
    ResourceClaim,
)
from dralloc.kubelet.cdi import (
    ContainerEdits,
    DeviceNode,
    Hook,
    Mount,
    NetDevice,
    find_edit_faults,
    is_cdi_name,
)
from dralloc.primitives.decoders import make_decoder
from dralloc.primitives.quantity import Quantity

ParametersT = TypeVar("ParametersT")


@dataclass(frozen=True, slots=True)
class ClaimReference:
    """Which claim a node speaks of; more than this it does not say."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class BadConfig(ValueError):
    """Parameters that are not what the driver takes; the message goes to the pod's owner."""


@dataclass(frozen=True, slots=True)
class Config:
    """Parameters for this driver, from a class (`FromClass`, the administrator) or from the claim (`FromClaim`, the user)."""

    source: str
    parameters: msgspec.Raw

    def read(self, into: type[ParametersT]) -> ParametersT:
        """The parameters as a value of this type; raises `BadConfig`."""
        try:
            return make_decoder(into).decode(self.parameters)
        except msgspec.MsgspecError as error:
            raise BadConfig(f"the parameters of the {self.source[4:].lower()} are not understood: {error}") from None


class DeviceKey(msgspec.Struct, frozen=True):
    """Which device, and which share of it."""

    pool: str
    device: str
    share_id: str | None = None

    def __str__(self) -> str:
        return f"{self.pool}/{self.device}" + (f" (share {self.share_id})" if self.share_id else "")


class PreparedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device that containers can use, and what is to be remembered and told of it."""

    key: DeviceKey
    # Names of main requests; a container may ask for the devices of one of them.
    requests: tuple[str, ...]
    edits: ContainerEdits = ContainerEdits()
    # Devices of CDI files that were there before, such as a vendor's own.
    cdi_device_ids: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    network: NetworkDeviceData | None = None
    # For users, as JSON, in the status of the claim.
    data: msgspec.Raw = NULL
    # For the driver: it finds this again in every later call, also after a restart.
    state: Any = None

    @property
    def has_status(self) -> bool:
        return bool(self.conditions) or self.network is not None or self.data != NULL

    def status(self, driver: str) -> AllocatedDeviceStatus:
        return AllocatedDeviceStatus(
            driver=driver,
            pool=self.key.pool,
            device=self.key.device,
            share_id=self.key.share_id,
            conditions=self.conditions or None,
            data=self.data,
            network_data=self.network,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedDevice:
    """A device, or a share of one, that was given to a request of the claim."""

    key: DeviceKey
    # The main request, and the alternative of it that was chosen.
    request: str
    alternative: str | None = None
    consumed: Mapping[str, Quantity] = field(default_factory=dict)
    configs: tuple[Config, ...] = ()
    admin_access: bool = False
    result: DeviceRequestAllocationResult = field(default_factory=DeviceRequestAllocationResult)

    @property
    def name(self) -> str:
        return self.key.device

    @property
    def pool(self) -> str:
        return self.key.pool

    @property
    def share_id(self) -> str | None:
        return self.key.share_id

    def config(self, into: type[ParametersT]) -> ParametersT | None:
        """The parameters that count, as a value of this type: what the claim says goes before what its class says."""
        return self.configs[-1].read(into) if self.configs else None

    def prepared(
        self,
        *,
        env: Mapping[str, str] | None = None,
        device_nodes: Iterable[DeviceNode] = (),
        mounts: Iterable[Mount] = (),
        hooks: Iterable[Hook] = (),
        net_devices: Iterable[NetDevice] = (),
        cdi_device_ids: Iterable[str] = (),
        conditions: Iterable[Condition] = (),
        network: NetworkDeviceData | None = None,
        data: Mapping[str, Any] | None = None,
        state: Any = None,
    ) -> PreparedDevice:
        """This device, ready: what containers get, what the claim's status says, what the driver wants to remember."""
        return PreparedDevice(
            key=self.key,
            requests=(self.request,),
            edits=ContainerEdits(
                env=dict(env or {}),
                device_nodes=tuple(device_nodes),
                mounts=tuple(mounts),
                hooks=tuple(hooks),
                net_devices=tuple(net_devices),
            ),
            cdi_device_ids=tuple(cdi_device_ids),
            conditions=tuple(conditions),
            network=network,
            data=NULL if data is None else msgspec.Raw(msgspec.json.encode(data)),
            state=state,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedClaim:
    """Everything that a driver needs to know about a claim."""

    reference: ClaimReference
    devices: tuple[AllocatedDevice, ...]
    requests: Mapping[str, DeviceRequest] = field(default_factory=dict)
    consumers: tuple[ConsumerReference, ...] = ()
    # What the driver made of this claim before, with its state; empty where it is new.
    prepared: tuple[PreparedDevice, ...] = ()
    # The other claims that are prepared on this node.
    others: tuple[AllocatedClaim, ...] = ()

    @property
    def namespace(self) -> str:
        return self.reference.namespace

    @property
    def name(self) -> str:
        return self.reference.name

    @property
    def uid(self) -> str:
        return self.reference.uid


def allocated_claim(claim: ResourceClaim, driver: str) -> AllocatedClaim:
    """What the claim has of this driver's devices."""
    metadata, allocation = claim.metadata, claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    configs = allocation.devices.config if allocation is not None else ()
    return AllocatedClaim(
        reference=ClaimReference(metadata.namespace, metadata.name, metadata.uid),
        devices=tuple(_device(result, configs) for result in results if result.driver == driver),
        requests={request.name: request for request in claim.spec.devices.requests or ()},
        consumers=claim.status.reserved_for,
    )


def _device(result: DeviceRequestAllocationResult, configs: Iterable[DeviceAllocationConfiguration]) -> AllocatedDevice:
    name = RequestName.parse(result.request)
    return AllocatedDevice(
        key=DeviceKey(result.pool, result.device, result.share_id),
        request=name.main,
        alternative=name.sub,
        consumed=result.consumed_capacity,
        configs=tuple(_configs_for(result, configs)),
        admin_access=bool(result.admin_access),
        result=result,
    )


def _configs_for(
    result: DeviceRequestAllocationResult, configs: Iterable[DeviceAllocationConfiguration]
) -> Iterator[Config]:
    """Those for all requests, for this one, or for the main request of this alternative."""
    name = RequestName.parse(result.request)
    for config in configs:
        is_meant = not config.requests or name.is_in(tuple(map(RequestName.parse, config.requests)))
        if is_meant and config.opaque is not None and config.opaque.driver == result.driver:
            yield Config(config.source, config.opaque.parameters)


def find_prepared_faults(claim: AllocatedClaim, prepared: Iterable[PreparedDevice]) -> Iterator[str]:
    """Where a driver's answer does not fit the claim."""
    known = {device.key for device in claim.devices}
    names = {device.request for device in claim.devices}
    for device in prepared:
        if device.key not in known:
            yield f"the claim has no device {device.key}"
        for request in device.requests:
            if request not in names:
                yield f"device {device.key}: the claim has no request {request!r} with devices of this driver"
        for text in device.cdi_device_ids:
            if not is_cdi_name(text):
                yield f"device {device.key}: {text!r} is not a CDI name such as vendor.com/class=device"
        yield from (f"device {device.key}: {fault}" for fault in find_edit_faults(device.edits))
