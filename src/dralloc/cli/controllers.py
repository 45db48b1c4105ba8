"""`dralloc controllers`: create claims from templates, release claims, evict pods, find nodes that are gone."""

from __future__ import annotations

from typing import Annotated

import typer

from dralloc.cli.options import Context, Gates, Kubeconfig, LeaderElect, MetricsAddress, Verbosity
from dralloc.cli.output import fail, parse_gates, say


def controllers(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    only: Annotated[str | None, typer.Option(help="Comma-separated controllers to run; default: all.")] = None,
    node_monitor_grace_period: Annotated[
        float, typer.Option(metavar="S", help="The seconds for which a node may be silent before it is unknown.", min=1)
    ] = 50.0,
    node_monitor_period: Annotated[
        float, typer.Option(metavar="S", help="The seconds between two examinations of all nodes.", min=0.1)
    ] = 5.0,
    leader_elect: LeaderElect = False,
    feature_gates: Gates = "",
    metrics_address: MetricsAddress = None,
    verbosity: Verbosity = 0,
) -> None:
    """Run the controllers.

    A cluster with a kube-controller-manager runs most of these already: use --only for those that it lacks.

    # All of them, for a dralloc server.
    dralloc controllers --kubeconfig ~/.dralloc/kubeconfig

    # Two of them, with leader election between replicas.
    dralloc controllers --only claim-templates,claim-lifecycle --leader-elect
    """
    from dralloc.cli.component_runner import work
    from dralloc.cli.server_connection import find_server
    from dralloc.client.http_transport import HttpTransport
    from dralloc.controllers.controller_set import CONTROLLERS, ControllerSet
    from dralloc.controllers.metrics import ControllerMetrics
    from dralloc.controllers.node_lifecycle.plan import NodeLifecycleSettings
    from dralloc.system_clock import SystemClock

    names = tuple(CONTROLLERS) if only is None else tuple(name.strip() for name in only.split(","))
    if unknown := [name for name in names if name not in CONTROLLERS]:
        fail(f"--only: unknown controller {unknown[0]!r}; known: {', '.join(CONTROLLERS)}")
    gates = parse_gates(feature_gates)
    connection = find_server(kubeconfig, context)
    chosen = ControllerSet(
        HttpTransport(connection),
        clock=SystemClock(),
        gates=gates,
        metrics=ControllerMetrics(),
        only=names,
        nodes=NodeLifecycleSettings(monitor_s=node_monitor_period, grace_s=node_monitor_grace_period),
    )
    say(f"working on {connection.server}: {', '.join(names)}")
    work(chosen, gates=gates, leader_elect=leader_elect, metrics_address=metrics_address, verbosity=verbosity)
