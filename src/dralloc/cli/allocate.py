"""`dralloc allocate`: which devices claims would get, in a cluster or in manifests. Nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from dralloc.cli.name_completion import claims_starting_with, namespaces_starting_with, pods_starting_with
from dralloc.cli.options import OnlyNode, PreviewPreemption
from dralloc.cli.output import FINDINGS, fail, paint, say
from dralloc.cli.placement_options import PlacementOptions, takes_options

if TYPE_CHECKING:
    from dralloc.answers.allocations import Allocations


# The last column is shown with -o wide only.
HEADER: Final = ("CLAIM", "REQUEST", "NODE", "DEVICE", "CONSUMED", "SHARE")


@takes_options
def allocate(
    options: PlacementOptions,
    pod: Annotated[
        str | None,
        typer.Option(
            help="Only the claims of this pod: NAMESPACE/NAME, or a name alone.", autocompletion=pods_starting_with
        ),
    ] = None,
    claim: Annotated[
        str | None,
        typer.Option(help="Only this claim: NAMESPACE/NAME, or a name alone.", autocompletion=claims_starting_with),
    ] = None,
    node: OnlyNode = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            help="Only pods and claims in this namespace; also the namespace of names without one.",
            autocompletion=namespaces_starting_with,
        ),
    ] = None,
    dry_run: PreviewPreemption = False,
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
    from dralloc.answers.allocations import allocate_claim, allocate_pod, allocate_waiting
    from dralloc.answers.cluster_objects import PLACEMENT_USEFUL
    from dralloc.answers.engine import Engine
    from dralloc.cli.cluster_source import print_assumed_nodes, print_notes, unknown_names_fail
    from dralloc.kube.pod_v1 import Pod
    from dralloc.kube.resource_v1 import ResourceClaim

    if pod is not None and claim is not None:
        fail("give --pod or --claim, not both")
    objects = options.source(namespace).load(options.gates(), useful=PLACEMENT_USEFUL)
    print_assumed_nodes(objects)
    with unknown_names_fail():
        only_node = objects.find_node(node).metadata.name if node is not None else ""
        engine = Engine(
            objects,
            objects.now,
            only_node=only_node,
            scheduler_names=options.scheduler_names,
            previews_preemption=dry_run,
        )
        if pod is not None:
            answer = allocate_pod(engine, objects.find(Pod, "pod", pod))
        elif claim is not None:
            answer = allocate_claim(engine, objects.find(ResourceClaim, "claim", claim))
        else:
            answer = allocate_waiting(engine, namespace)
    print_notes(objects)
    _print(answer, options)
    if answer.refusals:
        raise typer.Exit(FINDINGS)


def _print(answer: Allocations, options: PlacementOptions) -> None:
    from dralloc.cli.answers import answer_objects
    from dralloc.cli.object_documents import as_manifest

    if options.output.is_for_people:
        _print_table(answer, is_wide=options.is_wide)
        return
    refusals = [(refusal.subject, refusal.message) for refusal in answer.refusals]
    answer_objects(options.output, [as_manifest(each.claim, "v1") for each in answer.allocated], refusals)
    for subject, message in refusals:
        say(f"{subject} {message}", err=True)


def _print_table(answer: Allocations, *, is_wide: bool) -> None:
    from dralloc.cli.tables import allocation_rows, table

    width = None if is_wide else len(HEADER) - 1
    rows = [row[:width] for each in answer.allocated for row in allocation_rows(each.claim, each.node)]
    if rows:
        for line in table(HEADER[:width], rows):
            say(line)
    for refusal in answer.refusals:
        say(paint(f"{refusal.subject} {refusal.message}", "red"))
    if not rows and not answer.refusals:
        say("no claim waits for devices")
