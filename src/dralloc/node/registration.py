"""Plugin registration: a socket appears in the registry directory, and the node calls it to register the driver.

`plan_registrations` decides what to do from the sockets in the directory and earlier attempts. The directory is polled twice a
second, which is cheap and misses no event; a socket that was created again has another identity.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from dralloc.node.drivers import (
    Connect,
    DriverInstance,
    Drivers,
    EndpointInUse,
    dra_services,
    health_service,
    open_channel,
)
from dralloc.node.kubelet.plugin_sockets import SocketIdentity, find_info_fault, find_sockets, shortened, why_silent
from dralloc.node.timings import Timings
from dralloc.primitives.names import dns_subdomain
from dralloc.rpc.plugin_services import (
    DRA_PLUGIN_TYPE,
    GET_INFO,
    NOTIFY_REGISTRATION_STATUS,
    REGISTRATION,
    PluginService,
)

_logger = logging.getLogger(__name__)


class RegistrationRefused(Exception):
    """The plugin cannot be registered; the message is sent to it."""


# --- Plan ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The state of the registration of a socket. It is not retried before `again_at`."""

    identity: SocketIdentity
    is_registered: bool = False
    is_running: bool = False
    failures: int = 0
    again_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Register:
    path: str
    identity: SocketIdentity


@dataclass(frozen=True, slots=True)
class Deregister:
    path: str


def plan_registrations(
    found: Mapping[str, SocketIdentity], attempts: Mapping[str, Attempt], now_s: float
) -> tuple[Register | Deregister, ...]:
    """The actions after which exactly the plugins with a socket in the directory are registered."""
    gone = (Deregister(path) for path, attempt in attempts.items() if found.get(path) != attempt.identity)
    due = (Register(path, identity) for path, identity in found.items() if _is_due(attempts.get(path), identity, now_s))
    return (*gone, *due)


def _is_due(attempt: Attempt | None, identity: SocketIdentity, now_s: float) -> bool:
    if attempt is None or attempt.identity != identity:
        return True
    return not attempt.is_registered and not attempt.is_running and now_s >= attempt.again_at


# --- Registration -------------------------------------------------------------------------------------------------


class PluginWatcher:
    """Polls the directory, and registers and deregisters drivers accordingly."""

    def __init__(
        self,
        directory: Path,
        drivers: Drivers,
        timings: Timings,
        on_registered: Callable[[DriverInstance], None],
        connect: Connect = open_channel,
    ) -> None:
        self._directory = directory
        self._drivers = drivers
        self._timings = timings
        self._on_registered = on_registered
        self._connect = connect
        self._attempts: dict[str, Attempt] = {}
        self._instances: dict[str, DriverInstance] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Poll until cancelled."""
        try:
            while True:
                self.poll()
                await asyncio.sleep(self._timings.poll_s)
        finally:
            for task in self._tasks.values():
                task.cancel()

    def poll(self) -> None:
        """Compare the directory with the registrations, and start to register or deregister plugins."""
        now_s = asyncio.get_running_loop().time()
        for action in plan_registrations(find_sockets(self._directory), self._attempts, now_s):
            match action:
                case Deregister(path):
                    self._deregister(path)
                case Register(path, identity):
                    failures = self._attempts[path].failures if path in self._attempts else 0
                    self._attempts[path] = Attempt(identity=identity, is_running=True, failures=failures)
                    self._tasks[path] = asyncio.create_task(self._attempt(path, identity))

    def _deregister(self, path: str) -> None:
        del self._attempts[path]
        if task := self._tasks.pop(path, None):
            task.cancel()
        if instance := self._instances.pop(path, None):
            _logger.info("driver %s at %s is deregistered", instance.driver, path)
            self._drivers.remove(instance, grace_s=self._timings.call_s)

    async def _attempt(self, path: str, identity: SocketIdentity) -> None:
        """Register once. After a failure, set the time of the next attempt."""
        try:
            await self._register(path)
        except (RegistrationRefused, grpc.aio.AioRpcError, TimeoutError) as error:
            failures = self._attempts[path].failures + 1
            delay_s = self._timings.register_backoff.delay_s(failures)
            _logger.warning(
                "cannot register plugin at %s, retrying in %.1f s: %s", path, delay_s, describe(error, path)
            )
            again_at = asyncio.get_running_loop().time() + delay_s
            self._attempts[path] = Attempt(identity=identity, failures=failures, again_at=again_at)
        else:
            self._attempts[path] = replace(self._attempts[path], is_running=False, is_registered=True, failures=0)
        finally:
            if self._tasks.get(path) is asyncio.current_task():
                del self._tasks[path]

    async def _register(self, path: str) -> None:
        channel = self._connect(path)
        try:
            async with asyncio.timeout(self._timings.dial_s):
                await channel.channel_ready()
            get_info = REGISTRATION.callable_on(channel, GET_INFO)
            info = await get_info(REGISTRATION.messages.InfoRequest(), timeout=self._timings.get_info_s)
            try:
                instance = self._admit(path, info)
            except RegistrationRefused as refusal:
                with suppress(grpc.aio.AioRpcError):
                    await self._notify(channel, str(refusal))
                raise
            try:
                await self._notify(channel, "")
            except BaseException:
                # A driver that was not notified must not get calls.
                self._drivers.remove(instance, grace_s=0.0)
                raise
            self._instances[path] = instance
        finally:
            await channel.close()
        _logger.info("driver %s is registered with %s", instance.driver, instance.services[0].advertised)
        self._on_registered(instance)

    def _admit(self, path: str, info: Any) -> DriverInstance:
        services = check_plugin(info)
        endpoint = info.endpoint or path
        instance = DriverInstance(
            driver=info.name,
            endpoint=endpoint,
            services=services,
            health=health_service(tuple(info.supported_versions)),
            channel=self._connect(endpoint),
        )
        try:
            self._drivers.add(instance)
        except EndpointInUse as error:
            raise RegistrationRefused(str(error)) from None
        return instance

    async def _notify(self, channel: grpc.aio.Channel, error: str) -> None:
        status = REGISTRATION.messages.RegistrationStatus(plugin_registered=not error, error=error)
        await REGISTRATION.callable_on(channel, NOTIFY_REGISTRATION_STATUS)(status, timeout=self._timings.notify_s)


def check_plugin(info: Any) -> tuple[PluginService, ...]:
    """The services of the plugin that a node can call; raises RegistrationRefused."""
    if info is None:
        raise RegistrationRefused("the answer to GetInfo cannot be decoded")
    if fault := find_info_fault(info.ByteSize()):
        raise RegistrationRefused(fault)
    if info.type != DRA_PLUGIN_TYPE:
        raise RegistrationRefused(f"plugin type {shortened(info.type)!r} is not supported, only {DRA_PLUGIN_TYPE}")
    if faults := dns_subdomain(info.name):
        raise RegistrationRefused(
            f"{shortened(info.name)!r} is not a valid driver name: {shortened('; '.join(faults))}"
        )
    services = dra_services(tuple(info.supported_versions))
    if not services:
        named = ", ".join(info.supported_versions) or "none"
        raise RegistrationRefused(f"the plugin advertises no supported service (it advertises {shortened(named)})")
    return services


def describe(error: BaseException, path: str) -> str:
    """The error of a call in one line."""
    match error:
        case grpc.aio.AioRpcError():
            return f"{error.code().name}: {shortened(error.details() or 'no details')}"
        case TimeoutError():
            return why_silent(path)
        case _:
            return str(error)
