"""The registered drivers of this node and their connections.

During a rolling update two instances of a driver are registered. Calls go to the most recently registered instance that is
connected; if none is, to the most recent one, so that its error is reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
import grpc.aio

from dralloc.node.kubelet.plugin_sockets import MESSAGE_BYTES_MAX
from dralloc.rpc.plugin_services import DRA_SERVICES, DRA_V1, HEALTH_SERVICES, PluginService

CHANNEL_OPTIONS: Final = (
    # A new instance may listen at the path of an old one and must not inherit its broken connection.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
)


# Opens a channel to the socket at a path. Simulations bring their own.
Connect = Callable[[str], grpc.aio.Channel]


def open_channel(endpoint: str) -> grpc.aio.Channel:
    """A channel to the socket at this path; it connects on the first call."""
    return grpc.aio.insecure_channel(f"unix:{endpoint}", options=CHANNEL_OPTIONS)


def dra_services(advertised: tuple[str, ...]) -> tuple[PluginService, ...]:
    """The supported DRA services among the advertised ones, in the driver's order."""
    known = {service.advertised: service for service in DRA_SERVICES}
    return tuple(known[name] for name in advertised if name in known)


def health_service(advertised: tuple[str, ...]) -> PluginService | None:
    """The newest health service that the driver advertises."""
    return next((service for service in HEALTH_SERVICES if service.advertised in advertised), None)


@dataclass(frozen=True, slots=True, eq=False)
class DriverInstance:
    """One process of a driver, and the connection for all calls to it."""

    driver: str
    endpoint: str
    services: tuple[PluginService, ...]
    health: PluginService | None
    channel: grpc.aio.Channel = field(repr=False)

    def service_for(self, *, shares: bool) -> PluginService | None:
        """The service to call; for shares of devices only v1, which has share IDs."""
        if shares:
            return DRA_V1 if DRA_V1 in self.services else None
        return self.services[0]


class EndpointInUse(Exception):
    """An instance of the driver is registered at that endpoint already."""


class Deregistered(Exception):
    """The instance was removed before a call to it had ended; its connection is closed."""


@contextmanager
def calling() -> Iterator[None]:
    """Raises Deregistered for a call inside the block whose connection was closed.

    To gRPC it is a cancelled call, which would look as if this task were cancelled, and end it.
    """
    try:
        yield
    except grpc.aio.UsageError:
        raise Deregistered from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise Deregistered from None


# Called with the driver's name after its registration, and whenever it connects or disconnects.
OnConnection = Callable[[str, bool], None]


class Drivers:
    """The instances of each driver, and which of them are connected."""

    def __init__(self, on_connection: OnConnection) -> None:
        self._instances: dict[str, list[DriverInstance]] = {}
        self._connected: set[DriverInstance] = set()
        self._reported: dict[str, bool] = {}
        self._watches: dict[DriverInstance, asyncio.Task[None]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._on_connection = on_connection

    def names(self) -> tuple[str, ...]:
        return tuple(self._instances)

    def pick(self, driver: str) -> DriverInstance | None:
        """The instance that gets the calls."""
        instances = self._instances.get(driver)
        if not instances:
            return None
        return next((instance for instance in reversed(instances) if instance in self._connected), instances[-1])

    def is_connected(self, driver: str) -> bool:
        return any(instance in self._connected for instance in self._instances.get(driver, ()))

    def add(self, instance: DriverInstance) -> None:
        others = self._instances.setdefault(instance.driver, [])
        if any(other.endpoint == instance.endpoint for other in others):
            raise EndpointInUse(f"an instance of {instance.driver} is registered at {instance.endpoint} already")
        others.append(instance)
        self._watches[instance] = asyncio.create_task(self._watch_connection(instance))
        self._report(instance.driver)

    def remove(self, instance: DriverInstance, *, grace_s: float) -> None:
        """Remove the instance; calls in progress may end within the grace period."""
        others = self._instances.get(instance.driver, [])
        if instance not in others:
            return
        others.remove(instance)
        self._connected.discard(instance)
        self._watches.pop(instance).cancel()
        self._report(instance.driver)
        if not others:
            del self._instances[instance.driver], self._reported[instance.driver]
        self._in_background(instance.channel.close(grace_s))

    async def close(self) -> None:
        for instances in list(self._instances.values()):
            for instance in list(instances):
                self.remove(instance, grace_s=0.0)
        await asyncio.gather(*self._closing)

    async def _watch_connection(self, instance: DriverInstance) -> None:
        while True:
            state = instance.channel.get_state(try_to_connect=True)
            if state is grpc.ChannelConnectivity.READY:
                self._connected.add(instance)
            else:
                self._connected.discard(instance)
            self._report(instance.driver)
            await instance.channel.wait_for_state_change(state)

    def _report(self, driver: str) -> None:
        connected = self.is_connected(driver)
        if self._reported.get(driver) is not connected:
            self._reported[driver] = connected
            self._on_connection(driver, connected)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
