"""`dralloc controllers`: make claims from templates, give them back, evict pods, on any Kubernetes API server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dralloc.cli.options import Context, Gates, Kubeconfig
from dralloc.cli.output import fail, parse_gates, say

if TYPE_CHECKING:
    from dralloc.controllers.running import Controllers


def controllers(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    only: Annotated[
        str | None, typer.Option(help="Which controllers to run, with commas between them; all unless told.")
    ] = None,
    leader_elect: Annotated[
        bool, typer.Option("--leader-elect", help="Work only while no other process does: for several replicas.")
    ] = False,
    feature_gates: Gates = "",
    metrics_address: Annotated[
        str | None, typer.Option(help="HOST:PORT for /metrics and /healthz; nowhere unless told.")
    ] = None,
) -> None:
    """Run the controllers.

    A cluster that has a kube-controller-manager runs most of these already: name with --only those that it lacks.

    \b
    # All of them, for a server of ours.
    dralloc controllers --kubeconfig ~/.dralloc/kubeconfig

    \b
    # Two of them, in two replicas of which one works, with metrics.
    dralloc controllers --only claim-templates,claim-lifecycle --leader-elect --metrics-address 127.0.0.1:9090
    """
    from dralloc.cli.reaching import find_server
    from dralloc.client.http import HttpTransport
    from dralloc.controllers.metrics import ControllerMetrics
    from dralloc.controllers.running import CONTROLLERS, Controllers
    from dralloc.system_clock import SystemClock

    names = tuple(CONTROLLERS) if only is None else tuple(name.strip() for name in only.split(","))
    if unknown := [name for name in names if name not in CONTROLLERS]:
        fail(f"--only: no controller is called {unknown[0]!r}; there are {', '.join(CONTROLLERS)}")
    gates = parse_gates(feature_gates)
    connection = find_server(kubeconfig, context)
    chosen = Controllers(
        HttpTransport(connection), clock=SystemClock(), gates=gates, metrics=ControllerMetrics(), only=names
    )
    say(f"working on {connection.server}: {', '.join(names)}")
    _work(chosen, leader_elect=leader_elect, metrics_address=metrics_address)


def _work(chosen: Controllers, *, leader_elect: bool, metrics_address: str | None) -> None:
    import asyncio
    import logging

    import uvloop

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_work_until_told(chosen, leader_elect=leader_elect, metrics_address=metrics_address))


async def _work_until_told(chosen: Controllers, *, leader_elect: bool, metrics_address: str | None) -> None:
    import asyncio
    import signal
    import socket
    from uuid import uuid4

    from dralloc.cli.observing import observable

    async with observable(metrics_address, chosen.metrics.text):
        identity = f"{socket.gethostname()}_{uuid4()}"
        working = asyncio.ensure_future(chosen.run_elected(identity) if leader_elect else chosen.run())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, working.cancel)
        try:
            await working
        except asyncio.CancelledError:
            say("ending")
        finally:
            await chosen.close()
