"""Samples of the fragmentation over time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from dralloc.scheduler.report.fragmentation import SAMPLED_EVERY_S, SAMPLES_MAX, FragmentationHistory
from dralloc.scheduler.report.stranded_devices import WHOLE, IdleDevices, StrandedCause
from dralloc.testing.virtual_time import run_virtual
from tests.support.api_server import loop_clock


def test_samples_are_taken_as_time_passes_and_old_ones_are_dropped() -> None:
    async def run() -> None:
        now: Mapping[str, IdleDevices] = {}
        history = FragmentationHistory()

        async def read() -> Mapping[str, IdleDevices]:
            return now

        assert await history.values() == {"samples": []}
        sampling = asyncio.create_task(history.run(read, loop_clock()))
        await asyncio.sleep(SAMPLED_EVERY_S)
        assert await history.values() == {"samples": []}, "there are no devices yet"
        now = {"gpu.example.com": IdleDevices(3 * WHOLE, {StrandedCause.TAINT: WHOLE // 2})}
        [only] = (await history.values())["samples"]
        assert only["drivers"] == {"gpu.example.com": {"idle": 3.0, "stranded": {"taint": 0.5}}}
        await asyncio.sleep(SAMPLED_EVERY_S * 2 * SAMPLES_MAX)
        assert len((await history.values())["samples"]) == SAMPLES_MAX + 1, "with that of now"
        sampling.cancel()
        with suppress(asyncio.CancelledError):
            await sampling

    run_virtual(run())
