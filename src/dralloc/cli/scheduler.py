"""`dralloc scheduler`: give pods their nodes and devices, on any Kubernetes API server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dralloc.cli.output import FEATURE_GATES_HELP, fail, parse_gates, say

if TYPE_CHECKING:
    from dralloc.assembly.components import SchedulerComponent


def scheduler(
    kubeconfig: Annotated[
        Path | None, typer.Option(help="How to reach the API server; what kubectl would use unless given.")
    ] = None,
    context: Annotated[str | None, typer.Option(help="The context of the kubeconfig to use.")] = None,
    server: Annotated[str | None, typer.Option(help="The URL of an API server that asks for no credentials.")] = None,
    scheduler_name: Annotated[
        list[str] | None, typer.Option(help="Schedule pods with this schedulerName; may be given several times.")
    ] = None,
    default_scheduler: Annotated[
        bool, typer.Option("--default-scheduler", help="Schedule pods that name no scheduler, too.")
    ] = False,
    leader_elect: Annotated[
        bool, typer.Option("--leader-elect", help="Run beside others of the same kind; one of them works.")
    ] = False,
    pools: Annotated[
        list[str] | None,
        typer.Option(
            help="Give out devices of these pools only, as DRIVER or DRIVER/POOL with * and ?; all unless given."
        ),
    ] = None,
    bindings: Annotated[int, typer.Option(help="How many pods are bound at the same time.", min=1, max=10_000)] = 64,
    feature_gates: Annotated[str, typer.Option(help=FEATURE_GATES_HELP)] = "",
    metrics_port: Annotated[
        int | None,
        typer.Option(
            help="Serve /metrics and /healthz on this port of loopback; 0 takes a free one.", min=0, max=65535
        ),
    ] = None,
) -> None:
    """Give pods their nodes and devices."""
    from dralloc.assembly.components import SchedulerComponent
    from dralloc.client.credentials import BadKubeconfig
    from dralloc.scheduler.pool_ownership import owner_of
    from dralloc.scheduler.scheduler import NAME, SchedulerSettings

    names = frozenset(scheduler_name or [NAME])
    settings = SchedulerSettings(
        names=names | {"default-scheduler"} if default_scheduler else names,
        gates=parse_gates(feature_gates),
        bindings_max=bindings,
        owns_pool=owner_of(pools or ()),
    )
    try:
        component = SchedulerComponent.connect(server or kubeconfig, context=context, settings=settings)
    except BadKubeconfig as error:
        fail(str(error))
    _run(component, elect=leader_elect, metrics_port=metrics_port)


def _run(component: SchedulerComponent, *, elect: bool, metrics_port: int | None) -> None:
    import asyncio

    import uvloop

    from dralloc.assembly.running import run_until_told

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_until_told(component, elect=elect, metrics_port=metrics_port, say=say))
