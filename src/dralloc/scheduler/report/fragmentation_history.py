"""The fragmentation of the last hours, for the web page: samples of what the metrics show now."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
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
        self._sample: Callable[[], list[dict[str, Any]]] = list

    async def run(self, read: Callable[[], Mapping[str, IdleDevices]], clock: Clock) -> None:
        """Takes samples until cancelled."""

        def sample() -> list[dict[str, Any]]:
            """None as long as there are no devices."""
            drivers = read()
            return [{"time": print_timestamp(clock.now()), "drivers": _values(drivers)}] if drivers else []

        self._sample = sample
        while True:
            self._samples += sample()
            await asyncio.sleep(SAMPLED_EVERY_S)

    def values(self) -> dict[str, Any]:
        """The samples, and one of now."""
        return {"samples": [*self._samples, *self._sample()]}


def _values(drivers: Mapping[str, IdleDevices]) -> dict[str, Any]:
    return {
        driver: {
            "idle": each.idle / WHOLE,
            "stranded": {cause.value: amount / WHOLE for cause, amount in each.stranded.items()},
        }
        for driver, each in drivers.items()
    }
