"""gRPC between the node agents and the drivers of a simulation: sockets in real directories, calls in virtual time.

The agent finds a socket, connects and calls; the handlers of the SDK answer in the process of the driver. A socket of a driver that was
killed stays where it is.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc

from dralloc.testing.virtual_time import PROCESS, SimulatedProcess
from tests.simulator.grpc_errors import grpc_error, network_errors_as_grpc
from tests.simulator.network import Network


class PluginNetwork:
    """All sockets of all machines."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.listeners: dict[str, _Listener] = {}
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def listening(self, path: Path, handlers: list[grpc.GenericRpcHandler]) -> AsyncIterator[None]:
        """Stands in for a gRPC server."""
        process = PROCESS.get()
        assert process is not None, "drivers run in a process"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        os.mknod(path, stat.S_IFSOCK | 0o600)
        listener = self.listeners[str(path)] = _Listener(process, handlers)
        self._change()
        try:
            yield
        finally:
            if self.listeners.get(str(path)) is listener:
                del self.listeners[str(path)]
            self._change()
            if not process.dead:
                path.unlink(missing_ok=True)

    async def changed(self) -> None:
        await self._changed.wait()

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class _Listener:
    def __init__(self, process: SimulatedProcess, handlers: list[grpc.GenericRpcHandler]) -> None:
        self.process = process
        self._handlers = handlers

    def find(self, method: str) -> Any:
        details = SimpleNamespace(method=method, invocation_metadata=())
        return next(found for handler in self._handlers if (found := handler.service(details)) is not None)


class PluginChannel:
    """Stands in for a `grpc.aio.Channel` to one socket. Drivers of simulations have no streams."""

    def __init__(self, plugins: PluginNetwork, source: str, endpoint: str) -> None:
        self._plugins = plugins
        self._source = source
        self._endpoint = endpoint

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        is_served = self._endpoint in self._plugins.listeners
        return grpc.ChannelConnectivity.READY if is_served else grpc.ChannelConnectivity.TRANSIENT_FAILURE

    async def wait_for_state_change(self, last: grpc.ChannelConnectivity) -> None:
        while self.get_state() is last:
            await self._plugins.changed()

    async def channel_ready(self) -> None:
        while self.get_state() is not grpc.ChannelConnectivity.READY:
            await self._plugins.changed()

    def unary_unary(self, path: str, request_serializer: Any, response_deserializer: Any) -> Any:
        async def call(request: Any, *, timeout: float) -> Any:
            listener = self._plugins.listeners.get(self._endpoint)
            if listener is None:
                raise grpc_error(grpc.StatusCode.UNAVAILABLE, "nothing listens at the socket")
            handler, sent = listener.find(path), request_serializer(request)

            async def work() -> bytes:
                answer = await handler.unary_unary(handler.request_deserializer(sent), None)
                return bytes(handler.response_serializer(answer))

            # A socket of the same machine: a message arrives, or the connection breaks.
            faults = replace(self._plugins.network.faults, duplicate=0.0, late=0.0)
            with network_errors_as_grpc():
                async with asyncio.timeout(timeout):
                    answer = await self._plugins.network.call(self._source, listener.process, work, faults)
            return response_deserializer(answer)

        return call

    async def close(self, grace: float | None = None) -> None:
        """No-op: calls in progress end by themselves."""
