"""`dralloc scheduler`: schedule pods and allocate devices, on any Kubernetes API server."""

from __future__ import annotations

from typing import Annotated

import typer

from dralloc.cli.options import Context, Gates, Kubeconfig, LeaderElect, MetricsAddress
from dralloc.cli.output import parse_gates, say


def scheduler(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    scheduler_name: Annotated[
        list[str] | None, typer.Option(help="Schedule pods with this schedulerName; may be given several times.")
    ] = None,
    default_scheduler: Annotated[
        bool, typer.Option("--default-scheduler", help="Also schedule pods that name no scheduler.")
    ] = False,
    pools: Annotated[
        list[str] | None,
        typer.Option(
            help="Allocate devices of these pools only: DRIVER or DRIVER/POOL, with * and ?; may be given several times."
        ),
    ] = None,
    bindings: Annotated[
        int, typer.Option(metavar="COUNT", help="The number of pods that are bound concurrently.", min=1, max=10_000)
    ] = 64,
    leader_elect: LeaderElect = False,
    feature_gates: Gates = "",
    metrics_address: MetricsAddress = None,
) -> None:
    """Schedule pods: choose their nodes and allocate their devices.

    If other schedulers allocate devices on the same server, either the server must reject double allocations, as `dralloc apiserver`
    does, or each scheduler must have pools of its own (--pools).

    # Beside the cluster's own scheduler, for pods with schedulerName: dralloc and
    # the devices of one driver.
    dralloc scheduler --pools gpu.example.com

    # The only scheduler of a dralloc server, with leader election.
    dralloc scheduler --default-scheduler --leader-elect
    """
    from dralloc.api.pod_v1 import DEFAULT_SCHEDULER
    from dralloc.cli.component_runner import work
    from dralloc.cli.server_connection import find_server
    from dralloc.client.http_transport import HttpTransport
    from dralloc.scheduler.leader_loop import SchedulerLoop
    from dralloc.scheduler.settings import NAME, SchedulerSettings
    from dralloc.scheduler.state.pool_ownership import owner_of
    from dralloc.system_clock import SystemClock

    names = frozenset(scheduler_name or [NAME]) | ({DEFAULT_SCHEDULER} if default_scheduler else frozenset())
    settings = SchedulerSettings(
        names=names, gates=parse_gates(feature_gates), bindings_max=bindings, owns_pool=owner_of(pools or ())
    )
    connection = find_server(kubeconfig, context)
    say(f"scheduling on {connection.server} for {', '.join(sorted(names))}")
    terms = SchedulerLoop(HttpTransport(connection), clock=SystemClock(), settings=settings)
    work(terms, leader_elect=leader_elect, metrics_address=metrics_address)
