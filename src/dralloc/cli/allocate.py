"""`dralloc allocate`: which devices claims would get, in a cluster or in manifests. Nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from dralloc.cli.options import (
    Context,
    Files,
    Gates,
    Kubeconfig,
    Output,
    OutputFormat,
    SchedulerNames,
    StatedConfiguration,
    StatedStrategy,
)
from dralloc.cli.output import FINDINGS, fail, paint, parse_gates, say

if TYPE_CHECKING:
    from dralloc.whatif.allocations import Allocations


# The last column is shown with -o wide only.
HEADER: Final = ("CLAIM", "REQUEST", "NODE", "DEVICE", "CONSUMED", "SHARE")


def allocate(
    files: Files = None,
    pod: Annotated[
        str | None, typer.Option(help="Only the claims of this pod: NAMESPACE/NAME, or a name alone.")
    ] = None,
    claim: Annotated[str | None, typer.Option(help="Only this claim: NAMESPACE/NAME, or a name alone.")] = None,
    node: Annotated[str | None, typer.Option(help="Only on this node.")] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace", "-n", help="Only pods and claims in this namespace; also the namespace of names without one."
        ),
    ] = None,
    scheduler_name: SchedulerNames = None,
    config: StatedConfiguration = None,
    strategy: StatedStrategy = None,
    output: Output = OutputFormat.TABLE,
    feature_gates: Gates = "",
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Also show which pods would be evicted for pods that do not fit. Nothing is evicted."
        ),
    ] = False,
) -> None:
    """Show which devices claims would get, as the scheduler would decide. Exits with 1 if a claim does not fit.

    Claims that have devices keep them, and each pod takes from what is left. A pod's claims are allocated together, including
    those that are still to be made from templates; Jobs and Deployments of the files count as their pods. The node is the one that the
    scheduler would choose.

    # What would every pending pod and claim get?
    dralloc allocate -f cluster/

    # What would this pod get, and on which node, in the cluster of kubectl's
    # current context?
    dralloc allocate --pod ml/train-0

    # Which pods of lower priority would be evicted for it? (gate DRAPreemption)
    dralloc allocate --pod ml/train-0 --dry-run

    # What would these pods get in that cluster?
    dralloc allocate -f pods.yaml --context production

    # The claim as it would be stored, on one node.
    dralloc allocate -f cluster.json --claim ml/shared-gpu --node node-7 -o yaml
    """
    from dralloc.api.pod_v1 import Pod
    from dralloc.api.resource_v1 import ResourceClaim
    from dralloc.cli.cluster_source import ClusterSource, print_assumed_nodes, print_notes, unknown_names_fail
    from dralloc.cli.scheduler_configuration import stated_scheduler
    from dralloc.scheduler.settings import ONLY_SCHEDULER_NAMES
    from dralloc.whatif.allocations import allocate_claim, allocate_pod, allocate_waiting
    from dralloc.whatif.cluster_objects import PLACEMENT_USEFUL
    from dralloc.whatif.engine import Engine

    if pod is not None and claim is not None:
        fail("give --pod or --claim, not both")
    names = frozenset(scheduler_name or ONLY_SCHEDULER_NAMES)
    source = ClusterSource(
        files=files,
        kubeconfig=kubeconfig,
        context=context,
        namespace=namespace,
        stated=stated_scheduler(config, strategy),
    )
    objects = source.load(parse_gates(feature_gates), useful=PLACEMENT_USEFUL)
    print_assumed_nodes(objects)
    with unknown_names_fail():
        only_node = objects.find_node(node).metadata.name if node is not None else ""
        engine = Engine(objects, objects.now, only_node=only_node, scheduler_names=names, previews_preemption=dry_run)
        if pod is not None:
            answer = allocate_pod(engine, objects.find(Pod, "pod", pod))
        elif claim is not None:
            answer = allocate_claim(engine, objects.find(ResourceClaim, "claim", claim))
        else:
            answer = allocate_waiting(engine, namespace)
    print_notes(objects)
    _print(answer, output)
    if answer.refusals:
        raise typer.Exit(FINDINGS)


def _print(answer: Allocations, output: OutputFormat) -> None:
    from dralloc.cli.answers import answer_objects
    from dralloc.cli.object_documents import as_manifest

    if output.is_for_people:
        _print_table(answer, is_wide=output is OutputFormat.WIDE)
        return
    refusals = [(refusal.subject, refusal.message) for refusal in answer.refusals]
    answer_objects(output, [as_manifest(each.claim, "v1") for each in answer.allocated], refusals)
    for subject, message in refusals:
        say(f"{subject} {message}", err=True)


def _print_table(answer: Allocations, *, is_wide: bool) -> None:
    from dralloc.cli.allocation_rows import allocation_rows
    from dralloc.cli.tables import table

    width = None if is_wide else len(HEADER) - 1
    rows = [row[:width] for each in answer.allocated for row in allocation_rows(each.claim, each.node)]
    if rows:
        for line in table(HEADER[:width], rows):
            say(line)
    for refusal in answer.refusals:
        say(paint(f"{refusal.subject} {refusal.message}", "red"))
    if not rows and not answer.refusals:
        say("no claim waits for devices")
