"""The drivers on this node: each may have several instances, of which one gets the calls.

During a rolling update an old and a new instance of a driver run side by side. Calls go to the most recently registered one that
is connected; if none is, to the most recent one, whose error then says what is wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
import grpc.aio

from dralloc.rpc.plugin_services import DRA_SERVICES, DRA_V1, HEALTH_SERVICES, Service

CHANNEL_OPTIONS: Final = (
    # A new instance may sit at the path of an old one: it must not inherit the old one's broken connection.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", 64 << 20),
)


def open_channel(endpoint: str) -> grpc.aio.Channel:
    """A channel to the socket at this path. Nothing listens there yet, perhaps: calls find out."""
    return grpc.aio.insecure_channel(f"unix:{endpoint}", options=CHANNEL_OPTIONS)


def dra_services(advertised: tuple[str, ...]) -> tuple[Service, ...]:
    """The services that we both know, in the driver's order."""
    known = {service.advertised: service for service in DRA_SERVICES}
    return tuple(known[name] for name in advertised if name in known)


def health_service(advertised: tuple[str, ...]) -> Service | None:
    """The best health service that the driver has."""
    return next((service for service in HEALTH_SERVICES if service.advertised in advertised), None)


@dataclass(frozen=True, slots=True, eq=False)
class DriverInstance:
    """One process of a driver, with the one connection that all calls to it use."""

    driver: str
    endpoint: str
    services: tuple[Service, ...]
    health: Service | None
    channel: grpc.aio.Channel = field(repr=False)

    def service_for(self, *, shares: bool) -> Service | None:
        """The service to call; for shares of devices it must be one that can name them."""
        if shares:
            return DRA_V1 if DRA_V1 in self.services else None
        return self.services[0]


class EndpointInUse(Exception):
    """An instance of the driver is registered at that endpoint already."""


# Told when a driver can be reached, and when it cannot: from its registration on, and whenever that changes.
OnConnection = Callable[[str, bool], None]


class Drivers:
    """The instances by driver, and which of them are connected."""

    def __init__(self, on_connection: OnConnection) -> None:
        self._instances: dict[str, list[DriverInstance]] = {}
        self._connected: set[DriverInstance] = set()
        self._told: dict[str, bool] = {}
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
        self._tell(instance.driver)

    def remove(self, instance: DriverInstance, *, grace_s: float) -> None:
        """Forget the instance; calls that it is working on have the grace period to end."""
        others = self._instances.get(instance.driver, [])
        if instance not in others:
            return
        others.remove(instance)
        self._connected.discard(instance)
        self._watches.pop(instance).cancel()
        self._tell(instance.driver)
        if not others:
            del self._instances[instance.driver], self._told[instance.driver]
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
            self._tell(instance.driver)
            await instance.channel.wait_for_state_change(state)

    def _tell(self, driver: str) -> None:
        connected = self.is_connected(driver)
        if self._told.get(driver) is not connected:
            self._told[driver] = connected
            self._on_connection(driver, connected)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
