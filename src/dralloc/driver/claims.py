"""Claims from the view of a driver: its allocated devices with share, capacity and configuration, and the prepared devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec.structs import replace

from dralloc.driver.vendor_errors import with_known_arguments
from dralloc.kube.device_parts import BadArgument
from dralloc.kube.meta_v1 import Condition
from dralloc.kube.request_name import RequestName
from dralloc.kube.resource_v1 import (
    NULL,
    AllocatedDeviceStatus,
    ConsumerReference,
    DeviceAllocationConfiguration,
    DeviceRequest,
    DeviceRequestAllocationResult,
    NetworkDeviceData,
    ResourceClaim,
)
from dralloc.node.kubelet.cdi import (
    ContainerEdits,
    DeviceNode,
    Hook,
    Mount,
    NetDevice,
    find_edit_faults,
    is_cdi_name,
)
from dralloc.primitives.decoders import UNREADABLE, make_decoder
from dralloc.primitives.quantity import Quantity

ParametersT = TypeVar("ParametersT")


@dataclass(frozen=True, slots=True)
class ClaimReference:
    """A claim as kubelets name it in their calls."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class BadConfig(ValueError):
    """The parameters are not valid for the driver; the message is for the pod's owner."""


@dataclass(frozen=True, slots=True)
class Config:
    """Opaque parameters for this driver, from the class (`FromClass`) or from the claim (`FromClaim`)."""

    source: str
    parameters: msgspec.Raw

    def read(self, into: type[ParametersT]) -> ParametersT:
        """The parameters as a value of this type; raises `BadConfig`."""
        try:
            return make_decoder(into).decode(self.parameters)
        except UNREADABLE as error:
            raise BadConfig(f"invalid parameters of the {self.source[4:].lower()}: {error}") from None


class DeviceKey(msgspec.Struct, frozen=True):
    """Identifies a device or a share of it."""

    pool: str
    device: str
    share_id: str | None = None

    def __str__(self) -> str:
        return f"{self.pool}/{self.device}" + (f" (share {self.share_id})" if self.share_id else "")


class PreparedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device that is ready for containers, its status for users, and state of the driver."""

    key: DeviceKey
    # Main requests; a container may refer to one of them.
    requests: tuple[str, ...]
    # The edits of containers, for a CDI file.
    edits: ContainerEdits = ContainerEdits()
    # CDI devices that other files describe.
    cdi_device_ids: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    network: NetworkDeviceData | None = None
    # JSON for the status of the claim.
    data: msgspec.Raw = NULL
    # JSON that the driver gets back in later calls, also after a restart.
    state: Any = None

    @property
    def has_status(self) -> bool:
        """True if there is something to write to `status.devices` of the claim."""
        return bool(self.conditions) or self.network is not None or self.data != NULL

    def status(self, driver: str) -> AllocatedDeviceStatus:
        """The entry for `status.devices` of the claim."""
        return AllocatedDeviceStatus(
            driver=driver,
            pool=self.key.pool,
            device=self.key.device,
            share_id=self.key.share_id,
            conditions=self.conditions or None,
            data=self.data,
            network_data=self.network,
        )


_PREPARED: Final = make_decoder(PreparedDevice)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedDevice:
    """A device, or a share of one, that is allocated to a request of the claim."""

    key: DeviceKey
    # The main request.
    request: str
    # The chosen subrequest of `firstAvailable`.
    alternative: str | None = None
    # What the share takes of each capacity, rounded by its policy.
    consumed: Mapping[str, Quantity] = field(default_factory=dict)
    # How far use of a capacity may burst; never less than what is consumed of it.
    limits: Mapping[str, Quantity] = field(default_factory=dict)
    # Those of the class before those of the claim.
    configs: tuple[Config, ...] = ()
    # The device may be in use by others, for monitoring.
    admin_access: bool = False
    # The entry of `status.allocation` as it is in the API.
    result: DeviceRequestAllocationResult = field(default_factory=DeviceRequestAllocationResult)

    @property
    def name(self) -> str:
        """The name of the device in its pool."""
        return self.key.device

    @property
    def pool(self) -> str:
        """The pool of the device."""
        return self.key.pool

    @property
    def share_id(self) -> str | None:
        """Which share of a shareable device; None for a whole device. Two shares of one device may belong to one claim."""
        return self.key.share_id

    def config(self, into: type[ParametersT]) -> ParametersT | None:
        """The effective parameters as a value of this type; those of the claim override those of the class."""
        return self.configs[-1].read(into) if self.configs else None

    @with_known_arguments
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
        """The prepared device: edits for containers, status for the claim, state for the driver.

        `env`, `device_nodes`, `mounts`, `hooks` and `net_devices` are edits of the containers that use the device; the SDK writes them
        to a CDI file of the claim. `cdi_device_ids` are further CDI devices, which other files describe. `conditions`, `network` and
        `data` (JSON) appear in `status.devices` of the claim. `state` (JSON) is kept on disk until the claim is released.
        A value that cannot be written and read back raises `BadArgument`.
        """
        made = PreparedDevice(
            key=self.key,
            requests=(self.request,),
            edits=ContainerEdits(
                env=dict(self._by_name(env, "env")),
                device_nodes=self._listed(device_nodes, "device_nodes"),
                mounts=self._listed(mounts, "mounts"),
                hooks=self._listed(hooks, "hooks"),
                net_devices=self._listed(net_devices, "net_devices"),
            ),
            cdi_device_ids=self._listed(cdi_device_ids, "cdi_device_ids"),
            conditions=self._listed(conditions, "conditions"),
            network=network,
            data=NULL if data is None else self._encoded(self._by_name(data, "data")),
            state=state,
        )
        for fault in find_value_faults(made):
            raise BadArgument(f"device {self.name}: {fault}")
        return made

    def _by_name(self, given: Mapping[str, Any] | None, argument: str) -> Mapping[str, Any]:
        if given is not None and not isinstance(given, Mapping):
            raise BadArgument(f"device {self.name}: {argument} is {told(given)}; use a dict by name")
        return given or {}

    def _listed(self, given: Iterable[Any], argument: str) -> tuple[Any, ...]:
        # A text would become a list of its letters.
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise BadArgument(f"device {self.name}: {argument} is {told(given)}; use a list")
        return tuple(given)

    def _encoded(self, data: Mapping[str, Any]) -> msgspec.Raw:
        for fault in find_json_faults(dict(data), "data"):
            raise BadArgument(f"device {self.name}: {fault}")
        return msgspec.Raw(msgspec.json.encode(dict(data)))


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatedClaim:
    """A claim with the allocated devices of this driver."""

    reference: ClaimReference
    # The devices and shares of this driver; a claim may have devices of other drivers, too.
    devices: tuple[AllocatedDevice, ...]
    # The requests of the claim by name.
    requests: Mapping[str, DeviceRequest] = field(default_factory=dict)
    # The pods or the workload that the claim is reserved for.
    consumers: tuple[ConsumerReference, ...] = ()
    # Devices that were prepared for this claim earlier, with their state.
    prepared: tuple[PreparedDevice, ...] = ()
    # Other claims that are prepared on this node.
    others: tuple[AllocatedClaim, ...] = ()

    @property
    def namespace(self) -> str:
        """The namespace of the claim."""
        return self.reference.namespace

    @property
    def name(self) -> str:
        """The name of the claim; another claim may have it later."""
        return self.reference.name

    @property
    def uid(self) -> str:
        """The UID of the claim, which no other claim ever has."""
        return self.reference.uid


def allocated_claim(claim: ResourceClaim, driver: str) -> AllocatedClaim:
    """The claim with its devices of this driver."""
    metadata, allocation = claim.metadata, claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    configs = allocation.devices.config if allocation is not None else ()
    return AllocatedClaim(
        reference=ClaimReference(metadata.namespace, metadata.name, metadata.uid),
        devices=tuple(_device(result, configs) for result in results if result.driver == driver),
        requests={request.name: request for request in claim.spec.devices.requests or ()},
        consumers=claim.status.reserved_for,
    )


def with_own_devices(claim: ResourceClaim, driver: str) -> ResourceClaim:
    """The claim with the results and parameters of this driver: what belongs to other drivers must not be recorded as ours."""
    allocation = claim.status.allocation
    if allocation is None:
        return claim
    devices = replace(
        allocation.devices,
        results=tuple(result for result in allocation.devices.results if result.driver == driver),
        config=tuple(
            config for config in allocation.devices.config if config.opaque is None or config.opaque.driver == driver
        ),
    )
    return replace(claim, status=replace(claim.status, allocation=replace(allocation, devices=devices)))


def _device(result: DeviceRequestAllocationResult, configs: Iterable[DeviceAllocationConfiguration]) -> AllocatedDevice:
    name = RequestName.parse(result.request)
    return AllocatedDevice(
        key=DeviceKey(result.pool, result.device, result.share_id),
        request=name.main,
        alternative=name.sub,
        consumed=result.consumed_capacity,
        limits=result.capacity_limits,
        configs=tuple(_configs_for(result, configs)),
        admin_access=bool(result.admin_access),
        result=result,
    )


def _configs_for(
    result: DeviceRequestAllocationResult, configs: Iterable[DeviceAllocationConfiguration]
) -> Iterator[Config]:
    """The configurations for all requests, for this request, or for the main request of this subrequest."""
    name = RequestName.parse(result.request)
    for config in configs:
        is_meant = not config.requests or name.is_in(tuple(map(RequestName.parse, config.requests)))
        if is_meant and config.opaque is not None and config.opaque.driver == result.driver:
            yield Config(config.source, config.opaque.parameters)


def find_value_faults(device: PreparedDevice) -> Iterator[str]:
    """Values that could be written and not be read back, or as something else."""
    faults = list(_find_faults_of_parts(device))
    if not faults:
        try:
            _PREPARED.decode(msgspec.json.encode(device))
        except UNREADABLE as error:
            # Such as: Expected `int`, got `str` - at `$.edits.deviceNodes[0].major`
            faults.append(str(error).replace("$.", ""))
    yield from faults


def _find_faults_of_parts(device: PreparedDevice) -> Iterator[str]:
    env, data = cast("tuple[object, object]", (device.edits.env, device.data))
    if isinstance(env, dict):
        others = {name: value for name, value in env.items() if isinstance(name, str) and not isinstance(value, str)}
        yield from (f"env {name} is {told(value)}; use a str" for name, value in others.items())
        if others:
            return
    if not isinstance(data, msgspec.Raw):
        yield f"data is {told(data)}; use a msgspec.Raw"
    yield from find_json_faults(replace(device, state=None), "", parts=msgspec.Struct)
    yield from find_json_faults(device.state, "state")


def find_prepared_faults(claim: AllocatedClaim, prepared: Iterable[PreparedDevice]) -> Iterator[str]:
    """How the prepared devices contradict the claim, and what of them cannot be kept."""
    known = {device.key for device in claim.devices}
    names = {device.request for device in claim.devices}
    for device in prepared:
        if faults := list(find_value_faults(device)):
            yield from (f"device {device.key}: {fault}" for fault in faults)
            continue
        if device.key not in known:
            yield f"the claim has no device {device.key}"
        for request in device.requests:
            if request not in names:
                yield f"device {device.key}: the claim has no request {request!r} with devices of this driver"
        for text in device.cdi_device_ids:
            if not is_cdi_name(text):
                yield f"device {device.key}: {text!r} is not a CDI name such as vendor.com/class=device"
        yield from (f"device {device.key}: {fault}" for fault in find_edit_faults(device.edits))


# --- Json values ----------------------------------------------------------------------------------------------------
# Values of drivers that are kept as JSON, and read back when the driver has started again. Drivers need not have
# types.
#
# The encoder takes more than JSON has, and writes it as something else: `nan` as null, bytes and keys that are
# numbers as text.


INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**64 - 1
SHOWN_LENGTH_MAX: Final = 60


def find_json_faults(value: Any, path: str, *, parts: type[msgspec.Struct] | tuple[()] = ()) -> Iterator[str]:
    """What would not be read back as it is. `parts`: the type of the objects of ours that are allowed."""
    pending = [(value, path)]
    while pending:
        one, place = pending.pop()
        match one:
            case dict():
                yield from (
                    f"the key {told(key)} of {place} is not JSON: use a str" for key in one if not _is_text(key)
                )
                pending.extend((each, f"{place}.{key}") for key, each in one.items())
            case list() | tuple():
                pending.extend((each, f"{place}[{index}]") for index, each in enumerate(one))
            case None | bool() | msgspec.Raw():
                continue
            case _ if parts and isinstance(one, parts):
                pending.extend((getattr(one, name), f"{place}.{name}".lstrip(".")) for name in one.__struct_fields__)
            case _ if not _is_plain(one):
                yield f"{place} is {told(one)}, which is not JSON: use a str, a number, a bool, None, a list or a dict"


def told(value: Any) -> str:
    """A value with its type, as messages show it."""
    if value is None:
        return "None"
    shown = repr(value)
    shown = shown if len(shown) <= SHOWN_LENGTH_MAX else f"{shown[:SHOWN_LENGTH_MAX]}…"
    return f"the {type(value).__name__} {shown}"


def _is_plain(value: Any) -> bool:
    match value:
        case int():
            return INTEGER_MIN <= value <= INTEGER_MAX
        case float():
            return isfinite(value)
        case _:
            return _is_text(value)


def _is_text(value: Any) -> bool:
    """False for text that is not UTF-8, too, such as names of files may be."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False
