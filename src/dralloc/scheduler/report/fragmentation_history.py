"""The fragmentation of the last hours, for the web page: samples of what the metrics show now."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from dralloc.api.timestamps import print_timestamp
from dralloc.primitives.clock import Clock
from dralloc.scheduler.report.stranded_devices import WHOLE, IdleDevices

SAMPLED_EVERY_S: Final = 30.0
# Three hours.
SAMPLES_MAX: Final = 360


class FragmentationHistory:
    """Samples by driver: idle devices, and the stranded part of them by cause."""

    def __init__(self) -> None:
        self._samples: deque[dict[str, Any]] = deque(maxlen=SAMPLES_MAX)
        self._read: Callable[[], Awaitable[list[dict[str, Any]]]] | None = None

    async def run(self, read: Callable[[], Awaitable[Mapping[str, IdleDevices]]], clock: Clock) -> None:
        """Takes samples until cancelled."""

        async def sample() -> list[dict[str, Any]]:
            """None as long as there are no devices."""
            drivers = await read()
            return [{"time": print_timestamp(clock.now()), "drivers": _values(drivers)}] if drivers else []

        self._read = sample
        while True:
            self._samples += await sample()
            await asyncio.sleep(SAMPLED_EVERY_S)

    async def values(self) -> dict[str, Any]:
        """The samples, and one of now."""
        now = await self._read() if self._read is not None else []
        return {"samples": [*self._samples, *now]}


def _values(drivers: Mapping[str, IdleDevices]) -> dict[str, Any]:
    return {
        driver: {
            "idle": each.idle / WHOLE,
            "stranded": {cause.value: amount / WHOLE for cause, amount in each.stranded.items()},
        }
        for driver, each in drivers.items()
    }
