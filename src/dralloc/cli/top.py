"""`dralloc top`: the usage of devices."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from dralloc.cli.name_completion import nodes_starting_with
from dralloc.cli.options import Context, Files, Gates, Kubeconfig, Output, OutputFormat
from dralloc.cli.output import fail, parse_gates

if TYPE_CHECKING:
    from dralloc.whatif.cluster_objects import ClusterObjects
    from dralloc.whatif.device_report import PoolReport

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def top() -> None:
    """Show the usage of devices.

    # Once, and live. For details see dralloc top devices --help
    dralloc top devices
    dralloc top devices --watch
    """


@app.command()
def devices(
    files: Files = None,
    node: Annotated[
        str | None, typer.Option(help="Only devices of this node.", autocompletion=nodes_starting_with)
    ] = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Show every change, until Ctrl-C: bars on a terminal, otherwise lines."),
    ] = False,
    summary: Annotated[
        bool, typer.Option("--summary", "-s", help="Only totals: by driver and class, and the nodes with most to give.")
    ] = False,
    node_group: Annotated[
        str | None, typer.Option(metavar="LABEL", help="With --summary: also totals by the value of this node label.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = OutputFormat.TABLE,
    feature_gates: Gates = "",
) -> None:
    """Show devices by node and pool: which claims use how much, what is available, and the largest request that fits.

    A device is free, shared (another share fits), full, or blocked, with the reason: counters, taints, its pool or its node. What is
    free can be claimed. The largest request is the maximum that one more claim could get of a capacity, after rounding to the device's
    policy, if it requests the minimum of the other capacities. Devices that are not local to one node come first.

    Totals are by hardware: the driver, and the product that an attribute of the devices names (productName, model or product). They count
    it once: for devices that consume counters, the counter sets; for others, their capacity. Unusable is what no typical request can use of the available amount; typical are the requests of the claims that exist. Stranded is what no typical pod can
    use of the idle devices, counted in devices: because of taints, counters, a remainder that is too small, or a node without cpu or memory
    for one more pod.

    # Which claims use how much, in the cluster of kubectl's current context?
    dralloc top devices

    # The same, live; for large clusters the totals and the fullest nodes. For a
    # program: one line of JSON per change.
    dralloc top devices --watch
    dralloc top devices --watch -o json | jq .

    # One node, with taints, attributes, share ids and the pods that use the
    # claims.
    dralloc top devices --node node-7 -o wide

    # Totals on one screen; also by zone.
    dralloc top devices --summary
    dralloc top devices --summary --node-group topology.kubernetes.io/zone

    # From a dump.
    dralloc dump -o cluster.json
    dralloc top devices -f cluster.json
    """
    from dralloc.api.core_v1 import Node
    from dralloc.api.meta_v1 import ApiObject
    from dralloc.api.pod_v1 import Pod
    from dralloc.api.resource_v1 import (
        DeviceClass,
        DeviceTaintRule,
        ResourceClaim,
        ResourceClaimTemplate,
        ResourceSlice,
    )
    from dralloc.cli.answers import answer
    from dralloc.cli.cluster_source import ClusterSource, unknown_names_fail
    from dralloc.cli.device_tree import plain_pool, tree
    from dralloc.whatif.usage_report import closed_nodes, usage_report

    if watch:
        if files:
            fail("--watch cannot be combined with -f")
        if summary:
            fail("--watch cannot be combined with --summary; on a terminal, --watch shows totals")
        _follow(kubeconfig, context, node, output, feature_gates)
    source = ClusterSource(files=files, kubeconfig=kubeconfig, context=context)
    gates = parse_gates(feature_gates)
    if node_group is not None and not summary:
        fail("--node-group needs --summary")
    useful: set[type[ApiObject]] = {Node, DeviceTaintRule}
    if summary:
        useful |= {DeviceClass, Pod, ResourceClaimTemplate}
    objects = source.load(gates, needed={ResourceSlice, ResourceClaim}, useful=useful)
    reports = usage_report(objects.snapshot(), objects.features, closed_nodes(objects.nodes))
    if node is not None:
        with unknown_names_fail():
            name = objects.find_node(node).metadata.name
        reports = tuple(report for report in reports if report.node == name)
    if summary:
        _print_summary(objects, reports, None if node is None else name, node_group, output)
        return
    is_wide = output is OutputFormat.WIDE
    answer(
        output,
        lambda: {"pools": [plain_pool(report) for report in reports]},
        lambda: tree(reports, is_wide=is_wide, with_bars=sys.stdout.isatty()),
    )


def _print_summary(
    objects: ClusterObjects,
    reports: Sequence[PoolReport],
    node: str | None,
    node_group: str | None,
    output: OutputFormat,
) -> None:
    from dralloc.api.resource_v1 import DeviceClass, ResourceClaim
    from dralloc.cli.answers import answer
    from dralloc.cli.device_summary import plain_summary, summary_lines
    from dralloc.whatif.cluster_fragmentation import fragmentation_of
    from dralloc.whatif.usage_summary import UsageSummarizer

    classes = {name: item for (_, name), item in objects.all(DeviceClass).items()}
    summarizer = UsageSummarizer(objects.features, classes, objects.all(ResourceClaim).values())
    labels = {each.metadata.name: each.metadata.labels for each in objects.nodes}
    found = summarizer.summary(reports, labels, node_group)
    idle = fragmentation_of(objects)
    by_driver = idle.by_driver() if node is None else idle.on_node(node)
    answer(output, lambda: plain_summary(found, by_driver), lambda: summary_lines(found, by_driver))


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
