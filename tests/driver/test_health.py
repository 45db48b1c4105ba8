"""Health streams in both versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from dralloc.driver import (
    AllocatedClaim,
    Device,
    DeviceHealth,
    Driver,
    Health,
    Plugin,
    PreparedDevice,
    device,
    taint,
)
from dralloc.driver_kit.caller import RpcFailed, calling
from dralloc.kube.resource_v1 import ResourceSlice
from dralloc.rpc.plugin_services import HEALTH_SERVICES, HEALTH_V1, HEALTH_V1ALPHA1, PluginService
from dralloc.testing.driver_bench import NODE, bench_on, bench_server, bench_settings, driver_bench


class FragileDriver(Driver):
    """A card that may break: then it is reported unhealthy and tainted."""

    name = "gpu.example.com"

    def __init__(self) -> None:
        self.is_broken = False
        self.breaks = asyncio.Event()
        self.fails = False

    def devices(self) -> Iterable[Device]:
        return [device("gpu-0", taints=[taint("gpu.example.com/broken", effect="NoExecute")] if self.is_broken else [])]

    def prepare(self, claim: AllocatedClaim) -> Iterable[PreparedDevice]:
        return [found.prepared() for found in claim.devices]

    async def health(self) -> Iterable[DeviceHealth]:
        if self.fails:
            raise RuntimeError("the monitoring library crashed")
        state = Health.UNHEALTHY if self.is_broken else Health.HEALTHY
        return [
            DeviceHealth(device="gpu-0", health=state, message="ECC" * 1000 if self.is_broken else "", timeout_s=60)
        ]

    async def monitor(self, plugin: Plugin) -> None:
        await self.breaks.wait()
        self.is_broken = True
        plugin.check_health()
        await plugin.republish()


async def next_message(stream: AsyncIterator[Any]) -> tuple[str, str, int, int]:
    message = await asyncio.wait_for(anext(stream), 60)
    (found,) = message.devices
    return found.device.pool_name, found.device.device_name, found.health, len(found.message)


@pytest.mark.parametrize("service", HEALTH_SERVICES, ids=lambda service: service.advertised)
def test_health_is_sent_at_once_and_on_changes(directory: Path, service: PluginService) -> None:
    async def run() -> None:
        driver = FragileDriver()
        async with driver_bench(driver, directory) as bench, aclosing(bench.caller.watch_health(service)) as stream:
            assert await next_message(stream) == (NODE, "gpu-0", Health.HEALTHY.value, 0)
            driver.breaks.set()
            assert await next_message(stream) == (NODE, "gpu-0", Health.UNHEALTHY.value, 1024)
            assert 'dra_driver_devices{driver="gpu.example.com",health="unhealthy"} 1' in bench.plugin.metrics.text()
            await bench.plugin.published()
            while not any(
                found.taints for item in await bench.client.list(ResourceSlice) for found in item.spec.devices or ()
            ):
                await bench.plugin.published()

    asyncio.run(run())


def test_health_is_repeated_before_it_expires(directory: Path) -> None:
    async def run() -> None:
        settings = bench_settings(directory, health_interval_s=0.01)
        async with (
            bench_server() as transport,
            bench_on(transport, FragileDriver(), settings) as bench,
            aclosing(bench.caller.watch_health(HEALTH_V1)) as stream,
        ):
            for _ in range(3):
                assert await next_message(stream) == (NODE, "gpu-0", Health.HEALTHY.value, 0)

    asyncio.run(run())


def test_a_driver_whose_check_fails_keeps_its_stream(directory: Path) -> None:
    async def run() -> None:
        settings = bench_settings(directory, health_interval_s=0.01)
        driver = FragileDriver()
        driver.fails = True
        async with (
            bench_server() as transport,
            bench_on(transport, driver, settings) as bench,
            aclosing(bench.caller.watch_health(HEALTH_V1)) as stream,
        ):
            waiting = asyncio.ensure_future(next_message(stream))
            while 'problem="RuntimeError"' not in bench.plugin.metrics.text():
                await asyncio.wait([waiting], timeout=0.01)
            assert not waiting.done()
            driver.fails = False
            assert (await waiting)[2] == Health.HEALTHY.value

    asyncio.run(run())


def test_health_is_advertised_only_by_drivers_that_report_it(directory: Path) -> None:
    class Silent(FragileDriver):
        health = Driver.health  # type: ignore[assignment]

    async def run() -> None:
        async with bench_server() as transport:
            settings = bench_settings(directory)
            sockets = settings.sockets("gpu.example.com")
            async with bench_on(transport, FragileDriver(), settings), calling(sockets.registration) as caller:
                assert (await caller.get_info()).versions == (
                    "v1.DRAPlugin",
                    "v1beta1.DRAPlugin",
                    "v1.DRAResourceHealth",
                    "v1alpha1.DRAResourceHealth",
                )
            async with bench_on(transport, Silent(), bench_settings(directory)) as bench:
                with pytest.raises(RpcFailed) as caught:
                    await next_message(bench.caller.watch_health(HEALTH_V1ALPHA1))
                assert caught.value.code == "UNIMPLEMENTED"

    asyncio.run(run())
