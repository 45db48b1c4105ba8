"""`dralloc bench`: measure a cluster as its users have it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dralloc.cli.output import fail, say

if TYPE_CHECKING:
    from dralloc.assembly.throughput import Scale, Throughput
    from dralloc.assembly.workloads import Workload

app = typer.Typer(help="Measure a cluster as its users have it.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure a cluster as its users have it."""


@app.command()
def throughput(
    workload: Annotated[
        list[str] | None,
        typer.Argument(
            help="shared, plain, first, template (all of these unless given), or one-claim (256 pods at most), one-job."
        ),
    ] = None,
    nodes: Annotated[int, typer.Option(help="How many nodes there are.", min=1)] = 500,
    pods: Annotated[int, typer.Option(help="How many pods are created, each with one claim.", min=1)] = 4000,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="Measure this server and the scheduler that works on it; it is cleaned up after."),
    ] = None,
    context: Annotated[str | None, typer.Option(help="The context of the kubeconfig.")] = None,
    scheduler_name: Annotated[str, typer.Option(help="The schedulerName of the pods.")] = "dralloc",
    in_process: Annotated[
        bool, typer.Option("--in-process", help="Everything in one process, without a network or a disk.")
    ] = False,
    timeout: Annotated[int, typer.Option(help="Give up after so many seconds.", min=1)] = 600,
) -> None:
    """How many pods a second get a node, from the first create to the last bind.

    Without a kubeconfig, an API server, a scheduler and, for claims from templates, controllers are started for it, on a store in
    SQLite, each in a process of its own.
    """
    import asyncio

    import uvloop

    from dralloc.assembly.throughput import Scale, TooSlow
    from dralloc.assembly.workloads import USUAL, WORKLOADS

    names = workload or list(USUAL)
    if unknown := [name for name in names if name not in WORKLOADS]:
        fail(f"there is no workload {unknown[0]!r}; there are {', '.join(WORKLOADS)}")
    scale = Scale(nodes=nodes, pods=pods, scheduler_name=scheduler_name, timeout_s=timeout)
    for name in names:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                measured = runner.run(_measure(WORKLOADS[name], scale, kubeconfig, context, in_process))
        except TooSlow as error:
            fail(f"{name}: {error}", code=1)
        say(
            f"{name}: {measured.pods_per_s:.0f} pods/s ({pods} pods on {nodes} nodes in {measured.seconds:.1f} s,"
            f" created within {measured.creating_s:.1f} s)"
        )


async def _measure(
    workload: Workload, scale: Scale, kubeconfig: Path | None, context: str | None, in_process: bool
) -> Throughput:
    from dralloc.assembly.measuring import measure_in_process, measure_local_cluster, measure_server

    if in_process:
        return await measure_in_process(workload, scale)
    if kubeconfig is None and context is None:
        return await measure_local_cluster(workload, scale)
    return await measure_server(kubeconfig, context, workload, scale)
