"""`dralloc bench`: measure a cluster as its users have it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dralloc.cli.options import Context, Kubeconfig, Output, OutputFormat
from dralloc.cli.output import FINDINGS, fail

if TYPE_CHECKING:
    from dralloc.assembly.throughput import Scale, Throughput
    from dralloc.assembly.workloads import Workload

app = typer.Typer(help="Measure a cluster as its users have it.", no_args_is_help=True, add_completion=False)


def _workloads(incomplete: str) -> list[str]:
    from dralloc.assembly.workloads import WORKLOADS

    return [name for name in WORKLOADS if name.startswith(incomplete)]


@app.callback()
def bench() -> None:
    """Measure a cluster as its users have it."""


@app.command()
def throughput(
    workload: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORKLOAD",
            help="shared, plain, first, template (all of these unless given), or one-claim (256 pods at most), one-job.",
            autocompletion=_workloads,
        ),
    ] = None,
    nodes: Annotated[int, typer.Option(metavar="COUNT", help="How many nodes there are.", min=1)] = 500,
    pods: Annotated[
        int, typer.Option(metavar="COUNT", help="How many pods are created, each with one claim.", min=1)
    ] = 4000,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    scheduler_name: Annotated[str, typer.Option(help="The schedulerName of the pods.")] = "dralloc",
    in_process: Annotated[
        bool, typer.Option("--in-process", help="Everything in one process, without a network or a disk.")
    ] = False,
    timeout: Annotated[int, typer.Option(metavar="SECONDS", help="Give up after so many seconds.", min=1)] = 600,
    output: Output = OutputFormat.TABLE,
) -> None:
    """How many pods a second get a node, from the first create to the last bind.

    Without a kubeconfig, an API server, a scheduler and, for claims from templates, controllers are started for it, on a store in
    SQLite, each in a process of its own. With one, that server and the scheduler that works on it are measured, and cleaned up after.

    # A quick look, then what a larger cluster does.
    dralloc bench throughput shared --nodes 50 --pods 500
    dralloc bench throughput --nodes 5000 --pods 10000

    # Another scheduler on another server; for a program: -o json.
    dralloc bench throughput plain --kubeconfig other --scheduler-name theirs
    """
    import asyncio

    import uvloop

    from dralloc.assembly.throughput import Scale, TooSlow
    from dralloc.assembly.workloads import USUAL, WORKLOADS
    from dralloc.cli.answers import answer
    from dralloc.cli.progress import progress

    names = workload or list(USUAL)
    if unknown := [name for name in names if name not in WORKLOADS]:
        fail(f"there is no workload {unknown[0]!r}; there are {', '.join(WORKLOADS)}")
    scale = Scale(nodes=nodes, pods=pods, scheduler_name=scheduler_name, timeout_s=timeout)
    measured: dict[str, Throughput] = {}
    for name in progress(names, total=len(names), what="measuring"):
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                measured[name] = runner.run(_measure(WORKLOADS[name], scale, kubeconfig, context, in_process))
        except TooSlow as error:
            fail(f"{name}: {error}", FINDINGS)
    answer(output, lambda: _values(measured, scale), lambda: _lines(measured, scale))


def _lines(measured: dict[str, Throughput], scale: Scale) -> Iterator[str]:
    for name, found in measured.items():
        yield (
            f"{name}: {found.pods_per_s:.0f} pods/s ({scale.pods} pods on {scale.nodes} nodes in {found.seconds:.1f} s,"
            f" created within {found.creating_s:.1f} s)"
        )


def _values(measured: dict[str, Throughput], scale: Scale) -> dict[str, Any]:
    return {
        "nodes": scale.nodes,
        "pods": scale.pods,
        "workloads": {
            name: {"podsPerSecond": found.pods_per_s, "seconds": found.seconds, "creatingSeconds": found.creating_s}
            for name, found in measured.items()
        },
    }


async def _measure(
    workload: Workload, scale: Scale, kubeconfig: Path | None, context: str | None, in_process: bool
) -> Throughput:
    from dralloc.assembly.measuring import measure_in_process, measure_local_cluster, measure_server

    if in_process:
        return await measure_in_process(workload, scale)
    if kubeconfig is None and context is None:
        return await measure_local_cluster(workload, scale)
    return await measure_server(kubeconfig, context, workload, scale)
