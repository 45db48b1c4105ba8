"""A driver on real sockets that follows a script: it answers, fails, hangs, sends wrong answers or disappears.

It does not use the driver SDK, so that node and SDK are not tested against each other's mistakes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import grpc
import grpc.aio

from dralloc.rpc import plugin_services

# Replaces the correct answer: gets the service and the request, and returns a response or aborts.
Answer = Callable[[plugin_services.PluginService, Any, Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class DriverCall:
    """A call of the driver: service, method and claims."""

    service: str
    method: str
    claims: tuple[str, ...]


@dataclass(eq=False)
class ScriptedDriver:
    """One instance of a driver. An `async with` block opens its sockets and registers it."""

    directory: Path
    name: str = "gpu.example.com"
    instance: str = ""
    services: Sequence[plugin_services.PluginService] = plugin_services.DRA_SERVICES
    health: Sequence[plugin_services.PluginService] = ()
    type: str = plugin_services.DRA_PLUGIN_TYPE
    # The devices of a claim, as keyword arguments of the message.
    devices: Callable[[Any], Sequence[dict[str, Any]]] = lambda claim: [
        {"pool_name": "pool-a", "device_name": "gpu-0", "cdi_device_ids": [f"example.com/gpu={claim.name}"]}
    ]
    on_prepare: Answer | None = None
    on_unprepare: Answer | None = None
    on_get_info: Callable[[], Awaitable[Any]] | None = None
    on_notify: Callable[[], Awaitable[None]] | None = None
    calls: list[DriverCall] = field(default_factory=list)
    # The prepared claims, and those that were prepared concurrently.
    prepared: set[str] = field(default_factory=set)
    overlaps: list[str] = field(default_factory=list)
    registrations: list[tuple[bool, str]] = field(default_factory=list)
    reports: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)

    def __post_init__(self) -> None:
        suffix = f"-{self.instance}" if self.instance else ""
        self.registration_socket = self.directory / "plugins_registry" / f"{self.name}{suffix}-reg.sock"
        self.socket = self.directory / "plugins" / f"{self.name}{suffix}.sock"
        self.changed = asyncio.Condition()
        self._working: set[str] = set()
        self._server: grpc.aio.Server | None = None
        self._registrar: grpc.aio.Server | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await self._serve(
            self.socket,
            *(self._dra_handlers(service) for service in self.services),
            *(service.handlers({plugin_services.NODE_WATCH_RESOURCES: self._watch}) for service in self.health),
        )
        await self.start_registrar()

    async def start_registrar(self) -> None:
        handlers = plugin_services.REGISTRATION.handlers(
            {plugin_services.GET_INFO: self._get_info, plugin_services.NOTIFY_REGISTRATION_STATUS: self._notify}
        )
        self._registrar = await self._serve(self.registration_socket, handlers)

    async def stop(self) -> None:
        """Stop cleanly: the registration first."""
        self.registration_socket.unlink(missing_ok=True)
        for server in (self._registrar, self._server):
            if server is not None:
                await server.stop(grace=None)
        self._registrar = self._server = None
        self.socket.unlink(missing_ok=True)

    async def vanish(self) -> None:
        """Stop like a killed driver: its sockets stay and do not answer."""
        for server in (self._registrar, self._server):
            if server is not None:
                await server.stop(grace=None)
        self._registrar = self._server = None

    async def until(self, condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Wait until the condition is true."""
        async with asyncio.timeout(timeout_s), self.changed:
            await self.changed.wait_for(condition)

    def calls_of(self, method: str) -> list[DriverCall]:
        return [call for call in self.calls if call.method == method]

    # --- Serving --------------------------------------------------------------------------------------------------

    async def _serve(self, socket: Path, *handlers: grpc.GenericRpcHandler) -> grpc.aio.Server:
        socket.parent.mkdir(parents=True, exist_ok=True)
        socket.unlink(missing_ok=True)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(handlers)
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        return server

    def _dra_handlers(self, service: plugin_services.PluginService) -> grpc.GenericRpcHandler:
        async def prepare(request: Any, context: Any) -> Any:
            return await self._prepare(service, request, context)

        async def unprepare(request: Any, context: Any) -> Any:
            return await self._unprepare(service, request, context)

        functions = {
            plugin_services.NODE_PREPARE_RESOURCES: prepare,
            plugin_services.NODE_UNPREPARE_RESOURCES: unprepare,
        }
        return grpc.method_handlers_generic_handler(
            service.name,
            {
                name: grpc.unary_unary_rpc_method_handler(
                    function,
                    request_deserializer=service.rpcs[name].request.FromString,
                    # Raw bytes are sent unchanged.
                    response_serializer=lambda answer: answer if isinstance(answer, bytes) else _serialized(answer),
                )
                for name, function in functions.items()
            },
        )

    async def _get_info(self, _request: Any, _context: Any) -> Any:
        if self.on_get_info is not None:
            return await self.on_get_info()
        versions = [service.advertised for service in (*self.services, *self.health)]
        return plugin_services.REGISTRATION.messages.PluginInfo(
            type=self.type, name=self.name, endpoint=str(self.socket), supported_versions=versions
        )

    async def _notify(self, request: Any, _context: Any) -> Any:
        self.registrations.append((request.plugin_registered, request.error))
        await self._tell()
        if self.on_notify is not None:
            await self.on_notify()
        return plugin_services.REGISTRATION.messages.RegistrationStatusResponse()

    async def _prepare(self, service: plugin_services.PluginService, request: Any, context: Any) -> Any:
        uids = [claim.uid for claim in request.claims]
        self.overlaps += [uid for uid in uids if uid in self._working]
        self._working.update(uids)
        try:
            await self._note(service, plugin_services.NODE_PREPARE_RESOURCES, request)
            if self.on_prepare is not None:
                return await self.on_prepare(service, request, context)
            return self.prepared_response(service, request)
        finally:
            self._working.difference_update(uids)

    def prepared_response(self, service: plugin_services.PluginService, request: Any) -> Any:
        """The answer of a correct driver."""
        messages = service.messages
        answers = {}
        for claim in request.claims:
            self.prepared.add(claim.uid)
            devices = [messages.Device(**device) for device in self.devices(claim)]
            answers[claim.uid] = messages.NodePrepareResourceResponse(devices=devices)
        return messages.NodePrepareResourcesResponse(claims=answers)

    async def _unprepare(self, service: plugin_services.PluginService, request: Any, context: Any) -> Any:
        await self._note(service, plugin_services.NODE_UNPREPARE_RESOURCES, request)
        if self.on_unprepare is not None:
            return await self.on_unprepare(service, request, context)
        messages = service.messages
        self.prepared.difference_update(claim.uid for claim in request.claims)
        await self._tell()
        answers = {claim.uid: messages.NodeUnprepareResourceResponse() for claim in request.claims}
        return messages.NodeUnprepareResourcesResponse(claims=answers)

    async def _watch(self, _request: Any, _context: Any) -> AsyncIterator[Any]:
        while True:
            yield await self.reports.get()

    async def _note(self, service: plugin_services.PluginService, method: str, request: Any) -> None:
        self.calls.append(DriverCall(service.advertised, method, tuple(claim.uid for claim in request.claims)))
        await self._tell()

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()


def _serialized(message: Any) -> bytes:
    content: bytes = message.SerializeToString()
    return content
