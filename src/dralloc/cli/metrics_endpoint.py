"""`/metrics` and `/healthz` of a component that serves nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from dralloc.cli.output import fail, say
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.metrics import exposition, gate_metric


@asynccontextmanager
async def metrics_endpoint(
    address: str | None, metrics: Callable[[], Awaitable[str]], gates: FeatureGates
) -> AsyncIterator[None]:
    """Serve the metrics and the gates at HOST:PORT inside the block; nowhere if no address is given."""
    if address is None:
        yield
        return
    host, port = _split(address)

    async def answer_metrics(_: web.Request) -> web.Response:
        return web.Response(text=await metrics() + exposition([gate_metric(gates)]))

    async def answer_health(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    application = web.Application()
    application.router.add_get("/metrics", answer_metrics)
    application.router.add_get("/healthz", answer_health)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            fail(f"cannot serve metrics on {address}: {error.strerror or error}")
        say(f"metrics on http://{host}:{runner.addresses[0][1]}/metrics")
        yield
    finally:
        await runner.cleanup()


def _split(address: str) -> tuple[str, int]:
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:
        fail(f"invalid address {address!r}: use HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)
