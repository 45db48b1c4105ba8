"""A driver with one fault: a correct driver behind a proxy that changes some calls.

The tests of the driver kit use it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from dralloc.client.async_client import AsyncClient
from dralloc.client.transport import ClientRequest, ClientResponse, Stream, Transport, TransportError
from dralloc.driver.driver import Driver
from dralloc.driver.plugin import Plugin
from dralloc.driver.settings import Settings
from dralloc.rpc.plugin_services import (
    DRA_SERVICES,
    GET_INFO,
    HEALTH_SERVICES,
    NODE_PREPARE_RESOURCES,
    NODE_UNPREPARE_RESOURCES,
    NODE_WATCH_RESOURCES,
    NOTIFY_REGISTRATION_STATUS,
    REGISTRATION,
    PluginService,
)


@dataclass(frozen=True, slots=True)
class FrontCall:
    """A call through the proxy. `number` counts the calls of its method from 1, across restarts."""

    service: PluginService
    method: str
    request: Any
    context: Any
    number: int
    channel: grpc.aio.Channel
    client: AsyncClient
    # Of the correct driver.
    settings: Settings
    # Clear while the correct driver is frozen.
    running: asyncio.Event
    # State of the proxy.
    memory: dict[str, Any]

    @property
    def messages(self) -> Any:
        return self.service.messages

    async def forward(self, request: Any = None) -> Any:
        """The answer of the correct driver to this or another request."""
        await self.running.wait()
        return await self.service.callable_on(self.channel, self.method)(request or self.request)

    async def fail(self, text: str) -> Any:
        await self.context.abort(grpc.StatusCode.INTERNAL, text)


Spoil = Callable[[FrontCall], Awaitable[Any]]
SpoilStream = Callable[[FrontCall], AsyncIterator[Any]]


async def honest(call: FrontCall) -> Any:
    return await call.forward()


async def honest_stream(call: FrontCall) -> AsyncIterator[Any]:
    async for message in call.service.callable_on(call.channel, call.method)(call.request):
        yield message


async def _do_nothing(_client: AsyncClient) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The fault of a driver."""

    get_info: Spoil = honest
    notify: Spoil = honest
    prepare: Spoil = honest
    unprepare: Spoil = honest
    health: SpoilStream = honest_stream
    # The versions that are served, which may differ from the announced ones.
    served: tuple[PluginService, ...] = DRA_SERVICES
    # Called at each restart with its number and the settings of the correct driver.
    at_start: Callable[[int, Settings], None] = lambda _number, _settings: None
    # Called with a client when the correct driver runs.
    when_running: Callable[[AsyncClient], Awaitable[None]] = _do_nothing
    # Changes requests to the API server.
    rewrite: Callable[[ClientRequest], ClientRequest] = lambda request: request


@dataclass(slots=True)
class FaultyApi:
    """The API server as the driver sees it."""

    transport: Transport
    rewrite: Callable[[ClientRequest], ClientRequest]
    is_away: bool = False
    delay_s: float = 0.0

    async def send(self, request: ClientRequest) -> ClientResponse:
        await asyncio.sleep(self.delay_s)
        if self.is_away:
            raise TransportError("the server is away")
        return await self.transport.send(self.rewrite(request))

    def stream(self, request: ClientRequest) -> AbstractAsyncContextManager[Stream]:
        if self.is_away:
            raise TransportError("the server is away")
        return self.transport.stream(request)

    async def close(self) -> None:
        pass

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        self.is_away = True
        try:
            yield
        finally:
            self.is_away = False

    @asynccontextmanager
    async def slow(self, delay_s: float) -> AsyncIterator[None]:
        self.delay_s = delay_s
        try:
            yield
        finally:
            self.delay_s = 0.0


@dataclass(slots=True)
class BrokenDriver:
    """The correct driver and its proxy; can be restarted, frozen, and kept from writing files."""

    make_driver: Callable[[int], Driver]
    broken: Broken
    transport: Transport
    settings: Settings
    # The sockets of the proxy.
    directory: Path
    api: FaultyApi = field(init=False)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _running: asyncio.Event = field(default_factory=asyncio.Event)
    _starts: int = 0
    _counts: dict[str, int] = field(default_factory=dict)
    _memory: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.api = FaultyApi(self.transport, self.broken.rewrite)
        self._running.set()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        self._running.clear()
        try:
            yield
        finally:
            self._running.set()

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Files are where directories should be, so that nothing can be written into them."""
        places = [self.settings.data_dir(self.make_driver(0).name) / "claims", self.settings.cdi_dir]
        for place in places:
            place.mkdir(parents=True, exist_ok=True)
            place.rename(f"{place}-away")
            place.touch()
        try:
            yield
        finally:
            for place in places:
                place.unlink()
                Path(f"{place}-away").rename(place)

    async def start(self) -> None:
        self._starts += 1
        self.broken.at_start(self._starts, self.settings)
        driver = self.make_driver(self._starts)
        plugin = Plugin(driver, self.settings, self.api)
        await self._stack.enter_async_context(plugin.running())
        await self.broken.when_running(AsyncClient(self.transport))
        sockets = self.settings.sockets(driver.name)
        inner = await self._stack.enter_async_context(grpc.aio.insecure_channel(f"unix:{sockets.service}"))
        registrar = await self._stack.enter_async_context(grpc.aio.insecure_channel(f"unix:{sockets.registration}"))
        await self._serve(self.directory / "dra.sock", self._claim_handlers(inner))
        await self._serve(self.directory / "driver-reg.sock", [self._registration_handlers(registrar)])

    def ended(self) -> str:
        return ""

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def stop(self) -> None:
        await self._stack.aclose()

    async def _serve(self, socket: Path, handlers: list[grpc.GenericRpcHandler]) -> None:
        socket.unlink(missing_ok=True)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers([_RawHandlers(each) for each in handlers])
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        self._stack.push_async_callback(server.stop, None)

    def _claim_handlers(self, channel: grpc.aio.Channel) -> list[grpc.GenericRpcHandler]:
        calls = [
            service.handlers(
                {
                    NODE_PREPARE_RESOURCES: self._unary(service, NODE_PREPARE_RESOURCES, channel, self.broken.prepare),
                    NODE_UNPREPARE_RESOURCES: self._unary(
                        service, NODE_UNPREPARE_RESOURCES, channel, self.broken.unprepare
                    ),
                }
            )
            for service in self.broken.served
        ]
        streams = [
            service.handlers({NODE_WATCH_RESOURCES: self._stream(service, channel)}) for service in HEALTH_SERVICES
        ]
        return [*calls, *streams]

    def _registration_handlers(self, channel: grpc.aio.Channel) -> grpc.GenericRpcHandler:
        async def get_info(call: FrontCall) -> Any:
            info = await self.broken.get_info(call)
            info.endpoint = str(self.directory / "dra.sock")
            return info

        return REGISTRATION.handlers(
            {
                GET_INFO: self._unary(REGISTRATION, GET_INFO, channel, get_info),
                NOTIFY_REGISTRATION_STATUS: self._unary(
                    REGISTRATION, NOTIFY_REGISTRATION_STATUS, channel, self.broken.notify
                ),
            }
        )

    def _unary(
        self, service: PluginService, method: str, channel: grpc.aio.Channel, spoil: Spoil
    ) -> Callable[..., Any]:
        async def handle(request: Any, context: Any) -> Any:
            return await spoil(self._call(service, method, request, context, channel))

        return handle

    def _stream(self, service: PluginService, channel: grpc.aio.Channel) -> Callable[..., Any]:
        async def handle(request: Any, context: Any) -> AsyncIterator[Any]:
            async for message in self.broken.health(
                self._call(service, NODE_WATCH_RESOURCES, request, context, channel)
            ):
                yield message

        return handle

    def _call(
        self, service: PluginService, method: str, request: Any, context: Any, channel: grpc.aio.Channel
    ) -> FrontCall:
        self._counts[method] = self._counts.get(method, 0) + 1
        number, client = self._counts[method], AsyncClient(self.api)
        return FrontCall(
            service, method, request, context, number, channel, client, self.settings, self._running, self._memory
        )


class _RawHandlers(grpc.GenericRpcHandler):  # type: ignore[misc]  # gRPC has no types
    """Handlers whose answers may be raw bytes."""

    def __init__(self, handlers: grpc.GenericRpcHandler) -> None:
        self._handlers = handlers

    def service(self, handler_call_details: Any) -> Any:
        found: Any = self._handlers.service(handler_call_details)
        if found is None:
            return None
        serialized = found.response_serializer
        return found._replace(
            response_serializer=lambda answer: answer if isinstance(answer, bytes) else serialized(answer)
        )


@asynccontextmanager
async def running_broken(driver: BrokenDriver) -> AsyncIterator[BrokenDriver]:
    await driver.start()
    try:
        yield driver
    finally:
        await driver.stop()
        # Let the streams of the proxy see that their channels have closed.
        await asyncio.sleep(0)
