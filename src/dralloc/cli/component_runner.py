"""Components that work until they are told to end: by Ctrl-C, by the system, or by what they cannot do without."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Protocol
from uuid import uuid4

import uvloop
from aiohttp import web

from dralloc.cli.output import fail, in_words, say
from dralloc.client.informer import HistoryChanged
from dralloc.client.transport import TransportError
from dralloc.primitives.errors import ApiError
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.metrics import exposition, gate_metric


class Component(Protocol):
    """What can be in charge: of everything, or for as long as it is elected."""

    async def metrics_text(self) -> str: ...

    async def run(self) -> None: ...

    async def run_elected(self, identity: str) -> None: ...

    async def close(self) -> None: ...


def work(
    component: Component,
    *,
    gates: FeatureGates,
    leader_elect: bool,
    metrics_address: str | None,
    verbosity: int = 0,
) -> None:
    """Let the component work, with its metrics to be seen, until it is told to end."""

    async def run() -> None:
        async with metrics_endpoint(metrics_address, component.metrics_text, gates):
            try:
                if leader_elect:
                    await component.run_elected(own_identity())
                else:
                    await component.run()
            finally:
                await component.close()

    run_until_signal(run, verbosity=verbosity)


def own_identity() -> str:
    """A name for this process that no other has."""
    return f"{socket.gethostname()}_{uuid4()}"


def run_until_signal(
    run: Callable[[], Coroutine[Any, Any, None]], *expected: type[Exception], verbosity: int = 0
) -> None:
    """Work until a signal, until the server refuses what cannot be done without, or until it was restored from a backup.

    Errors of a server, of the system, and those that are `expected` besides, are said in a line.
    """

    async def until_signal() -> None:
        working = asyncio.ensure_future(run())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, working.cancel)
        try:
            await working
        except asyncio.CancelledError:
            say("ending")

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("dralloc").setLevel(_level(verbosity))
    known: tuple[type[Exception], ...] = (ApiError, HistoryChanged, TransportError, OSError, *expected)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(until_signal())
    except known as error:
        fail(in_words(error))
    except BaseExceptionGroup as group:
        matched, rest = group.split(known)
        if matched is None or rest is not None:
            raise
        fail("; ".join(sorted({in_words(error) for error in _leaves(matched)})))


def _level(verbosity: int) -> int:
    """Kubernetes' verbosity as a level of our own loggers; those of libraries stay at warnings."""
    if verbosity >= 7:
        return logging.DEBUG
    return logging.INFO if verbosity >= 2 else logging.WARNING


def _leaves(group: BaseExceptionGroup[Any]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


# --- Metrics endpoint -----------------------------------------------------------------------------------------------
# `/metrics` and `/healthz` of a component that serves nothing else.


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
