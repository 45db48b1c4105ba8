"""Device health as drivers report it.

A driver streams the health of its devices. A report that is not refreshed within its timeout becomes unknown, and so do all reports of
a driver when its stream ends. The table is saved in a file, so that devices do not become unknown during a restart of
the agent; a file that cannot be read is ignored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import msgspec

from dralloc.atomic_files import write_atomically
from dralloc.node.drivers import Deregistered, DriverInstance, calling
from dralloc.node.kubelet.plugin_sockets import DEVICE_NAME_LENGTH_MAX, HEALTH_MESSAGE_LENGTH_MAX, POOL_NAME_LENGTH_MAX
from dralloc.node.timings import Timings
from dralloc.primitives.decoders import UNREADABLE
from dralloc.rpc.plugin_services import NODE_WATCH_RESOURCES, PluginService

_logger = logging.getLogger(__name__)

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"
UNKNOWN: Final = "Unknown"
_NAMES: Final = {0: UNKNOWN, 1: HEALTHY, 2: UNHEALTHY}

DEVICES_MAX: Final = 16384
MESSAGE_PAUSE_S: Final = 0.02
# Between two writes of the file, which is large if a driver has many devices with long messages.
WRITE_PAUSE_S: Final = 1.0


class HealthReport(msgspec.Struct, frozen=True):
    """The last report about a device; `fresh_until` is a time of the event loop."""

    health: str
    message: str = ""
    timeout_s: float = 0.0
    fresh_until: float = 0.0

    @property
    def shown(self) -> tuple[str, str]:
        return self.health, self.message


NOT_KNOWN: Final = HealthReport(UNKNOWN)
DeviceKey = tuple[str, str]


class HealthTable:
    """The health of devices by driver, pool and device. Methods that change it return whether a visible value changed."""

    def __init__(self) -> None:
        self._drivers: dict[str, dict[DeviceKey, HealthReport]] = {}

    def get(self, driver: str, pool: str, device: str, now: float) -> HealthReport:
        known = self._drivers.get(driver, {}).get((pool, device), NOT_KNOWN)
        return known if now < known.fresh_until else NOT_KNOWN

    def drivers(self) -> tuple[str, ...]:
        return tuple(self._drivers)

    def put(self, driver: str, reports: Mapping[DeviceKey, HealthReport], now: float) -> bool:
        """Store reports of a driver; devices beyond DEVICES_MAX are ignored."""
        known = self._drivers.setdefault(driver, {})
        changed = False
        for key, report in reports.items():
            if key not in known and len(known) >= DEVICES_MAX:
                continue
            changed |= self.get(driver, *key, now).shown != report.shown
            known[key] = report
        return changed

    def clear(self, driver: str) -> bool:
        return bool(self._drivers.pop(driver, None))

    def expire(self, now: float) -> set[str]:
        """Forget reports that were not refreshed in time; returns the drivers concerned."""
        concerned: set[str] = set()
        for driver, known in self._drivers.items():
            stale = [key for key, health in known.items() if health.fresh_until <= now]
            for key in stale:
                del known[key]
            if stale:
                concerned.add(driver)
        return concerned

    def next_expiry(self) -> float | None:
        return min((health.fresh_until for known in self._drivers.values() for health in known.values()), default=None)

    def encode(self, now: float) -> bytes:
        """The file content, with the remaining time of each report: event loops of two processes have different clocks."""
        rows = [
            (driver, *key, msgspec.structs.replace(health, fresh_until=health.fresh_until - now))
            for driver, known in self._drivers.items()
            for key, health in known.items()
        ]
        return msgspec.json.encode(rows)

    def decode(self, content: bytes, now: float) -> None:
        rows = msgspec.json.decode(content, type=list[tuple[str, str, str, HealthReport]])
        for driver, pool, device, health in rows:
            left_s = min(health.fresh_until, health.timeout_s)
            fresh = msgspec.structs.replace(health, fresh_until=now + left_s)
            self._drivers.setdefault(driver, {})[(pool, device)] = fresh


def read_reports(response: Any, now: float, default_timeout_s: float) -> dict[DeviceKey, HealthReport]:
    """The reports in one message of a driver, by pool and device; no device can have a longer name than the limits."""
    reports: dict[DeviceKey, HealthReport] = {}
    for entry in response.devices:
        pool, device = entry.device.pool_name, entry.device.device_name
        if len(pool) > POOL_NAME_LENGTH_MAX or len(device) > DEVICE_NAME_LENGTH_MAX:
            continue
        timeout_s = float(entry.health_check_timeout_seconds)
        timeout_s = timeout_s if timeout_s > 0 else default_timeout_s
        reports[(pool, device)] = HealthReport(
            health=_NAMES.get(entry.health, UNKNOWN),
            message=entry.message[:HEALTH_MESSAGE_LENGTH_MAX],
            timeout_s=timeout_s,
            fresh_until=now + timeout_s,
        )
    return reports


@dataclass(slots=True)
class HealthWatch:
    """Reads one health stream of each driver; `on_change` is called when a visible value changes."""

    timings: Timings
    pick: Callable[[str], DriverInstance | None]
    on_change: Callable[[str], None]
    path: Path | None = None
    table: HealthTable = field(default_factory=HealthTable)
    _streams: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def get(self, driver: str, pool: str, device: str) -> HealthReport:
        return self.table.get(driver, pool, device, _now())

    def load(self) -> None:
        """Load the reports that an earlier process saved."""
        if self.path is None:
            return
        try:
            self.table.decode(self.path.read_bytes(), _now())
        except FileNotFoundError:
            pass
        except (*UNREADABLE, OSError) as error:
            _logger.warning("cannot use %s, device health starts as unknown: %s", self.path, error)

    def follow(self, driver: str) -> None:
        """Read the stream of the driver until it has no health service any more."""
        task = self._streams.get(driver)
        if task is None or task.done():
            self._streams[driver] = asyncio.create_task(self._follow(driver))

    async def run(self) -> None:
        """Expire reports and save the table, until cancelled."""
        try:
            while True:
                next_expiry = self.table.next_expiry()
                wait_s = None if next_expiry is None else max(next_expiry - _now(), 0.01)
                try:
                    # Not wait_for, which may lose a cancellation that coincides with its result.
                    async with asyncio.timeout(wait_s):
                        await self._changed.wait()
                except TimeoutError:
                    for driver in self.table.expire(_now()):
                        self.on_change(driver)
                self._changed.clear()
                await self._store()
                await asyncio.sleep(WRITE_PAUSE_S)
        finally:
            for task in self._streams.values():
                task.cancel()

    async def _follow(self, driver: str) -> None:
        while (instance := self.pick(driver)) is not None and instance.health is not None:
            try:
                with calling():
                    await self._read_stream(instance, instance.health)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    _logger.info("driver %s advertises a health service but does not implement it", driver)
                    return
                _logger.info("health stream of driver %s: %s: %s", driver, error.code().name, error.details())
            except Deregistered:
                # There may be another instance.
                pass
            finally:
                self._lose(driver)
            await asyncio.sleep(self.timings.health_reopen_s)

    async def _read_stream(self, instance: DriverInstance, service: PluginService) -> None:
        watch = service.callable_on(instance.channel, NODE_WATCH_RESOURCES)
        async for response in watch(service.messages.NodeWatchResourcesRequest()):
            if response is None:
                _logger.warning("driver %s sent a health message that cannot be decoded", instance.driver)
                continue
            now = _now()
            reports = read_reports(response, now, self.timings.health_fresh_s)
            if self.table.put(instance.driver, reports, now):
                self.on_change(instance.driver)
            self._changed.set()
            # A driver that sends without a pause waits in its own socket.
            await asyncio.sleep(MESSAGE_PAUSE_S)

    def _lose(self, driver: str) -> None:
        if self.table.clear(driver):
            self.on_change(driver)
            self._changed.set()

    async def _store(self) -> None:
        if self.path is None:
            return
        try:
            await asyncio.to_thread(write_atomically, self.path, self.table.encode(_now()))
        except OSError as error:
            _logger.warning("cannot write %s: %s", self.path, error)


def _now() -> float:
    return asyncio.get_running_loop().time()
