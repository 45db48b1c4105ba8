"""`dralloc up`: a whole cluster on this machine: API server, scheduler, controllers, simulated nodes, web page."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import typer

from dralloc.cli.options import AcceptLostWrites, Gates, ServedKubeconfig, StoreUrl, Strategy
from dralloc.cli.output import fail, parse_gates, say
from dralloc.cli.program_name import program_name

if TYPE_CHECKING:
    from dralloc.node.simulated.fleet import FleetSettings
    from dralloc.server.server_process import RunningServer, ServerSettings
    from dralloc.testing.cluster import ClusterSettings
    from dralloc.testing.components_apart import ComponentsApart

PORT: Final = 8642
NODES: Final = "gpu=4,nic=4,mig=4"
NODES_MAX: Final = 10_000
# Those that are quick to make are there when we say that we are up.
AWAITED_MAX: Final = 250
# In the data directory: the nodes that were asked for last time.
NODES_FILE: Final = "nodes"
# In the data directory: the token with which the printed link opens the web page.
PAGE_TOKEN_FILE: Final = "page.token"
# There where the source is, and not where only the package is installed.
EXAMPLE: Final = Path(__file__).parents[3] / "examples" / "04-guaranteed-bandwidth"


def up(
    data_dir: Annotated[
        Path | None, typer.Option(help="The directory for all data; default: ~/.local/share/dralloc.")
    ] = None,
    bind: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The address to listen on. Any but loopback needs --tls.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", help="The port to listen on; 0 for a free port.", min=0, max=65535)
    ] = PORT,
    tls: Annotated[
        bool, typer.Option("--tls", help="Serve https, and only users with a token; the kubeconfig has one.")
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(help='With --tls: a file with more users; each line has token,user,uid and "groups".'),
    ] = None,
    kubeconfig: ServedKubeconfig = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            help=f"Simulated nodes: PROFILE=COUNT, separated by commas. Profiles: cpu, gpu, mig, nic, tpu, or files. Default: those of the last start, or {NODES}."
        ),
    ] = None,
    no_nodes: Annotated[bool, typer.Option("--no-nodes", help="No simulated nodes.")] = False,
    store: StoreUrl = None,
    accept_lost_writes: AcceptLostWrites = False,
    ephemeral: Annotated[bool, typer.Option("--ephemeral", help="Keep no data after the end.")] = False,
    one_process: Annotated[
        bool,
        typer.Option(
            "--one-process",
            help="Run scheduler and controllers in the server's process, too. Default: in processes of their own where there are several cores.",
        ),
    ] = False,
    strategy: Strategy = None,
    feature_gates: Gates = "",
) -> None:
    """Start a cluster on this machine: API server, scheduler, controllers, simulated nodes with devices, a web page.

    It listens on loopback. There, anyone who can reach the port is the administrator, without a password; with --tls,
    the administrator is who has the token of the kubeconfig. Objects are kept for the next start. Ctrl-C ends it.

    # A cluster to try out; it prints what to try in another terminal.
    dralloc up

    # One that keeps no data, on a free port.
    dralloc up --ephemeral --port 0

    # Other nodes, and another data directory.
    dralloc up --nodes gpu=100,nic=20 --data-dir ./cluster

    # One for other machines: https, with a token for every user.
    dralloc up --bind 0.0.0.0 --tls

    # Several replicas on one etcd: all serve, one is the leader.
    dralloc up --store etcd://127.0.0.1:2379
    """
    started = time.monotonic()
    _end_at_once_on_signals()
    if ephemeral and (data_dir or store):
        fail("--ephemeral cannot be combined with --data-dir or --store")
    if no_nodes and nodes is not None:
        fail("--nodes and --no-nodes exclude each other")
    _check_exposure(bind, tls=tls, token_file=token_file)
    gates = parse_gates(feature_gates, on="DRAPreemption=true")
    with _directory(data_dir, ephemeral) as directory:
        from dralloc.cli.strategy_names import strategy_named
        from dralloc.scheduler.decide.strategy_choice import SPREADING, StrategySettings
        from dralloc.scheduler.report.fragmentation import FragmentationHistory
        from dralloc.server.server_process import ServerSettings
        from dralloc.testing.cluster import ClusterSettings
        from dralloc.testing.component_rights import ComponentAccount
        from dralloc.testing.components_apart import fork_components, has_several_cores
        from dralloc.web.explain_endpoint import ExplainEndpoint
        from dralloc.web.page import device_page

        strategies = StrategySettings(default=strategy_named(strategy)) if strategy is not None else SPREADING
        history = FragmentationHistory()
        chosen = _chosen_nodes(directory, "" if no_nodes else nodes)
        cluster = ClusterSettings(
            gates=gates,
            strategies=strategies,
            fleets=tuple(_fleets(chosen)),
            identity=_identity(store),
            fragmentation=history,
        )
        _log_warnings()
        apart = fork_components(cluster) if has_several_cores() and not one_process else None
        server = ServerSettings(
            data_dir=directory,
            bind=bind,
            port=port,
            store="memory://" if ephemeral else store,
            accept_lost_writes=accept_lost_writes,
            kubeconfig=kubeconfig.expanduser().absolute() if kubeconfig else None,
            token_file=token_file.expanduser().absolute() if token_file else None,
            insecure_http=not tls,
            gates=gates,
            pages=device_page(),
            extensions=(ExplainEndpoint(gates, history),),
            kept_tokens={PAGE_TOKEN_FILE: ComponentAccount.WEB_PAGE.user},
            tokens=apart.users() if apart is not None else {},
        )
        _run(Start(server, cluster, apart, chosen, started))


def _check_exposure(bind: str, *, tls: bool, token_file: Path | None) -> None:
    """Other machines are served only if that is asked for: on loopback, everyone is the administrator."""
    from dralloc.server.http.site_guard import is_loopback

    if not tls and not is_loopback(bind):
        fail(
            f"--bind {bind} lets other machines in, and without a password everyone would be the administrator: add --tls, which "
            "serves https and requires a token (the administrator's is in the kubeconfig, --token-file adds users), or stay on loopback"
        )
    if token_file is not None and not tls:
        fail("--token-file needs --tls: without it, everyone is the administrator")


@dataclass(frozen=True, slots=True)
class Start:
    """What is to be started, with the nodes as they were asked for, and when that was."""

    server: ServerSettings
    cluster: ClusterSettings
    apart: ComponentsApart | None
    nodes: str
    began: float

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.began


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


def _chosen_nodes(directory: Path, asked: str | None) -> str:
    """Those that are asked for; otherwise those of last time, which may have been none."""
    chosen = asked if asked is not None else _nodes_of_last_time(directory)
    return chosen if chosen is not None else NODES


def _nodes_of_last_time(directory: Path) -> str | None:
    try:
        return (directory / NODES_FILE).read_text()
    except (OSError, UnicodeDecodeError):
        return None


def _fleets(text: str) -> Iterator[FleetSettings]:
    from dralloc.node.simulated.profiles import BadProfile
    from dralloc.testing.cluster import fleet

    for profile, count in _counts(text).items():
        try:
            yield fleet(profile, count)
        except BadProfile as error:
            fail(f"--nodes: {error}")


def _counts(text: str) -> dict[str, int]:
    """How many nodes of which profile `PROFILE=COUNT,…` asks for."""
    counts: dict[str, int] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        profile, _, count = part.rpartition("=")
        if not profile or not count.isdecimal() or not 0 < int(count) <= NODES_MAX:
            fail(f"--nodes: {part!r} is not PROFILE=COUNT with 1 to {NODES_MAX:,} nodes, such as {NODES}")
        if Path(profile).stem in {Path(other).stem for other in counts}:
            fail(f"--nodes: {Path(profile).stem} is given twice; give one count")
        counts[profile] = int(count)
    return counts


def _identity(store: str | None) -> str | None:
    """Who we are, where others may be at work on the same store."""
    if store is None or not store.startswith("etcd:"):
        return None
    import socket
    from uuid import uuid4

    return f"{socket.gethostname()}_{uuid4()}"


def _end_at_once_on_signals() -> None:
    """As long as nothing runs, nothing needs an orderly end."""
    import signal

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))


def _log_warnings() -> None:
    import logging

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # When clients disconnect is their affair, and could fill our log.
    logging.getLogger("asyncio").setLevel(logging.ERROR)


def _run(start: Start) -> None:
    import asyncio
    import errno

    import uvloop

    from dralloc.server.http.authentication import BadTokenFile
    from dralloc.server.identity.kubeconfig import UnusableKubeconfig
    from dralloc.server.server_process import BadServerSettings
    from dralloc.server.store.errors import StoreError, StoreInUse
    from dralloc.testing.components import ComponentDied

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_until_told(start))
    except StoreInUse:
        _fail_in_use(start.server)
    except (BadServerSettings, BadTokenFile, StoreError, ComponentDied) as error:
        fail(str(error))
    except UnusableKubeconfig as error:
        fail(f"{error}; choose another path with --kubeconfig")
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            fail(
                f"port {start.server.port} is in use by another program; choose another one with --port, or 0 for a free port"
            )
        reason = f"{error.strerror} ({error.filename})" if error.filename else error
        fail(f"cannot start from {start.server.data_dir}: {reason}; choose another path with --data-dir")


def _fail_in_use(server: ServerSettings) -> NoReturn:
    fail(
        f"{server.data_dir} is in use by a running cluster, whose kubeconfig is {server.kubeconfig_path}; "
        "stop it first, or start another one with --ephemeral --port 0 or with --data-dir DIR --port 0"
    )


async def _until_told(start: Start) -> None:
    import asyncio
    import signal

    working = asyncio.ensure_future(_work(start))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, working.cancel)
    with suppress(asyncio.CancelledError):
        await working


async def _work(start: Start) -> None:
    import asyncio
    from functools import partial

    from dralloc.server.server_process import run_server
    from dralloc.testing.cluster import components_on
    from dralloc.testing.gc_settings import collect_rarely

    async with run_server(start.server) as running:
        if start.cluster.identity is None:
            await _retire_nodes(start, running)
        apart = partial(start.apart.start, running) if start.apart is not None else None
        components = components_on(running.application, running.token, start.cluster, apart, starts_again=True)
        async with components as cluster:
            nodes = sum(each.count for each in start.cluster.fleets)
            if nodes <= AWAITED_MAX:
                await cluster.components.guard(cluster.nodes_ready.wait())
            collect_rarely()
            _tell(start, running.url)
            try:
                if nodes > AWAITED_MAX:
                    await cluster.components.guard(cluster.nodes_ready.wait())
                    say(f"all {nodes:,} simulated nodes are ready, after {start.age_s:.1f} s")
                await cluster.components.died()
            except asyncio.CancelledError:
                say("\nshutting down: closing watches, finishing requests")
                raise


async def _retire_nodes(start: Start, running: RunningServer) -> None:
    """Let those nodes go that were there last time and are not asked for now."""
    from dralloc.atomic_files import write_private
    from dralloc.client.async_client import AsyncClient
    from dralloc.client.in_process_transport import InProcessTransport
    from dralloc.testing.stale_nodes import delete_stale_nodes

    directory = start.server.data_dir
    earlier = {Path(profile).stem: count for profile, count in _counts(_nodes_of_last_time(directory) or "").items()}
    client = AsyncClient(InProcessTransport(running.application, token=running.token))
    if gone := await delete_stale_nodes(client, earlier, start.cluster.fleets):
        say(f"deleted simulated nodes that are no longer requested, with their pods: {', '.join(gone)}")
    write_private(directory / NODES_FILE, start.nodes)


def _tell(start: Start, url: str) -> None:
    """Where everything is, and what to do with it."""
    server = start.server
    kept = "deleted at the end" if server.store == "memory://" else f"kept in {server.store or server.data_dir}"
    nodes = ", ".join(f"{each.count} {each.prefix}" for each in start.cluster.fleets) or "none"
    example = f"\n  {program_name()} apply -f {shlex.quote(str(EXAMPLE))}" if EXAMPLE.is_dir() else ""
    say(f"""\
dralloc is up after {start.age_s:.1f} s

  web page    {url}/ui/#token={(server.data_dir / PAGE_TOKEN_FILE).read_text()}
  kubeconfig  {server.kubeconfig_path}
  nodes       {nodes}
  objects     {kept}

Try, in another terminal:

  export KUBECONFIG={server.kubeconfig_path}
  dralloc get nodes,deviceclasses,resourceslices{example}
  dralloc top devices
  dralloc explain pod NAMESPACE/NAME

kubectl works, too. Ctrl-C ends it.""")
    sys.stdout.flush()
