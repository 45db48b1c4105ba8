"""Exceptions of a driver while it runs: they are reported, and neither its devices nor its monitor are lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from dralloc.driver import AllocatedClaim, Device, Driver, PreparedDevice, device
from dralloc.driver.plugin import Plugin
from dralloc.kube.resource_v1 import ResourceSlice
from dralloc.testing.driver_bench import DriverBench, bench_on, bench_server, bench_settings


def broken_library() -> Iterable[Device]:
    raise RuntimeError("the library is gone")


def broken_generator() -> Iterable[Device]:
    yield device("gpu-0")
    raise RuntimeError("the library is gone")


class Watchful(Driver):
    """Publishes again at every turn of its monitor."""

    name = "gpu.example.com"

    def __init__(self) -> None:
        self.found: Callable[[], Iterable[Device]] = lambda: [device("gpu-0")]
        self.look: asyncio.Queue[Exception | None] = asyncio.Queue()
        self.looked = asyncio.Event()
        self.starts = 0

    def devices(self) -> Iterable[Device]:
        return self.found()

    def prepare(self, claim: AllocatedClaim) -> Iterable[PreparedDevice]:
        return [found.prepared() for found in claim.devices]

    async def monitor(self, plugin: Plugin) -> None:
        self.starts += 1
        while True:
            failure = await self.look.get()
            if failure is not None:
                raise failure
            await plugin.republish()
            self.looked.set()

    async def turn(self) -> None:
        self.looked.clear()
        self.look.put_nowait(None)
        await asyncio.wait_for(self.looked.wait(), 30)


async def published(bench: DriverBench) -> list[str]:
    await bench.plugin.published()
    return [found.name for item in await bench.client.list(ResourceSlice) for found in item.spec.devices or ()]


@pytest.mark.parametrize("found", [broken_library, broken_generator, lambda: None, lambda: ["gpu-0"]])
def test_devices_that_cannot_be_listed_keep_those_that_are_published(
    directory: Path, caplog: pytest.LogCaptureFixture, found: Callable[[], Iterable[Device]]
) -> None:
    async def run() -> None:
        driver = Watchful()
        async with bench_server() as transport, bench_on(transport, driver, bench_settings(directory)) as bench:
            driver.found = found
            await driver.turn()
            assert await published(bench) == ["gpu-0"]
            driver.found = lambda: [device("gpu-0"), device("gpu-1")]
            await driver.turn()
            assert await published(bench) == ["gpu-0", "gpu-1"]
            assert driver.starts == 1

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    [record] = caplog.records
    assert "devices()" in record.getMessage()
    if found in (broken_library, broken_generator):
        assert "RuntimeError: the library is gone" in record.getMessage()
        assert "test_monitor.py, line" in record.getMessage()


def test_a_monitor_that_raises_is_started_again(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        driver = Watchful()
        settings = bench_settings(directory, monitor_restart_s=0.01)
        async with bench_server() as transport, bench_on(transport, driver, settings) as bench:
            driver.look.put_nowait(OSError("no such card"))
            await driver.turn()
            assert driver.starts == 2
            assert await published(bench) == ["gpu-0"]

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    [record] = caplog.records
    assert "monitor() failed" in record.getMessage()
    assert "no such card" in record.getMessage()
