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
    from dralloc.answers.cluster_objects import ClusterObjects
    from dralloc.answers.device_report import PoolReport
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from dralloc.answers.device_report import DeviceState, HardwareAmount, portion
from dralloc.answers.usage_summary import DeviceCounts, GroupSummary, UsageSummary
from dralloc.cli.device_tree import plain_amount
from dralloc.cli.tables import table
from dralloc.scheduler.report.stranded_devices import WHOLE, IdleDevices, StrandedCause

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
    from dralloc.answers.usage_report import closed_nodes, usage_report
    from dralloc.cli.answers import answer
    from dralloc.cli.cluster_source import ClusterSource, unknown_names_fail
    from dralloc.cli.device_tree import plain_pool, tree
    from dralloc.kube.core_v1 import Node
    from dralloc.kube.meta_v1 import ApiObject
    from dralloc.kube.pod_v1 import Pod
    from dralloc.kube.resource_v1 import (
        DeviceClass,
        DeviceTaintRule,
        ResourceClaim,
        ResourceClaimTemplate,
        ResourceSlice,
    )

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
    from dralloc.answers.usage_summary import UsageSummarizer, fragmentation_of
    from dralloc.cli.answers import answer
    from dralloc.cli.top import plain_summary, summary_lines
    from dralloc.kube.resource_v1 import DeviceClass, ResourceClaim

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
    from dralloc.cli.device_watch import DeviceWatch
    from dralloc.cli.server_connection import ask_server, find_server
    from dralloc.client.transport import Transport
    from dralloc.devices.allocator.features import Features

    connection = find_server(kubeconfig, context)
    features = Features.of(parse_gates(feature_gates))

    async def work(transport: Transport) -> None:
        await DeviceWatch(transport, connection.server, features, node).run(output)

    ask_server(connection, work, is_endless=True)
    raise AssertionError("devices are followed until that is interrupted")


# --- Device summary -------------------------------------------------------------------------------------------------
# The devices of a cluster on one screen: totals as tables for people, and as values for machines.


STATES: Final = (DeviceState.FREE, DeviceState.SHARED, DeviceState.FULL, DeviceState.BLOCKED)
# Cards have counters for every slot and engine; the largest amounts say most.
AMOUNTS_SHOWN_MAX: Final = 3
CLASSES_SHOWN_MAX: Final = 8
GROUPS_SHOWN_MAX: Final = 20
NODES_SHOWN_MAX: Final = 5
_HEADER: Final = ("DEVICES", *(state.value.upper() for state in STATES))


def summary_lines(summary: UsageSummary, idle: Mapping[str, IdleDevices]) -> Iterator[str]:
    if not summary.drivers:
        yield "there are no devices"
        return
    rows = [(each.name, *_counts(each.counts), _largest(each.counts)) for each in summary.drivers]
    yield from table(("DRIVER", *_HEADER, "LARGEST REQUEST"), rows)
    yield from _remarks(summary)
    yield ""
    yield from table(
        ("HARDWARE", "DEVICES", "FULL", "AMOUNT", "TOTAL", "USED", "AVAILABLE", "LARGEST", "UNUSABLE"),
        [row for group in summary.hardware for row in _hardware_rows(group)],
    )
    yield f"unusable: what none of {_typical(summary)} can use of the available amount"
    if any(sum(each.stranded.values()) for each in idle.values()):
        yield ""
        causes = (cause.value.upper() for cause in StrandedCause)
        yield from table(("IDLE DEVICES", "IDLE", "STRANDED", *causes), [_idle_row(*each) for each in idle.items()])
    if summary.classes:
        yield ""
        shown = [(each.name, *_counts(each.counts), _largest(each.counts)) for each in summary.classes]
        yield from table(("CLASS", *_HEADER, "LARGEST REQUEST"), shown[:CLASSES_SHOWN_MAX])
        yield from _more(len(shown), CLASSES_SHOWN_MAX, "classes")
    if summary.groups:
        yield ""
        groups = [(each.name, each.driver, *_counts(each.counts), _amounts(each.hardware)) for each in summary.groups]
        yield from table(("NODE GROUP", "DRIVER", *_HEADER, "AVAILABLE"), groups[:GROUPS_SHOWN_MAX])
        yield from _more(len(groups), GROUPS_SHOWN_MAX, "groups")
    if summary.nodes:
        yield ""
        nodes = summary.nodes[:NODES_SHOWN_MAX]
        yield from table(
            ("MOST FREE", *_HEADER, "AVAILABLE"),
            [(each.name, *_counts(each.counts), _amounts(each.hardware.values())) for each in nodes],
        )
        yield from _more(len(summary.nodes), NODES_SHOWN_MAX, "nodes")


def _counts(counts: DeviceCounts) -> tuple[str, ...]:
    return (f"{counts.total:,}", *(f"{counts.states.get(state, 0):,}" for state in STATES))


def _largest(counts: DeviceCounts) -> str:
    amounts = sorted(counts.largest.items(), key=lambda each: (-each[1].nanos, each[0]))[:AMOUNTS_SHOWN_MAX]
    return ", ".join(f"{name} {amount}" for name, amount in amounts) or "-"


def _remarks(summary: UsageSummary) -> Iterator[str]:
    for group in summary.drivers:
        causes = [f"{count:,} by {cause.value}" for cause, count in group.counts.blocked_by.items()]
        if causes:
            yield f"{group.name}: blocked {', '.join(causes)}"
        if gone := group.counts.states.get(DeviceState.GONE, 0):
            yield f"{group.name}: claims hold {gone:,} devices that no slice publishes any more"


def _hardware_rows(group: GroupSummary) -> Iterator[tuple[str, ...]]:
    counts = group.counts
    head = (
        f"{group.driver} {group.name}".rstrip(),
        f"{counts.total:,}",
        f"{counts.states.get(DeviceState.FULL, 0):,}",
    )
    for amount in _most(group.hardware):
        unusable = group.unusable[amount.name]
        yield (
            *head,
            amount.name,
            str(amount.quantity(amount.value)),
            f"{amount.quantity(amount.used)} ({portion(amount.used, amount.value)}%)",
            str(amount.quantity(amount.available)),
            str(counts.largest.get(amount.name, "-")),
            f"{amount.quantity(unusable)} ({portion(unusable, amount.available)}%)" if amount.available else "0",
        )
    if not group.hardware:
        yield (*head, *"------")
    if (hidden := len(group.hardware) - AMOUNTS_SHOWN_MAX) > 0:
        yield (*head, f"… {hidden} more, see -o json", "", "", "", "", "")


def _most(hardware: Iterable[HardwareAmount]) -> list[HardwareAmount]:
    return sorted(hardware, key=lambda amount: (-amount.value, amount.name))[:AMOUNTS_SHOWN_MAX]


def _amounts(hardware: Iterable[HardwareAmount]) -> str:
    told = (f"{each.name} {each.quantity(each.available)} of {each.quantity(each.value)}" for each in _most(hardware))
    return ", ".join(told) or "-"


def _typical(summary: UsageSummary) -> str:
    if not summary.typical:
        return "the requests that name no amounts (there are no claims)"
    return f"the {summary.typical} typical requests of claims" if summary.typical > 1 else "the requests of claims"


def _idle_row(driver: str, idle: IdleDevices) -> tuple[str, ...]:
    amounts = (idle.idle, sum(idle.stranded.values()), *(idle.stranded.get(cause, 0) for cause in StrandedCause))
    return (driver, *(f"{amount / WHOLE:,.3g}" for amount in amounts))


def _more(count: int, shown: int, what: str) -> Iterator[str]:
    if count > shown:
        yield f"… {count - shown:,} more {what}, see -o json"


# --- For machines -------------------------------------------------------------------------------------------------------


def plain_summary(summary: UsageSummary, idle: Mapping[str, IdleDevices]) -> dict[str, Any]:
    return {
        "idleDevices": [
            {
                "driver": driver,
                "idle": each.idle / WHOLE,
                "stranded": {cause.value: each.stranded.get(cause, 0) / WHOLE for cause in StrandedCause},
            }
            for driver, each in idle.items()
        ],
        "typicalRequests": summary.typical,
        "drivers": [_plain_group(each) for each in summary.drivers],
        "hardware": [{"product": each.name or None, **_plain_group(each)} for each in summary.hardware],
        "classes": [{"name": each.name, **_plain_counts(each.counts)} for each in summary.classes],
        "nodeGroups": [{"value": each.name, **_plain_group(each)} for each in summary.groups],
        "nodes": [
            {
                "name": node.name,
                **_plain_counts(node.counts),
                "hardware": [
                    {"driver": driver, "name": name, **plain_amount(amount)}
                    for (driver, name), amount in node.hardware.items()
                ],
            }
            for node in summary.nodes
        ],
    }


def _plain_group(group: GroupSummary) -> dict[str, Any]:
    return {
        "driver": group.driver,
        **_plain_counts(group.counts),
        "hardware": {
            amount.name: {**plain_amount(amount), "unusable": str(amount.quantity(group.unusable[amount.name]))}
            for amount in group.hardware
        },
    }


def _plain_counts(counts: DeviceCounts) -> dict[str, Any]:
    return {
        "devices": counts.total,
        "states": {state.value: counts.states.get(state, 0) for state in DeviceState},
        "blockedBy": {cause.value: count for cause, count in counts.blocked_by.items()},
        "largestRequest": {name: str(amount) for name, amount in counts.largest.items()},
    }
