"""`dralloc scheduler`: schedule pods and allocate devices, on any Kubernetes API server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dralloc.cli.options import Context, Gates, Kubeconfig, LeaderElect, MetricsAddress, Strategy, Verbosity
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
    pool_leases: Annotated[
        str | None,
        typer.Option(
            metavar="NAMESPACE",
            help="Share pools with other schedulers by leases in this namespace: each driver is allocated from by one at a time.",
        ),
    ] = None,
    bindings: Annotated[
        int, typer.Option(metavar="COUNT", help="The number of pods that are bound concurrently.", min=1, max=10_000)
    ] = 256,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Placement strategy and typical pods; preference and strategies of device classes, for servers without these fields.",
        ),
    ] = None,
    strategy: Strategy = None,
    leader_elect: LeaderElect = False,
    feature_gates: Gates = "",
    metrics_address: MetricsAddress = None,
    verbosity: Verbosity = 0,
) -> None:
    """Schedule pods: choose their nodes and allocate their devices.

    If other schedulers allocate devices on the same server, either the server must reject double allocations, as `dralloc apiserver`
    does, or each scheduler must have pools of its own: by configuration (--pools), or in turn (--pool-leases).

    # Beside the cluster's own scheduler, for pods with schedulerName: dralloc and
    # the devices of one driver.
    dralloc scheduler --pools gpu.example.com

    # Several of our schedulers with pods of their own on any server: they agree
    # by leases which of them allocates devices of a driver.
    dralloc scheduler --scheduler-name team-a --pool-leases dralloc-system

    # The only scheduler of a dralloc server, with leader election.
    dralloc scheduler --default-scheduler --leader-elect

    # Keep devices usable for the pods that are typical in this cluster.
    dralloc scheduler --strategy FragmentationAware

    # With a line in the log for each device that it allocates.
    dralloc scheduler -v 7
    """
    from dralloc.cli.component_runner import own_identity, work
    from dralloc.cli.scheduler_configuration import read_configuration
    from dralloc.cli.server_connection import find_server
    from dralloc.client.http_transport import HttpTransport
    from dralloc.kube.pod_v1 import DEFAULT_SCHEDULER
    from dralloc.scheduler.leader_loop import SchedulerLoop
    from dralloc.scheduler.ownership.lease_rules import PoolLeaseSettings
    from dralloc.scheduler.settings import NAME, SchedulerSettings
    from dralloc.scheduler.state.pool_ownership import owner_of
    from dralloc.system_clock import SystemClock

    names = frozenset(scheduler_name or [NAME]) | ({DEFAULT_SCHEDULER} if default_scheduler else frozenset())
    gates = parse_gates(feature_gates)
    configuration = read_configuration(config, gates, strategy)
    settings = SchedulerSettings(
        names=names,
        gates=gates,
        bindings_max=bindings,
        owns_pool=owner_of(pools or ()),
        strategies=configuration.strategies,
        class_settings=configuration.class_settings,
        pool_leases=None if pool_leases is None else PoolLeaseSettings(namespace=pool_leases, identity=own_identity()),
    )
    connection = find_server(kubeconfig, context)
    say(f"scheduling on {connection.server} for {', '.join(sorted(names))}")
    terms = SchedulerLoop(HttpTransport(connection), clock=SystemClock(), settings=settings)
    work(terms, gates=gates, leader_elect=leader_elect, metrics_address=metrics_address, verbosity=verbosity)
