"""`dralloc drain`: what the drain of a node or of devices would do. Nothing is evicted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dralloc.cli.name_completion import device_ids_starting_with, nodes_starting_with
from dralloc.cli.output import FINDINGS, fail, paint
from dralloc.cli.placement_options import PlacementOptions, takes_options

if TYPE_CHECKING:
    from datetime import datetime

    from dralloc.answers.drain import BlastRadius, DrainedPod
    from dralloc.cli.manifest_records import Source
    from dralloc.kube.resource_v1 import DeviceTaintRule

RULE_FILE_SIZE_MAX: Final = 1 << 20
# The taint that --device assumes.
DRAIN_KEY: Final = "dralloc.io/drain"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainOptions(PlacementOptions):
    files: Annotated[
        list[str] | None,
        typer.Option(
            "--filename",
            "-f",
            help="Without NODE and --device: the DeviceTaintRules to try, in files that have nothing else. All other files are the "
            "cluster, as in other commands; without them the cluster is read.",
        ),
    ] = None


@takes_options
def drain(
    options: DrainOptions,
    node: Annotated[
        str | None,
        typer.Argument(metavar="NODE", help="The node to drain.", autocompletion=nodes_starting_with),
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(
            "--device",
            metavar="DRIVER/POOL/DEVICE",
            help="Drain these devices, as with a NoExecute taint; * stands for any pool or device.",
            autocompletion=device_ids_starting_with,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Required: say what would happen. Nothing else is implemented.")
    ] = False,
) -> None:
    """Show which pods a drain would evict, and which of them would find another place. Exits with 1 if not all of them do.

    The drain of a node evicts all its pods, except mirror pods and the pods of DaemonSets, as kubectl drain does.
    PodDisruptionBudgets are not considered. The drain of devices, or a DeviceTaintRule, evicts the pods that the taint eviction
    controller would evict, each when its tolerations end. Evicted pods that have a controller are created again and placed as the
    scheduler would place them, in the order of its queue, after pods of the same priority that wait already. Pods without a
    controller are lost.

    # What happens if I drain this node?
    dralloc drain node-7 --dry-run

    # The same without access to the cluster, from saved objects.
    dralloc drain node-9 --dry-run -f cluster.json

    # If one GPU of a node must be replaced? And all of them?
    dralloc drain --device gpu.example.com/node-7/gpu-0 --dry-run
    dralloc drain --device 'gpu.example.com/node-7/*' --dry-run

    # What would this DeviceTaintRule do, in the cluster, and in saved objects?
    dralloc drain -f taintrule.yaml --dry-run
    dralloc drain -f taintrule.yaml -f cluster.json --dry-run -o json
    """
    from dralloc.answers.cluster_objects import PLACEMENT_NEEDED, PLACEMENT_USEFUL
    from dralloc.answers.drain import drain_devices, drain_node
    from dralloc.cli.answers import answer
    from dralloc.cli.cluster_source import print_notes, unknown_names_fail
    from dralloc.kube.pod_v1 import Pod

    if not dry_run:
        fail("drain only says what would happen, and evicts nothing: add --dry-run; kubectl drain NODE drains a node")
    if node is not None and device:
        fail("give a node or --device, not both")
    rules = _rules_for_devices(device or [])
    if node is None and not device:
        rules, files = _split(options.files or [])
        if not rules:
            fail("give a node, --device, or -f with a file that has DeviceTaintRules and nothing else")
        options = replace(options, files=files)
    objects = options.source().load(options.gates(), needed=PLACEMENT_NEEDED | {Pod}, useful=PLACEMENT_USEFUL)
    with unknown_names_fail():
        names = options.scheduler_names
        radius = drain_node(objects, node, names) if node is not None else drain_devices(objects, rules, names)
    if device and not radius.devices and not radius.pods:
        fail(f"no device {', '.join(device)} in {objects.place}", FINDINGS)
    print_notes(objects)
    what = f"node {node}" if node is not None else f"{len(radius.devices)} {_plural(len(radius.devices), 'device')}"
    answer(options.output, lambda: _values(what, radius), lambda: _lines(what, radius, objects.now))
    if not radius.is_harmless:
        raise typer.Exit(FINDINGS)


def _rules_for_devices(devices: list[str]) -> list[DeviceTaintRule]:
    from dralloc.answers.scenario import BadTarget, read_devices, taint_rule
    from dralloc.kube.resource_v1 import NO_EXECUTE, DeviceTaint

    taint = DeviceTaint(key=DRAIN_KEY, effect=NO_EXECUTE)
    try:
        return [taint_rule(f"drain-{number}", taint, read_devices(text)) for number, text in enumerate(devices)]
    except BadTarget as error:
        fail(f"--device {error}")


def _split(files: list[str]) -> tuple[list[DeviceTaintRule], list[str] | None]:
    """The rules to try, and the files of the cluster."""
    from dralloc.cli.manifest_records import readable_sources

    rules: list[DeviceTaintRule] = []
    others: list[str] = []
    for source in readable_sources(files):
        found = _rules_of(source)
        rules += found
        if not found and source.name == "<stdin>":
            fail("standard input: expected DeviceTaintRules and nothing else")
        if not found:
            others.append(source.name)
    return rules, others or None


def _rules_of(source: Source) -> list[DeviceTaintRule]:
    """The rules of a file that has nothing else; none of any other file."""
    from dralloc.answers.cluster_objects import ClusterObjects
    from dralloc.answers.manifest_cluster import UnusableManifest, add_manifests
    from dralloc.cli.manifest_records import records_of
    from dralloc.kube.resource_v1 import DeviceTaintRule
    from dralloc.primitives.features import FeatureGates

    if len(source.content) > RULE_FILE_SIZE_MAX:
        return []
    records = records_of([source])
    if any(record.kind != "DeviceTaintRule" for record in records):
        return []
    read = ClusterObjects(FeatureGates.defaults())
    try:
        add_manifests(read, records)
    except UnusableManifest as error:
        fail(str(error))
    return list(read.all(DeviceTaintRule).values())


# --- Text -----------------------------------------------------------------------------------------------------------------


def _lines(what: str, radius: BlastRadius, now: datetime) -> Iterator[str]:
    from dralloc.answers.drain import DrainResult
    from dralloc.cli.tables import table

    evicted = radius.count(DrainResult.PLACED, DrainResult.UNPLACED, DrainResult.LOST)
    told = [
        f"{count} {text}"
        for result, text in (
            (DrainResult.PLACED, "placed elsewhere"),
            (DrainResult.UNPLACED, "without a place"),
            (DrainResult.LOST, "lost"),
        )
        if (count := radius.count(result))
    ]
    summary = f"{evicted} {_plural(evicted, 'pod')} evicted{': ' if told else ''}{', '.join(told)}"
    yield paint(f"drain of {what}: {summary}", "green" if radius.is_harmless else "red")
    if radius.pods:
        rows = [_row(each, now) for each in radius.pods]
        yield from ("", *table(("POD", "EVICTED", "THEN", "NODE", "REASON"), rows))


def _row(each: DrainedPod, now: datetime) -> tuple[str, ...]:
    from dralloc.answers.drain import DrainResult

    metadata, at = each.evicted.pod.metadata, each.evicted.at
    when = "now" if at is None or at <= now else f"in {(at - now).total_seconds():.0f}s"
    if each.result in (DrainResult.STAYS, DrainResult.TERMINATING):
        when = "no"
    name = f"{metadata.namespace}/{metadata.name}"
    return name, when, each.result.value.lower(), each.node or "-", each.message or "-"


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"


# --- JSON and YAML --------------------------------------------------------------------------------------------------------


def _values(what: str, radius: BlastRadius) -> dict[str, Any]:
    from dralloc.kube.timestamps import print_timestamp

    return {
        "drain": what,
        "devices": list(map(str, radius.devices)),
        "everyPodFindsAPlace": radius.is_harmless,
        "pods": [
            {
                "pod": f"{each.evicted.pod.metadata.namespace}/{each.evicted.pod.metadata.name}",
                "result": each.result.value,
                "node": each.node,
                "message": each.message,
                "from": each.evicted.pod.spec.node_name,
                "evictedAt": print_timestamp(each.evicted.at) if each.evicted.at is not None else None,
                "rules": sorted(each.evicted.rules),
            }
            for each in radius.pods
        ],
    }
