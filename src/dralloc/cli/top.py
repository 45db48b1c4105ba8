"""`dralloc top`: what is used of devices, by whom, and what is left."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from dralloc.cli.options import Context, Files, Gates, Kubeconfig, Output, OutputFormat
from dralloc.cli.output import parse_gates

app = typer.Typer(help="Show what is used of devices, by whom, and what is left.", no_args_is_help=True)


@app.callback()
def top() -> None:
    """Show what is used of devices, by whom, and what is left."""


@app.command()
def devices(
    files: Files = None,
    node: Annotated[str | None, typer.Option(help="Only devices of this node.")] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = OutputFormat.TABLE,
    feature_gates: Gates = "",
) -> None:
    """Show devices by node and pool: who holds how much, what is free, and the largest request that still fits.

    That is the most that one more claim could get of a capacity, after rounding to the device's policy, if it asks for as
    little as it can of the others. Devices that are not for one node alone come first.

    \b
    # Who holds how much of which device, in the cluster that kubectl would ask?
    dralloc top devices

    \b
    # One node, with taints, attributes, share ids and the pods that use the claims.
    dralloc top devices --node node-7 -o wide

    \b
    # From what was saved.
    kubectl get nodes,resourceslices,resourceclaims -A -o json | dralloc top devices -f -
    """
    from dralloc.allocator.usage_report import usage_report
    from dralloc.api.resource_v1 import ResourceClaim, ResourceSlice
    from dralloc.cli.answers import answer
    from dralloc.cli.device_tree import plain_pool, tree
    from dralloc.cli.world import Origin, load_world

    origin = Origin(files=files, kubeconfig=kubeconfig, context=context)
    world = load_world(origin, parse_gates(feature_gates), needed={ResourceSlice, ResourceClaim})
    reports = usage_report(world.snapshot, world.features)
    if node is not None:
        reports = tuple(report for report in reports if report.node == world.node(node).name)
    is_wide = output is OutputFormat.WIDE
    answer(
        output,
        lambda: {"pools": [plain_pool(report) for report in reports]},
        lambda: tree(reports, is_wide=is_wide, with_bars=sys.stdout.isatty()),
    )
