"""`dralloc bench`: measure a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dralloc.cli.options import Context, Output, OutputFormat
from dralloc.cli.output import FINDINGS, fail, in_words

if TYPE_CHECKING:
    from dralloc.testing.benchmark_workloads import BenchmarkWorkload
    from dralloc.testing.throughput import Scale, Throughput

app = typer.Typer(no_args_is_help=True, add_completion=False)


def _workloads(incomplete: str) -> list[str]:
    from dralloc.testing.benchmark_workloads import WORKLOADS

    return [name for name in WORKLOADS if name.startswith(incomplete)]


@app.callback()
def bench() -> None:
    """Measure a cluster.

    # How many pods per second are scheduled, in a new cluster; for details see
    # dralloc bench throughput --help
    dralloc bench throughput shared --nodes 50 --pods 400
    """


@app.command()
def throughput(
    workload: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORKLOAD",
            help="shared, plain, first, template (default: all of these), one-claim (at most 256 pods) or one-job.",
            autocompletion=_workloads,
        ),
    ] = None,
    nodes: Annotated[int, typer.Option(metavar="COUNT", help="The number of nodes.", min=1)] = 500,
    pods: Annotated[int, typer.Option(metavar="COUNT", help="The number of pods, each with one claim.", min=1)] = 4000,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="The kubeconfig of the cluster to measure; default: a new cluster is started.")
    ] = None,
    context: Context = None,
    scheduler_name: Annotated[str, typer.Option(help="The schedulerName of the pods.")] = "dralloc",
    in_process: Annotated[
        bool, typer.Option("--in-process", help="Run everything in one process, without network and disk.")
    ] = False,
    timeout: Annotated[int, typer.Option(metavar="SECONDS", help="The timeout.", min=1)] = 600,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Measure how many pods per second are scheduled, from the first create to the last bind.

    Without --kubeconfig or --context, an API server with an SQLite store, a scheduler and, for claims from templates, controllers are
    started, each in a process of its own. Otherwise that server and its scheduler are measured, and the objects are deleted afterwards.
    Eight pods fill a node, as in the benchmarks of Kubernetes.

    # A quick run, then a larger cluster.
    dralloc bench throughput shared --nodes 50 --pods 400
    dralloc bench throughput --nodes 5000 --pods 10000

    # Another scheduler on another server; for a program: -o json.
    dralloc bench throughput plain --kubeconfig other --scheduler-name theirs
    """
    from dralloc.cli.answers import answer
    from dralloc.cli.progress import progress
    from dralloc.testing.benchmark_workloads import WITH_OWN_CLAIMS, WORKLOADS
    from dralloc.testing.throughput import Scale, TooSlow

    names = workload or list(WITH_OWN_CLAIMS)
    if unknown := [name for name in names if name not in WORKLOADS]:
        fail(f"unknown workload {unknown[0]!r}; known: {', '.join(WORKLOADS)}")
    if in_process and (kubeconfig or context):
        fail("--in-process cannot be combined with --kubeconfig or --context")
    for name in names:
        if pods > (room := WORKLOADS[name].pods_max(nodes)):
            fail(
                f"{name}: with --nodes {nodes} there is room for {room} pods at most, not for {pods}; change one of them"
            )
    scale = Scale(nodes=nodes, pods=pods, scheduler_name=scheduler_name, timeout_s=timeout)
    measure = _measurement(kubeconfig, context, in_process)
    measured: dict[str, Throughput] = {}
    for name in progress(names, total=len(names), what="measuring"):
        try:
            measured[name] = measure(WORKLOADS[name], scale)
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


def _measurement(
    kubeconfig: Path | None, context: str | None, in_process: bool
) -> Callable[[BenchmarkWorkload, Scale], Throughput]:
    """What measures the cluster that is meant. Ends the command where that cannot be reached or started."""
    import uvloop

    from dralloc.cli.termination import run_until_terminated
    from dralloc.testing.benchmark_targets import (
        DidNotStart,
        measure_in_process,
        measure_local_cluster,
        measure_server,
    )

    def on_our_own(workload: BenchmarkWorkload, scale: Scale) -> Throughput:
        measuring = measure_in_process if in_process else measure_local_cluster
        try:
            return run_until_terminated(measuring(workload, scale), uvloop.new_event_loop)
        except (DidNotStart, OSError) as error:
            fail(f"cannot start the cluster to measure: {in_words(error)}")

    if kubeconfig is None and context is None:
        return on_our_own

    from dralloc.cli.server_connection import ask_server, find_server

    connection = find_server(kubeconfig, context)

    def on_a_server(workload: BenchmarkWorkload, scale: Scale) -> Throughput:
        return ask_server(
            connection,
            lambda transport: measure_server(transport, workload, scale),
            loop_factory=uvloop.new_event_loop,
        )

    return on_a_server
