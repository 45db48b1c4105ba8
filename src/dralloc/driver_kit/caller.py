"""Calls a driver as a kubelet does: over its sockets, with a kubelet's deadlines, in every version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from dralloc.node.kubelet.plugin_sockets import (
    CALL_TIMEOUT_S,
    DIAL_TIMEOUT_S,
    GET_INFO_TIMEOUT_S,
    MESSAGE_BYTES_MAX,
    NOTIFY_TIMEOUT_S,
    find_info_fault,
    shortened,
    why_silent,
)
from dralloc.rpc.plugin_services import (
    DRA_V1,
    GET_INFO,
    NODE_PREPARE_RESOURCES,
    NODE_UNPREPARE_RESOURCES,
    NODE_WATCH_RESOURCES,
    NOTIFY_REGISTRATION_STATUS,
    REGISTRATION,
    PluginService,
)

UNANSWERED_MAX: Final = 2
SILENT_TIMEOUT_S: Final = 2.0


class RpcFailed(Exception):
    """The call failed, or the answer cannot be decoded; `code` is the name of the gRPC status code."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(f"{code}: {details}" if details else code)
        self.code = code


@dataclass(frozen=True, slots=True)
class ClaimName:
    """A claim as a kubelet names it in its calls."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class AnsweredDevice:
    """A device of an answer; v1beta1 has no `share_id`."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_device_ids: tuple[str, ...]
    share_id: str | None


@dataclass(frozen=True, slots=True)
class AnsweredClaim:
    """The entry of one claim in an answer."""

    error: str
    devices: tuple[AnsweredDevice, ...] = ()
    # In bytes, as a message.
    size: int = 0


@dataclass(frozen=True, slots=True)
class PluginInfo:
    type: str
    name: str
    endpoint: str
    versions: tuple[str, ...]


class Responsiveness:
    """How a driver answered so far. After two calls without an answer, further ones wait only briefly, until one is answered.

    Otherwise the checks of a silent driver would take an hour.
    """

    def __init__(self) -> None:
        self._unanswered = 0

    @property
    def is_silent(self) -> bool:
        return self._unanswered >= UNANSWERED_MAX

    def timeout_s(self, usual_s: float) -> float:
        return min(usual_s, SILENT_TIMEOUT_S) if self.is_silent else usual_s

    def record(self, *, answered: bool) -> None:
        self._unanswered = 0 if answered else self._unanswered + 1


class Caller:
    def __init__(self, channel: grpc.aio.Channel, responsiveness: Responsiveness | None = None) -> None:
        self._channel = channel
        self._responsiveness = responsiveness or Responsiveness()

    async def get_info(self) -> PluginInfo:
        info = await self._call(REGISTRATION, GET_INFO, REGISTRATION.messages.InfoRequest(), GET_INFO_TIMEOUT_S)
        if fault := find_info_fault(info.ByteSize()):
            raise RpcFailed("RESOURCE_EXHAUSTED", fault)
        return PluginInfo(info.type, info.name, info.endpoint, tuple(info.supported_versions))

    async def notify(self, *, registered: bool = True, error: str = "") -> None:
        status = REGISTRATION.messages.RegistrationStatus(plugin_registered=registered, error=error)
        await self._call(REGISTRATION, NOTIFY_REGISTRATION_STATUS, status, NOTIFY_TIMEOUT_S)

    async def prepare(
        self, claims: Iterable[ClaimName], service: PluginService = DRA_V1, *, timeout_s: float = CALL_TIMEOUT_S
    ) -> Mapping[str, AnsweredClaim]:
        request = service.messages.NodePrepareResourcesRequest(claims=_claims(claims, service))
        response = await self._call(service, NODE_PREPARE_RESOURCES, request, timeout_s)
        return {
            uid: AnsweredClaim(
                entry.error, tuple(_device(device, service) for device in entry.devices), entry.ByteSize()
            )
            for uid, entry in response.claims.items()
        }

    async def unprepare(
        self, claims: Iterable[ClaimName], service: PluginService = DRA_V1, *, timeout_s: float = CALL_TIMEOUT_S
    ) -> Mapping[str, AnsweredClaim]:
        request = service.messages.NodeUnprepareResourcesRequest(claims=_claims(claims, service))
        response = await self._call(service, NODE_UNPREPARE_RESOURCES, request, timeout_s)
        return {uid: AnsweredClaim(entry.error) for uid, entry in response.claims.items()}

    async def watch_health(self, service: PluginService) -> AsyncGenerator[Any, None]:
        watch = service.callable_on(self._channel, NODE_WATCH_RESOURCES)
        try:
            async for message in watch(service.messages.NodeWatchResourcesRequest()):
                yield _read(message, NODE_WATCH_RESOURCES)
        except grpc.aio.AioRpcError as error:
            raise RpcFailed(error.code().name, shortened(error.details() or "")) from None

    async def _call(self, service: PluginService, name: str, request: Any, timeout_s: float) -> Any:
        limit_s = self._responsiveness.timeout_s(timeout_s)
        try:
            answer = await service.callable_on(self._channel, name)(request, timeout=limit_s)
        except grpc.aio.AioRpcError as error:
            is_late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            self._responsiveness.record(answered=not is_late)
            details = f"no answer to {name} within {limit_s:g} s" if is_late else shortened(error.details() or "")
            raise RpcFailed(error.code().name, details) from None
        self._responsiveness.record(answered=True)
        return _read(answer, name)


@asynccontextmanager
async def calling(
    socket: Path | str, *, dial_s: float = DIAL_TIMEOUT_S, responsiveness: Responsiveness | None = None
) -> AsyncIterator[Caller]:
    """A connection to the socket inside the block; raises `RpcFailed` if no gRPC server answers there in time."""
    # A restarted driver must be reached at once, without a growing backoff.
    options = [
        ("grpc.max_reconnect_backoff_ms", 500),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ]
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=options) as channel:
        try:
            async with asyncio.timeout(dial_s):
                await channel.channel_ready()
        except TimeoutError:
            raise RpcFailed("UNAVAILABLE", why_silent(str(socket))) from None
        yield Caller(channel, responsiveness)


def _read(message: Any | None, name: str) -> Any:
    if message is None:
        raise RpcFailed("INTERNAL", f"the answer to {name} cannot be decoded")
    return message


def _claims(claims: Iterable[ClaimName], service: PluginService) -> list[Any]:
    return [service.messages.Claim(namespace=claim.namespace, name=claim.name, uid=claim.uid) for claim in claims]


def _device(device: Any, service: PluginService) -> AnsweredDevice:
    has_share = service is DRA_V1 and device.HasField("share_id")
    return AnsweredDevice(
        requests=tuple(device.request_names),
        pool=device.pool_name,
        device=device.device_name,
        cdi_device_ids=tuple(device.cdi_device_ids),
        share_id=device.share_id if has_share else None,
    )
