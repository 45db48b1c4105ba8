"""The health of devices: what a driver says of them, and the streams that carry it to the node.

A node takes what it has not heard again within half a minute for unknown. So the driver is asked every few seconds, and every
answer is sent, whether it changed or not.
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

from dralloc.kubelet.plugin_limits import HEALTH_MESSAGE_LENGTH_MAX


class Health(Enum):
    UNKNOWN = 0
    HEALTHY = 1
    UNHEALTHY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """How a device is. An empty pool is the one that is named after the node."""

    device: str
    health: Health
    pool: str = ""
    message: str = ""
    # After how long without news the node takes it for unknown; 0 leaves that to the node.
    timeout_s: int = 0


class HealthBoard:
    """What was said last, and everybody who listens."""

    def __init__(self) -> None:
        self._latest: tuple[DeviceHealth, ...] = ()
        self._said_at: float = 0.0
        self._changed = asyncio.Event()
        self._closed = False

    def post(self, devices: Iterable[DeviceHealth], *, now_s: float) -> None:
        """Tell everybody; `now_s` is the time of day in seconds since 1970."""
        self._latest, self._said_at = tuple(devices), now_s
        self._wake()

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        self._wake()

    def counts(self) -> Mapping[str, int]:
        return Counter(device.health.name.lower() for device in self._latest)

    async def messages(self, kinds: ModuleType) -> AsyncIterator[Any]:
        """A NodeWatchResourcesResponse of this version for what was posted last and for all that will be."""
        while not self._closed:
            changed = self._changed
            if self._said_at:
                yield _message(self._latest, self._said_at, kinds)
            await changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


async def keep_asking(
    ask: Callable[[], Awaitable[Iterable[DeviceHealth] | None]],
    board: HealthBoard,
    *,
    interval_s: float,
    nudge: asyncio.Event,
    clock_s: Callable[[], float],
) -> None:
    """Ask the driver again and again, and at once when it calls for it; what it does not know goes stale by itself."""
    while True:
        nudge.clear()
        devices = await ask()
        if devices is not None:
            board.post(devices, now_s=clock_s())
        with suppress(TimeoutError):
            async with asyncio.timeout(interval_s):
                await nudge.wait()


def _message(devices: Iterable[DeviceHealth], said_at: float, kinds: ModuleType) -> Any:
    return kinds.NodeWatchResourcesResponse(
        devices=[
            kinds.DeviceHealth(
                device=kinds.DeviceIdentifier(pool_name=device.pool, device_name=device.device),
                health=device.health.value,
                last_updated_time=int(said_at),
                health_check_timeout_seconds=device.timeout_s,
                message=device.message[:HEALTH_MESSAGE_LENGTH_MAX],
            )
            for device in devices
        ]
    )
