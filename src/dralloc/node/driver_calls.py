"""Calls drivers over gRPC, and validates their answers.

A driver may be slow, answer for other claims or too much, or send bytes that cannot be decoded. Each of these becomes a `CallFailed`
with a message for the pod's owner.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
import grpc.aio

from dralloc.node.checkpoint import ClaimRecord, ReportedDevice
from dralloc.node.drivers import Deregistered, DriverInstance, Drivers, calling
from dralloc.node.kubelet.plugin_sockets import CLAIM_ANSWER_BYTES_MAX, shortened
from dralloc.node.metrics import NodeMetrics
from dralloc.rpc.plugin_services import NODE_PREPARE_RESOURCES, NODE_UNPREPARE_RESOURCES, PluginService


class CallFailed(Exception):
    """A call to a driver failed; the message names the driver and the reason."""


class DriverCalls(Protocol):
    async def prepare(
        self, driver: str, claims: Sequence[ClaimRecord], shared: Mapping[str, str]
    ) -> Mapping[str, tuple[ReportedDevice, ...]]:
        """The prepared devices by claim UID. `shared` has, by claim UID, a device of which the claim has a share."""
        ...

    async def unprepare(self, driver: str, claims: Sequence[ClaimRecord]) -> None: ...


@dataclass(frozen=True, slots=True)
class GrpcDriverCalls:
    """Calls over the drivers' sockets, each with a deadline."""

    drivers: Drivers
    metrics: NodeMetrics
    timeout_s: float

    async def prepare(
        self, driver: str, claims: Sequence[ClaimRecord], shared: Mapping[str, str]
    ) -> Mapping[str, tuple[ReportedDevice, ...]]:
        instance = self._instance(driver)
        service = instance.service_for(shares=any(claim.uid in shared for claim in claims))
        if service is None:
            raise CallFailed(_no_shares(instance, claims, shared))
        response = await self._call(instance, service, NODE_PREPARE_RESOURCES, claims)
        return read_prepared(claims, response)

    async def unprepare(self, driver: str, claims: Sequence[ClaimRecord]) -> None:
        instance = self._instance(driver)
        response = await self._call(instance, instance.services[0], NODE_UNPREPARE_RESOURCES, claims)
        check_answers(NODE_UNPREPARE_RESOURCES, claims, response)

    def _instance(self, driver: str) -> DriverInstance:
        instance = self.drivers.pick(driver)
        if instance is None:
            raise CallFailed(f"DRA driver {driver} is not registered")
        return instance

    async def _call(
        self, instance: DriverInstance, service: PluginService, rpc: str, claims: Sequence[ClaimRecord]
    ) -> Any:
        message = service.messages.Claim
        asked = [message(namespace=claim.namespace, uid=claim.uid, name=claim.name) for claim in claims]
        request = service.rpcs[rpc].request(claims=asked)
        started, code = time.monotonic(), grpc.StatusCode.OK
        try:
            with calling():
                response = await service.callable_on(instance.channel, rpc)(request, timeout=self.timeout_s)
            if response is None:
                code = grpc.StatusCode.INTERNAL
                raise CallFailed(f"{rpc} of driver {instance.driver}: the answer cannot be decoded")
            return response
        except grpc.aio.AioRpcError as error:
            code = error.code()
            raise CallFailed(
                f"{rpc} of driver {instance.driver}: {code.name}: {shortened(error.details() or '')}"
            ) from None
        except Deregistered:
            code = grpc.StatusCode.UNAVAILABLE
            raise CallFailed(f"{rpc} of driver {instance.driver}: it was deregistered during the call") from None
        finally:
            path = service.path(rpc)
            self.metrics.calls.observe(instance.driver, path, _go_name(code), value=time.monotonic() - started)


def read_prepared(claims: Sequence[ClaimRecord], response: Any) -> dict[str, tuple[ReportedDevice, ...]]:
    """The devices by claim UID; raises CallFailed for an invalid answer."""
    check_answers(NODE_PREPARE_RESOURCES, claims, response)
    return {uid: tuple(map(_device, answer.devices)) for uid, answer in response.claims.items()}


def check_answers(rpc: str, claims: Sequence[ClaimRecord], response: Any) -> None:
    """Raise CallFailed unless the answer has exactly one entry for each claim, and none is an error."""
    names = {claim.uid: claim.name for claim in claims}
    for uid, answer in sorted(response.claims.items()):
        if uid not in names:
            raise CallFailed(f"{rpc} answered for ResourceClaim UID {shortened(uid)!r}, which was not in the call")
        if answer.error:
            raise CallFailed(f"{rpc} failed for ResourceClaim {names[uid]}: {shortened(answer.error)}")
        if (size := answer.ByteSize()) > CLAIM_ANSWER_BYTES_MAX:
            raise CallFailed(
                f"{rpc} answered {size:,} bytes for ResourceClaim {names[uid]}; "
                f"an answer for one claim has at most {CLAIM_ANSWER_BYTES_MAX:,} bytes"
            )
    if missing := [claim.name for claim in claims if claim.uid not in response.claims]:
        raise CallFailed(f"{rpc} skipped {len(missing)} ResourceClaims ({', '.join(missing)})")


def _device(device: Any) -> ReportedDevice:
    # v1beta1 has no share IDs.
    has_share = "share_id" in type(device).DESCRIPTOR.fields_by_name and device.HasField("share_id")
    return ReportedDevice(
        pool=device.pool_name,
        device=device.device_name,
        share_id=device.share_id if has_share else None,
        requests=tuple(device.request_names),
        cdi_ids=tuple(device.cdi_device_ids),
    )


def _no_shares(instance: DriverInstance, claims: Iterable[ClaimRecord], shared: Mapping[str, str]) -> str:
    claim = next(claim for claim in claims if claim.uid in shared)
    spoken = ", ".join(service.advertised for service in instance.services)
    return (
        f"ResourceClaim {claim.name} has a share of device {shared[claim.uid]}, but driver {instance.driver} serves only "
        f"{spoken}, which has no share IDs; it must serve v1.DRAPlugin"
    )


def _go_name(code: grpc.StatusCode) -> str:
    """The status code as a kubelet labels it: `DeadlineExceeded` for DEADLINE_EXCEEDED, `OK` unchanged."""
    name: str = code.name
    return name if code is grpc.StatusCode.OK else name.title().replace("_", "")
