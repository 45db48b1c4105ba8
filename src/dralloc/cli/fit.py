"""`dralloc fit`: how many more copies of a pod or a claim fit, where, what stops the next one, and what is stranded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dralloc.cli.name_completion import nodes_starting_with
from dralloc.cli.options import Namespace
from dralloc.cli.output import FINDINGS, fail, paint
from dralloc.cli.placement_options import PlacementOptions, takes_options

if TYPE_CHECKING:
    from dralloc.answers.cluster_objects import ClusterObjects
    from dralloc.answers.fit import FitReport, Model, StrandedDevices
    from dralloc.devices.allocator.diagnosis.reasons import ReasonGroup

BAR_WIDTH: Final = 30
ROWS_MAX: Final = 30
WITHOUT_LABEL: Final = "<none>"


@takes_options
def fit(
    options: PlacementOptions,
    file: Annotated[
        str,
        typer.Argument(
            metavar="POD.yaml|CLAIM.yaml|GANG.yaml",
            help="The pod or claim to copy, with the templates and claims that it names, or a PodGroup with its pods; "
            "or - for standard input.",
        ),
    ],
    node_group: Annotated[
        str | None, typer.Option("--node-group", metavar="LABEL", help="Group nodes by the value of this label.")
    ] = None,
    without_node: Annotated[
        list[str] | None,
        typer.Option(
            "--without-node",
            metavar="NAME",
            help="As if this node were gone. Can be given several times.",
            autocompletion=nodes_starting_with,
        ),
    ] = None,
    taint: Annotated[
        list[str] | None,
        typer.Option(
            "--taint",
            metavar="TAINT@TARGET",
            help="As if a node or devices had this taint: KEY[=VALUE]:EFFECT with @node/NAME, or with "
            "@DRIVER/POOL/DEVICE, where * stands for any pool or device.",
        ),
    ] = None,
    add: Annotated[
        list[str] | None,
        typer.Option(
            "--add",
            metavar="SHAPE=COUNT",
            help="As if there were so many more nodes of a profile (gpu, mig, nic, cpu, tpu, or a file, see dralloc record).",
        ),
    ] = None,
    copies_max: Annotated[int, typer.Option("--max", min=1, help="Stop counting here.")] = 10_000,
    namespace: Namespace = None,
) -> None:
    """Show how many more copies of a pod, a claim or a gang fit, where, and what stops the next one. Exits with 1 if none fits.

    Copies are placed one after the other, as the scheduler would place them, until one is rejected. Each copy of a pod gets its own
    claims from templates; a claim that the pod names is shared by all copies. Pods that wait already and have at least the same priority
    are placed first. Running pods stay where they are, also with --without-node and --taint; see dralloc drain for those.

    The last table shows what is stranded: devices that suit the pod or claim and have an amount available which no copy can use.

    # How many more of these pods fit in the cluster of kubectl's current context?
    dralloc fit pods.yaml

    # How many more gangs like this one: a PodGroup with its pods?
    dralloc fit gang.yaml

    # By kind of node, from saved objects.
    dralloc fit pods.yaml -f cluster.json --node-group pool

    # Without a node? And with all GPUs of a node out of service?
    dralloc fit claim.yaml --without-node node-7
    dralloc fit claim.yaml --taint 'bad:NoSchedule@gpu.example.com/node-8/*'

    # With four more nodes.
    dralloc fit pods.yaml --add gpu=4
    """
    from dralloc.answers import fit as whatif
    from dralloc.answers.cluster_objects import PLACEMENT_USEFUL
    from dralloc.answers.engine import Engine
    from dralloc.answers.planner import BadShape
    from dralloc.answers.scenario import BadTarget, Scenario
    from dralloc.cli.answers import answer
    from dralloc.cli.cluster_source import print_assumed_nodes, print_notes, unknown_names_fail

    try:
        scenario = Scenario.parse(without_node or (), taint or (), add or ())
    except BadTarget as error:
        fail(f"--taint {error}")
    except BadShape as error:
        fail(f"--add {error}")
    objects = options.source(namespace).load(options.gates(), useful=PLACEMENT_USEFUL)
    print_assumed_nodes(objects)
    model = _model(objects, file)
    with unknown_names_fail():
        nodes = scenario.apply(objects)
    engine = Engine(objects, objects.now, nodes=nodes, scheduler_names=options.scheduler_names)
    report = whatif.fit(engine, model, copies_max)
    print_notes(objects)
    rows = _rows(report, {node.metadata.name: node.metadata.labels for node in nodes}, node_group)
    answer(
        options.output,
        lambda: _values(report, rows, node_group),
        lambda: _lines(report, rows, node_group, is_wide=options.is_wide),
    )
    if not report.count:
        raise typer.Exit(FINDINGS)


def _model(objects: ClusterObjects, file: str) -> Model:
    from dralloc.answers.cluster_objects import ClusterObjects
    from dralloc.answers.fit import take_model
    from dralloc.answers.manifest_cluster import UnusableManifest, add_manifests
    from dralloc.cli.manifest_records import read_records

    given = ClusterObjects(objects.gates, place=file, namespace=objects.namespace)
    try:
        add_manifests(given, read_records([file]))
        return take_model(given, objects)
    except UnusableManifest as error:
        fail(str(error))


@dataclass(frozen=True, slots=True)
class _Row:
    """Some nodes, how many copies fit on each, and why they take no more."""

    name: str
    nodes: Mapping[str, int]
    reasons: tuple[ReasonGroup, ...] = ()

    @property
    def count(self) -> int:
        return sum(self.nodes.values())


def _rows(report: FitReport, labels: Mapping[str, Mapping[str, str]], label: str | None) -> list[_Row]:
    """Groups of nodes by the value of a label, or every node by itself; those with the most copies first."""
    from dralloc.devices.allocator.diagnosis.reasons import grouped

    members: dict[str, dict[str, int]] = {}
    for node, count in report.by_node.items():
        name = node if label is None else labels[node].get(label, WITHOUT_LABEL)
        members.setdefault(name, {})[node] = count
    rows = [
        _Row(name, nodes, grouped((node, report.reasons[node]) for node in nodes if node in report.reasons))
        for name, nodes in members.items()
    ]
    return sorted(rows, key=lambda row: (-row.count, row.name))


def _subject(report: FitReport) -> str:
    from dralloc.kube.pod_v1 import Pod

    metadata = report.model.metadata
    noun = "gang" if report.gangs is not None else "pod" if isinstance(report.model, Pod) else "claim"
    return f"{noun} {metadata.namespace}/{metadata.name}"


# --- Text -----------------------------------------------------------------------------------------------------------------


def _lines(report: FitReport, rows: list[_Row], label: str | None, *, is_wide: bool) -> Iterator[str]:
    at_least = f"at least {report.count:,}" if report.is_limited else f"{report.count:,}"
    more = f"{at_least} more fit" if report.count != 1 or report.is_limited else "1 more fits"
    yield paint(f"{_subject(report)}: {more}", "green" if report.count else "red")
    if report.is_limited:
        yield f"the count stopped at its limit; --max {10 * report.count} counts further"
    if report.placed_first:
        yield f"after {report.placed_first} pods that wait already"
    if rows:
        yield ""
        yield from _picture(rows, label, is_wide=is_wide, counted="MORE" if report.gangs is None else "PODS")
    if report.message:
        yield from ("", "The next one does not fit:")
        groups = report.groups
        yield from (f"  {group}" for group in groups) if groups else (f"  {report.message}",)
    if report.stranded:
        yield from ("", "Available, but of no use for this:")
        yield from _stranded_lines(report.stranded)


def _picture(rows: list[_Row], label: str | None, *, is_wide: bool, counted: str) -> Iterator[str]:
    from dralloc.cli.tables import table

    used = [row for row in rows if row.count]
    shown = rows if is_wide or label is not None else used[:ROWS_MAX]
    largest = max((row.count for row in rows), default=0)
    cells = [_cells(row, largest, label) for row in shown]
    if (hidden := len(used) - len(shown)) > 0:
        count = sum(row.count for row in used[ROWS_MAX:])
        cells.append(_cells(_Row(f"({hidden} more nodes; see -o wide)", {"": count}), count, label))
    unused = len(rows) - len(used)
    if label is None and not is_wide and unused:
        other, noun = "other " if used else "", "node" if unused == 1 else "nodes"
        cells.append(_cells(_Row(f"({unused} {other}{noun})", {"": 0}), largest, label))
    header = ("NODE", counted, "") if label is None else (label, "NODES", counted, "", "THEN")
    yield from table(header, cells)


def _cells(row: _Row, largest: int, label: str | None) -> tuple[str, ...]:
    bar = "█" * -(-row.count * BAR_WIDTH // largest) if row.count else ""
    if label is None:
        return row.name, f"{row.count:,}", bar
    then = "; ".join(map(str, row.reasons))
    return row.name, str(len(row.nodes)), f"{row.count:,}", bar, then


def _stranded_lines(stranded: tuple[StrandedDevices, ...]) -> Iterator[str]:
    from dralloc.cli.tables import table

    rows = [
        (
            str(len(each.devices)),
            str(len(each.nodes)),
            ", ".join(f"{name}={amount}" for name, amount in each.free.items()) or "-",
            each.message,
        )
        for each in stranded
    ]
    yield from table(("DEVICES", "NODES", "AVAILABLE", "BECAUSE"), rows)


# --- JSON and YAML --------------------------------------------------------------------------------------------------------


def _values(report: FitReport, rows: list[_Row], label: str | None) -> dict[str, Any]:
    return {
        "subject": _subject(report),
        "count": report.count,
        **({"pods": report.pods} if report.gangs is not None else {}),
        "isLimited": report.is_limited,
        "waitingPodsPlacedFirst": report.placed_first,
        "groups": [
            {**({label: row.name} if label is not None else {}), "count": row.count, "nodes": dict(row.nodes)}
            for row in rows
        ]
        if label is not None
        else [{"node": row.name, "count": row.count} for row in rows],
        "rejection": {
            "message": report.message,
            "isError": report.is_error,
            "reasons": [
                {"cause": group.reason.cause.value, "message": str(group.reason), "nodes": list(group.nodes)}
                for group in report.groups
            ],
        }
        if report.message
        else None,
        "stranded": [
            {
                "cause": each.reason.cause.value,
                "message": each.message,
                "devices": list(map(str, each.devices)),
                "nodes": list(each.nodes),
                "free": {name: str(amount) for name, amount in each.free.items()},
            }
            for each in report.stranded
        ],
    }
