"""The gRPC services of a driver on two Unix sockets: claims and health in all versions, and registration.

The service socket is opened before the registration socket, because a kubelet calls as soon as it finds the driver.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from dralloc.driver.claims import ClaimReference
from dralloc.driver.health import HealthBoard
from dralloc.driver.metrics import DriverMetrics
from dralloc.driver.preparer import Failure, Preparer, ReadyDevice
from dralloc.driver.settings import Sockets
from dralloc.rpc.plugin_services import (
    DRA_PLUGIN_TYPE,
    DRA_SERVICES,
    DRA_V1,
    GET_INFO,
    HEALTH_SERVICES,
    NODE_PREPARE_RESOURCES,
    NODE_UNPREPARE_RESOURCES,
    NODE_WATCH_RESOURCES,
    NOTIFY_REGISTRATION_STATUS,
    REGISTRATION,
    PluginService,
)

# Time for calls in progress when the driver shuts down.
GRACE_S: Final = 5.0

_logger = logging.getLogger(__name__)

Handler = Callable[[Any, Any], Any]


class Registration:
    """The registration service, and the status that the kubelet reported."""

    def __init__(self, driver: str, endpoint: Path, services: Iterable[PluginService]) -> None:
        self._driver = driver
        self._endpoint = endpoint
        self._services = tuple(service.advertised for service in services)
        self.is_registered = False
        self.registered = asyncio.Event()
        self.error = ""

    def handlers(self) -> grpc.GenericRpcHandler:
        return REGISTRATION.handlers({GET_INFO: self._get_info, NOTIFY_REGISTRATION_STATUS: self._notify})

    async def _get_info(self, _request: Any, _context: Any) -> Any:
        return REGISTRATION.messages.PluginInfo(
            type=DRA_PLUGIN_TYPE,
            name=self._driver,
            endpoint=str(self._endpoint),
            supported_versions=self._services,
        )

    async def _notify(self, request: Any, _context: Any) -> Any:
        self.is_registered, self.error = request.plugin_registered, request.error
        if self.is_registered:
            _logger.info("the kubelet has registered driver %s", self._driver)
            self.registered.set()
        else:
            _logger.error("the kubelet refused to register driver %s: %s", self._driver, self.error)
        return REGISTRATION.messages.RegistrationStatusResponse()


class ClaimCalls:
    """NodePrepareResources and NodeUnprepareResources in one version."""

    def __init__(self, service: PluginService, driver: str, preparer: Preparer, metrics: DriverMetrics) -> None:
        self._service = service
        self._driver = driver
        self._preparer = preparer
        self._metrics = metrics

    def handlers(self) -> grpc.GenericRpcHandler:
        return self._service.handlers(
            {
                NODE_PREPARE_RESOURCES: self._measured(NODE_PREPARE_RESOURCES, self._prepare),
                NODE_UNPREPARE_RESOURCES: self._measured(NODE_UNPREPARE_RESOURCES, self._unprepare),
            }
        )

    async def _prepare(self, request: Any, _context: Any) -> Any:
        messages = self._service.messages
        answers = await self._preparer.prepare(_references(request))
        return messages.NodePrepareResourcesResponse(
            claims={uid: self._prepared(answer) for uid, answer in answers.items()}
        )

    def _prepared(self, answer: tuple[ReadyDevice, ...] | Failure) -> Any:
        messages = self._service.messages
        if isinstance(answer, Failure):
            return messages.NodePrepareResourceResponse(error=answer.reason)
        return messages.NodePrepareResourceResponse(devices=[self._device(ready) for ready in answer])

    def _device(self, ready: ReadyDevice) -> Any:
        key = ready.device.key
        # v1beta1 has no share IDs.
        share: Mapping[str, str] = {"share_id": key.share_id} if key.share_id and self._service is DRA_V1 else {}
        return self._service.messages.Device(
            request_names=ready.device.requests,
            pool_name=key.pool,
            device_name=key.device,
            cdi_device_ids=ready.cdi_device_ids,
            **share,
        )

    async def _unprepare(self, request: Any, _context: Any) -> Any:
        messages = self._service.messages
        answers = await self._preparer.unprepare(_references(request))
        return messages.NodeUnprepareResourcesResponse(
            claims={
                uid: messages.NodeUnprepareResourceResponse(error=failure.reason if failure else "")
                for uid, failure in answers.items()
            }
        )

    def _measured(self, method: str, handler: Handler) -> Handler:
        version = self._service.advertised.partition(".")[0]

        async def measured(request: Any, context: Any) -> Any:
            begun_s = asyncio.get_running_loop().time()
            outcome = "failure"
            try:
                response = await handler(request, context)
                outcome = "failure" if any(entry.error for entry in response.claims.values()) else "success"
                return response
            finally:
                took_s = asyncio.get_running_loop().time() - begun_s
                self._metrics.calls.observe(self._driver, method, version, outcome, value=took_s)

        return measured


def _references(request: Any) -> list[ClaimReference]:
    """The claims of the call without duplicates."""
    return list(dict.fromkeys(ClaimReference(claim.namespace, claim.name, claim.uid) for claim in request.claims))


def health_handlers(service: PluginService, board: HealthBoard) -> grpc.GenericRpcHandler:
    async def watch(_request: Any, _context: Any) -> AsyncIterator[Any]:
        async for message in board.messages(service.messages):
            yield message

    return service.handlers({NODE_WATCH_RESOURCES: watch})


# Serves handlers on the socket at a path inside the block. Simulations bring their own.
Listen = Callable[[Path, list[grpc.GenericRpcHandler]], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def listening(path: Path, handlers: list[grpc.GenericRpcHandler]) -> AsyncIterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(handlers)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(GRACE_S)
        path.unlink(missing_ok=True)


@asynccontextmanager
async def serving(
    sockets: Sockets,
    *,
    listen: Listen,
    driver: str,
    preparer: Preparer,
    metrics: DriverMetrics,
    health: HealthBoard | None,
) -> AsyncIterator[Registration]:
    """Serve both sockets inside the block; on exit, calls in progress finish and the sockets are removed."""
    handlers = [ClaimCalls(service, driver, preparer, metrics).handlers() for service in DRA_SERVICES]
    services = list(DRA_SERVICES)
    if health is not None:
        handlers += [health_handlers(service, health) for service in HEALTH_SERVICES]
        services += HEALTH_SERVICES
    registration = Registration(driver, sockets.service, services)
    async with listen(sockets.service, handlers), listen(sockets.registration, [registration.handlers()]):
        try:
            yield registration
        finally:
            if health is not None:
                health.close()
