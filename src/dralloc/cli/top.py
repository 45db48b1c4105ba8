"""`dralloc top`: what is used of devices, by whom, and what is left."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from dralloc.cli.output import FEATURE_GATES_HELP, FILES_HELP, parse_gates, say


class OutputFormat(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


app = typer.Typer(help="Show what is used of devices, by whom, and what is left.", no_args_is_help=True)


@app.callback()
def top() -> None:
    """Show what is used of devices, by whom, and what is left."""


@app.command()
def devices(
    files: Annotated[list[str], typer.Option("--filename", "-f", help=FILES_HELP)],
    node: Annotated[str | None, typer.Option(help="Only devices of this node.")] = None,
    output: Annotated[
        OutputFormat, typer.Option("--output", "-o", help="For people or for machines.")
    ] = OutputFormat.TABLE,
    feature_gates: Annotated[str, typer.Option(help=FEATURE_GATES_HELP)] = "",
) -> None:
    """Show devices by node and pool: who holds how much, what is free, and the largest request that still fits.

    That is the most that one more claim could get of a capacity, after rounding to the device's policy, if it asks for as
    little as it can of the others. Devices that are not for one node alone come first.

    \b
    # A real cluster: who holds how much of which device?
    kubectl get nodes,resourceslices,resourceclaims -A -o json | dralloc top devices -f -

    \b
    # One node, with taints, attributes, share ids and the pods that use the claims.
    dralloc top devices -f cluster/ --node node-7 -o wide
    """
    from dralloc.allocator.usage_report import usage_report
    from dralloc.cli.device_tree import plain_pool, tree
    from dralloc.cli.objects import plain_json, plain_yaml
    from dralloc.cli.world import load_world

    world = load_world(files, parse_gates(feature_gates))
    reports = usage_report(world.snapshot, world.features)
    if node is not None:
        reports = tuple(report for report in reports if report.node == world.node(node).name)
    match output:
        case OutputFormat.JSON:
            say(plain_json({"pools": [plain_pool(report) for report in reports]}))
        case OutputFormat.YAML:
            say(plain_yaml({"pools": [plain_pool(report) for report in reports]}), newline=False)
        case _:
            say("\n".join(tree(reports, is_wide=output is OutputFormat.WIDE, with_bars=sys.stdout.isatty())))
