"""`dralloc top`: what is used of devices, by whom, and what is left."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from dralloc.cli.options import Context, Files, Gates, Kubeconfig, Output, OutputFormat
from dralloc.cli.output import fail, parse_gates

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def top() -> None:
    """Show what is used of devices, by whom, and what is left.

    # Now, and live. All that it can show: dralloc top devices --help
    dralloc top devices
    dralloc top devices --watch
    """


@app.command()
def devices(
    files: Files = None,
    node: Annotated[str | None, typer.Option(help="Only devices of this node.")] = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Go on with every change, until Ctrl-C: bars on a terminal, else lines."),
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = OutputFormat.TABLE,
    feature_gates: Gates = "",
) -> None:
    """Show devices by node and pool: who holds how much, what is free, and the largest request that still fits.

    That is the most that one more claim could get of a capacity, after rounding to the device's policy, if it asks for as
    little as it can of the others. Devices that are not for one node alone come first.

    # Who holds how much of which device, in the cluster that kubectl would ask?
    dralloc top devices

    # The same, live; of large clusters the totals and the fullest nodes. For a
    # program: a line of JSON for each change.
    dralloc top devices --watch
    dralloc top devices --watch -o json | jq .

    # One node, with taints, attributes, share ids and the pods that use the
    # claims.
    dralloc top devices --node node-7 -o wide

    # From what was saved.
    kubectl get nodes,resourceslices,resourceclaims -A -o json > cluster.json
    dralloc top devices -f cluster.json
    """
    from dralloc.api.core_v1 import Node
    from dralloc.api.resource_v1 import DeviceTaintRule, ResourceClaim, ResourceSlice
    from dralloc.cli.answers import answer
    from dralloc.cli.cluster_source import ClusterSource, unknown_names_fail
    from dralloc.cli.device_tree import plain_pool, tree
    from dralloc.whatif.usage_report import usage_report

    if watch:
        if files:
            fail("--watch follows a cluster, and files do not change: leave out --watch or -f")
        _follow(kubeconfig, context, node, output, feature_gates)
    source = ClusterSource(files=files, kubeconfig=kubeconfig, context=context)
    gates = parse_gates(feature_gates)
    objects = source.load(gates, needed={ResourceSlice, ResourceClaim}, useful={Node, DeviceTaintRule})
    reports = usage_report(objects.snapshot(), objects.features)
    if node is not None:
        with unknown_names_fail():
            name = objects.find_node(node).metadata.name
        reports = tuple(report for report in reports if report.node == name)
    is_wide = output is OutputFormat.WIDE
    answer(
        output,
        lambda: {"pools": [plain_pool(report) for report in reports]},
        lambda: tree(reports, is_wide=is_wide, with_bars=sys.stdout.isatty()),
    )


def _follow(
    kubeconfig: Path | None, context: str | None, node: str | None, output: OutputFormat, feature_gates: str
) -> NoReturn:
    from dralloc.allocator.features import Features
    from dralloc.cli.device_watch import DeviceWatch
    from dralloc.cli.server_connection import ask_server, find_server
    from dralloc.client.transport import Transport

    connection = find_server(kubeconfig, context)
    features = Features.of(parse_gates(feature_gates))

    async def work(transport: Transport) -> None:
        await DeviceWatch(transport, connection.server, features, node).run(output)

    ask_server(connection, work, is_endless=True)
    raise AssertionError("devices are followed until that is interrupted")
