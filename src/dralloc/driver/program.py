"""Runs a driver as a program: settings from the environment, logs to standard error, shutdown on SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from dralloc.client.http_transport import HttpTransport
from dralloc.client.informer import HistoryChanged
from dralloc.client.kubeconfig import BadKubeconfig, find_connection
from dralloc.driver.driver import Driver
from dralloc.driver.instances import AlreadyRunning
from dralloc.driver.plugin import Plugin
from dralloc.driver.settings import BadDriverSettings, Settings
from dralloc.driver.slices import InvalidPools
from dralloc.driver.vendor_errors import InventoryFailed

_logger = logging.getLogger(__name__)


def run(driver: Driver, settings: Settings | None = None) -> None:
    """Run the driver until SIGTERM or SIGINT. If it cannot run, print why and exit with code 2; also if the API server was restored from a
    backup, so that the supervisor starts the driver again.
    """
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    try:
        asyncio.run(_run_until_signal(driver, settings or Settings.from_environment()))
    except (
        BadDriverSettings,
        BadKubeconfig,
        AlreadyRunning,
        HistoryChanged,
        InvalidPools,
        InventoryFailed,
        OSError,
    ) as error:
        sys.stderr.write(f"{driver.name}: {error}\n")
        sys.exit(2)


async def _run_until_signal(driver: Driver, settings: Settings) -> None:
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    transport = HttpTransport(find_connection(settings.kubeconfig))
    try:
        plugin = Plugin(driver, settings, transport)
        async with _serving_metrics(plugin, settings.metrics_address), plugin.running():
            _logger.info("driver %s is running on node %s", driver.name, settings.node_name)
            await _wait_for_end(ending, plugin)
            _logger.info("driver %s is shutting down", driver.name)
    finally:
        await transport.close()


async def _wait_for_end(ending: asyncio.Event, plugin: Plugin) -> None:
    """Wait for a signal, or for an internal error: a driver without its background work must not go on."""
    assert plugin.work is not None, "the plugin is running"
    told = asyncio.create_task(ending.wait())
    await asyncio.wait([told, plugin.work], return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if plugin.work.done():
        plugin.work.result()


@asynccontextmanager
async def _serving_metrics(plugin: Plugin, address: str) -> AsyncIterator[None]:
    if not address:
        yield
        return
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        raise BadDriverSettings(f"DRA_METRICS_ADDRESS must be HOST:PORT, not {address!r}")

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(text=plugin.metrics.text(), content_type="text/plain", charset="utf-8")

    application = web.Application()
    application.router.add_get("/metrics", metrics)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, host or None, int(port)).start()
        yield
    finally:
        await runner.cleanup()
