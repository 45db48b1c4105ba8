"""`dralloc apiserver`: serve the Kubernetes API from this machine, for kubectl and every other client."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dralloc.cli.options import AcceptLostWrites, Gates, ServedKubeconfig, StoreUrl
from dralloc.cli.output import fail, in_words, parse_gates, say

if TYPE_CHECKING:
    from dralloc.server.server_process import ServerSettings

DEFAULT_ISSUER: Final = "https://kubernetes.default.svc"


def apiserver(
    data_dir: Annotated[Path, typer.Option(help="The directory of objects, certificates and the kubeconfig.")] = Path(
        "~/.dralloc"
    ),
    bind: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", help="The port to listen on; 0 for a free port.", min=0, max=65535)
    ] = 6443,
    store: StoreUrl = None,
    accept_lost_writes: AcceptLostWrites = False,
    kubeconfig: ServedKubeconfig = None,
    feature_gates: Gates = "",
    token_file: Annotated[
        Path | None, typer.Option(help='A file with more users; each line has token,user,uid and "groups".')
    ] = None,
    token_issuer: Annotated[
        str,
        typer.Option(
            metavar="URL",
            show_default=False,
            help="The issuer that tokens of service accounts name; default: that of Kubernetes.",
        ),
    ] = DEFAULT_ISSUER,
    insecure_http: Annotated[
        bool, typer.Option("--insecure-http", help="Serve plain HTTP without tokens, on loopback only, for tests.")
    ] = False,
) -> None:
    """Serve the Kubernetes API for devices and claims.

    # A server with persistent objects, for kubectl and other clients; it prints
    # the path of the kubeconfig.
    dralloc apiserver

    # One in memory, on a free port; one of several replicas on an etcd.
    dralloc apiserver --store memory:// --port 0 --data-dir /tmp/try
    dralloc apiserver --store etcd://127.0.0.1:2379
    """
    from dralloc.server.server_process import ServerSettings
    from dralloc.web.explain_endpoint import ExplainEndpoint
    from dralloc.web.page import device_page

    gates = parse_gates(feature_gates)
    settings = ServerSettings(
        data_dir=data_dir.expanduser().absolute(),
        bind=bind,
        port=port,
        store=store,
        accept_lost_writes=accept_lost_writes,
        kubeconfig=kubeconfig,
        token_file=token_file,
        service_account_issuer=token_issuer,
        insecure_http=insecure_http,
        gates=gates,
        pages=device_page(),
        extensions=(ExplainEndpoint(gates),),
    )
    _serve(settings)


def _serve(settings: ServerSettings) -> None:
    import asyncio
    import logging

    import uvloop

    from dralloc.server.http.authentication import BadTokenFile
    from dralloc.server.identity.kubeconfig import UnusableKubeconfig
    from dralloc.server.server_process import BadServerSettings
    from dralloc.server.store.errors import StoreError

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # When clients disconnect is their affair, and could fill our log.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve_until_told(settings))
    except (BadServerSettings, BadTokenFile, StoreError) as error:
        fail(str(error))
    except UnusableKubeconfig as error:
        fail(f"{error}; choose another path with --kubeconfig")
    except OSError as error:
        fail(f"cannot serve on {settings.bind}:{settings.port} from {settings.data_dir}: {in_words(error)}")


async def _serve_until_told(settings: ServerSettings) -> None:
    import asyncio
    import signal

    from dralloc.server.server_process import run_server
    from dralloc.testing.gc_settings import collect_rarely

    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    async with run_server(settings) as running:
        collect_rarely()
        say(f"serving on {running.url}")
        say(f"kubeconfig: {settings.kubeconfig_path}")
        say(f"web page: {running.url}/ui/")
        say(f"try: KUBECONFIG={settings.kubeconfig_path} kubectl get deviceclasses,resourceslices,resourceclaims -A")
        await ending.wait()
        say("shutting down: closing watches, finishing requests")
