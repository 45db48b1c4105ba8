"""`dralloc up`: a whole cluster on this machine, in one process: API server, scheduler, controllers, fake nodes, web page."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from dralloc.cli.output import FEATURE_GATES_HELP, fail, parse_gates, say

if TYPE_CHECKING:
    from dralloc.apiserver.running import RunningServer, ServerSettings
    from dralloc.assembly.cluster import ClusterSettings
    from dralloc.node.fleet import FleetSettings

PORT: Final = 8642
NODES: Final = "gpu=4,nic=4,mig=4"
NODES_MAX: Final = 10_000


def up(
    data_dir: Annotated[
        Path | None, typer.Option(help="Where everything is kept; ~/.local/share/dralloc unless told.")
    ] = None,
    port: Annotated[int, typer.Option(help="The port of loopback; 0 takes a free one.", min=0, max=65535)] = PORT,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Where to write the kubeconfig; into the data directory unless told.")
    ] = None,
    nodes: Annotated[
        str, typer.Option(help="Fake nodes, PROFILE=COUNT with commas: profiles are cpu, gpu, mig, nic, tpu, or files.")
    ] = NODES,
    no_nodes: Annotated[bool, typer.Option("--no-nodes", help="No fake nodes: bring your own.")] = False,
    store: Annotated[
        str | None, typer.Option(help="memory://, sqlite:///PATH or etcd://HOST:PORT; a file in the data directory.")
    ] = None,
    ephemeral: Annotated[bool, typer.Option("--ephemeral", help="Keep nothing: gone when it ends.")] = False,
    feature_gates: Annotated[str, typer.Option(help=FEATURE_GATES_HELP)] = "",
) -> None:
    """Start a whole cluster on this machine: API server, scheduler, controllers, fake nodes with devices.

    Everything is in this one process and on loopback only; whoever can reach the port may do everything, without a password. What is
    created is there again after the next start. Ctrl-C ends it.

    Examples:

        dralloc up

        dralloc up --ephemeral --port 0

        dralloc up --nodes gpu=100,nic=20 --data-dir ./cluster
    """
    started = time.monotonic()
    _end_at_once_on_signals()
    if ephemeral and (data_dir or store):
        fail("--ephemeral keeps nothing, so it takes neither --data-dir nor --store")
    gates = parse_gates(feature_gates)
    fleets = () if no_nodes else tuple(_fleets(nodes))
    with _directory(data_dir, ephemeral) as directory:
        from dralloc.apiserver.running import ServerSettings
        from dralloc.assembly.cluster import ClusterSettings
        from dralloc.web.page import device_page

        server = ServerSettings(
            data_dir=directory,
            port=port,
            store="memory://" if ephemeral else store,
            kubeconfig=kubeconfig.expanduser().absolute() if kubeconfig else None,
            insecure_http=True,
            gates=gates,
            pages=device_page(),
        )
        _run(server, ClusterSettings(gates=gates, fleets=fleets), started)


@contextmanager
def _directory(data_dir: Path | None, ephemeral: bool) -> Iterator[Path]:
    """Where the cluster's files are; those of an ephemeral one go with it."""
    if not ephemeral:
        yield data_dir.expanduser().absolute() if data_dir else default_directory()
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="dralloc-") as directory:
        yield Path(directory)


def default_directory() -> Path:
    """The user's, where programs keep data (XDG base directories)."""
    configured = Path(os.environ.get("XDG_DATA_HOME", ""))
    # The specification has relative paths ignored.
    home = configured if configured.is_absolute() else Path.home() / ".local" / "share"
    return home / "dralloc"


def _fleets(text: str) -> Iterator[FleetSettings]:
    from dralloc.assembly.cluster import fleet
    from dralloc.node.profiles import BadProfile

    prefixes: set[str] = set()
    for part in text.split(","):
        profile, _, count = part.strip().rpartition("=")
        if not profile or not count.isdecimal() or not 0 < int(count) <= NODES_MAX:
            fail(f"--nodes: {part.strip()!r} is not PROFILE=COUNT with 1 to {NODES_MAX:,} nodes, such as {NODES}")
        try:
            settings = fleet(profile, int(count))
        except BadProfile as error:
            fail(f"--nodes: {error}")
        if settings.prefix in prefixes:
            fail(f"--nodes: {settings.prefix} is there twice; give one number")
        prefixes.add(settings.prefix)
        yield settings


def _end_at_once_on_signals() -> None:
    """As long as nothing runs, nothing needs an orderly end."""
    import signal

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))


def _run(server: ServerSettings, cluster: ClusterSettings, started: float) -> None:
    import asyncio
    import errno
    import logging

    import uvloop

    from dralloc.assembly.components import ComponentDied
    from dralloc.store.errors import StoreError, StoreInUse

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # What clients send that is no HTTP is their affair, and could fill our log.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_until_told(server, cluster, started))
    except StoreInUse:
        _fail_in_use(server)
    except (StoreError, ComponentDied) as error:
        fail(str(error))
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            fail(f"port {server.port} is taken by another program; choose another one with --port, 0 takes a free one")
        fail(f"cannot start from {server.data_dir}: {error}")


def _fail_in_use(server: ServerSettings) -> NoReturn:
    fail(
        f"{server.data_dir} is in use: a cluster runs there already, and {server.kubeconfig_path} leads to it; "
        "end that one first, or start one beside it with --ephemeral --port 0 or with --data-dir DIR --port 0"
    )


async def _until_told(server: ServerSettings, settings: ClusterSettings, started: float) -> None:
    import asyncio
    import signal

    working = asyncio.ensure_future(_work(server, settings, started))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, working.cancel)
    with suppress(asyncio.CancelledError):
        await working


async def _work(server: ServerSettings, settings: ClusterSettings, started: float) -> None:
    import asyncio
    import gc

    from dralloc.apiserver.running import run_server
    from dralloc.assembly.cluster import components_on

    async with (
        run_server(server) as running,
        components_on(running.application, running.token, settings) as cluster,
    ):
        await cluster.components.guard(cluster.nodes_ready.wait())
        # What is there now stays: looking through it for garbage again and again would only cost pauses.
        gc.freeze()
        _tell(server, running, settings, time.monotonic() - started)
        try:
            await cluster.components.died()
        except asyncio.CancelledError:
            say("\nending: watches are closed, requests under way are finished")
            raise


def _tell(server: ServerSettings, running: RunningServer, settings: ClusterSettings, took_s: float) -> None:
    """Where everything is, and what to do with it."""
    kept = "gone when this ends" if server.store == "memory://" else f"kept in {server.store or server.data_dir}"
    nodes = ", ".join(f"{each.count} {each.prefix}" for each in settings.fleets) or "none"
    say(f"""\
dralloc is up, after {took_s:.1f} s

  web page    {running.url}/ui/
  kubeconfig  {server.kubeconfig_path}
  fake nodes  {nodes}
  objects     {kept}

Try, in another terminal:

  export KUBECONFIG={server.kubeconfig_path}
  kubectl get nodes,deviceclasses,resourceslices
  kubectl apply -f examples/demo
  dralloc top devices
  dralloc explain pod NAMESPACE/NAME

Ctrl-C ends it.""")
    sys.stdout.flush()
