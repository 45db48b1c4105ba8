"""The health of devices: polls the driver, and streams its reports to the kubelet.

For a kubelet, a report is unknown after half a minute. So the driver is polled every few seconds, and every answer is sent, changed
or not.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import Any

from dralloc.driver.vendor_errors import made_with_known_arguments
from dralloc.node.kubelet.plugin_sockets import HEALTH_MESSAGE_LENGTH_MAX


class Health(Enum):
    """The health of a device as a kubelet shows it in the status of pods."""

    UNKNOWN = 0
    HEALTHY = 1
    UNHEALTHY = 2


@made_with_known_arguments
@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """The health of a device. An empty `pool` is the one that is named after the node."""

    device: str
    health: Health
    pool: str = ""
    # Shown with the health in the status of pods, such as a temperature.
    message: str = ""
    # How long the kubelet may use the report; 0 for its default.
    timeout_s: int = 0


class HealthBoard:
    """The latest reports, and the streams that send them."""

    def __init__(self) -> None:
        self._latest: tuple[DeviceHealth, ...] = ()
        self._posted_at: float = 0.0
        self._changed = asyncio.Event()
        self._closed = False

    def post(self, devices: Iterable[DeviceHealth], *, now_s: float) -> None:
        """Send new reports to all streams; `now_s` is in seconds since 1970."""
        self._latest, self._posted_at = tuple(devices), now_s
        self._wake()

    def close(self) -> None:
        self._closed = True
        self._wake()

    def counts(self) -> Mapping[str, int]:
        return Counter(device.health.name.lower() for device in self._latest)

    async def messages(self, kinds: ModuleType) -> AsyncIterator[Any]:
        """NodeWatchResourcesResponse messages of this version: the latest reports, then all new ones."""
        while not self._closed:
            changed = self._changed
            if self._posted_at:
                yield _message(self._latest, self._posted_at, kinds)
            await changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


async def poll_health(
    ask: Callable[[], Awaitable[Iterable[DeviceHealth] | None]],
    board: HealthBoard,
    *,
    interval_s: float,
    nudge: asyncio.Event,
    clock_s: Callable[[], float],
) -> None:
    """Poll the driver periodically, and at once after a nudge; without an answer, old reports expire."""
    while True:
        nudge.clear()
        devices = await ask()
        if devices is not None:
            board.post(devices, now_s=clock_s())
        with suppress(TimeoutError):
            async with asyncio.timeout(interval_s):
                await nudge.wait()


def _message(devices: Iterable[DeviceHealth], posted_at: float, kinds: ModuleType) -> Any:
    return kinds.NodeWatchResourcesResponse(
        devices=[
            kinds.DeviceHealth(
                device=kinds.DeviceIdentifier(pool_name=device.pool, device_name=device.device),
                health=device.health.value,
                last_updated_time=int(posted_at),
                health_check_timeout_seconds=device.timeout_s,
                message=device.message[:HEALTH_MESSAGE_LENGTH_MAX],
            )
            for device in devices
        ]
    )
