"""`dralloc plan`: how many nodes of a shape pending pods would need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dralloc.cli.name_completion import namespaces_starting_with
from dralloc.cli.options import PreviewPreemption, profiles_starting_with
from dralloc.cli.output import FINDINGS, fail
from dralloc.cli.placement_options import PlacementOptions, takes_options

if TYPE_CHECKING:
    from dralloc.answers.placements import PodPlacement
    from dralloc.answers.planner import GrowthPlan


@takes_options
def plan(
    options: PlacementOptions,
    shape: Annotated[
        list[str],
        typer.Option(
            help="A profile of nodes (gpu, mig, nic, cpu, tpu, or a file, see dralloc record), with =COUNT for the "
            "maximum number of nodes. Each shape is tried separately.",
            autocompletion=profiles_starting_with,
        ),
    ],
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", help="Only pods in this namespace.", autocompletion=namespaces_starting_with),
    ] = None,
    dry_run: PreviewPreemption = False,
) -> None:
    """Show how many new nodes of a shape pending pods need. Exits with 1 if no shape has room for all of them.

    Pods are placed as the scheduler would place them, on existing nodes first, with its preference for nodes on which earlier
    alternatives fit. A pod that does not fit gets a new node of the shape, until all pods are placed or the nodes are used up. The pods
    are certain to fit on these nodes; a scheduler that starts with all of the nodes may spread pods differently and need more.

    # Two kinds of machines to choose from, for pods that do not exist yet.
    dralloc plan -f pods.yaml --shape gpu --shape mig=4

    # What would help the pending pods in my cluster? -o wide shows the devices
    # of each pod.
    dralloc plan --shape gpu --context production
    dralloc plan --shape gpu --context production -o wide

    # A shape recorded from one of your clusters.
    dralloc record --labels pool=a100 -o a100.yaml
    dralloc plan -f pods.yaml --shape a100.yaml=10
    """
    from dralloc.answers.cluster_objects import PLACEMENT_NEEDED, PLACEMENT_USEFUL
    from dralloc.answers.engine import Engine, pods_by_priority
    from dralloc.answers.planner import BadShape, CandidateShape, add_classes, plan_pods
    from dralloc.cli.answers import answer
    from dralloc.cli.progress import progress
    from dralloc.kube.core_v1 import Node
    from dralloc.kube.pod_v1 import Pod

    try:
        shapes = [CandidateShape.parse(text) for text in shape]
    except BadShape as error:
        fail(f"--shape {error}")
    objects = options.source(namespace).load(options.gates(), needed={*PLACEMENT_NEEDED, Pod}, useful=PLACEMENT_USEFUL)
    add_classes(objects, shapes)
    pods = [pod for pod in pods_by_priority(objects, namespace) if not pod.spec.node_name]
    if not pods:
        fail(f"no pod waits for a node in {objects.place}")
    # Without Node objects there are no existing nodes; none are assumed.
    nodes = objects.all(Node).values()
    plans = [
        plan_pods(
            Engine(
                objects, objects.now, nodes=nodes, scheduler_names=options.scheduler_names, previews_preemption=dry_run
            ),
            pods,
            each,
            objects.now,
        )
        for each in progress(shapes, total=len(shapes), what="planning")
    ]
    is_wide = options.is_wide
    answer(
        options.output, lambda: {"shapes": [_values(each) for each in plans]}, lambda: _lines(plans, is_wide=is_wide)
    )
    if all(each.unplaced for each in plans):
        raise typer.Exit(FINDINGS)


# --- Text -----------------------------------------------------------------------------------------------------------------


def _lines(plans: list[GrowthPlan], *, is_wide: bool) -> Iterator[str]:
    from dralloc.cli.tables import table

    yield from table(("SHAPE", "NEW NODES", "PODS", "FIRST CHOICE", "SCORE"), list(map(_row, plans)))
    for each in plans:
        if is_wide and each.placements:
            rows = [row for placement in each.placements for row in _pod_rows(placement)]
            yield from ("", f"{each.shape.name}:", *table(("POD", "NODE", "REQUEST", "DEVICE", "CONSUMED"), rows))
        yield from _unplaced_lines(each)


def _row(plan: GrowthPlan) -> tuple[str, ...]:
    placed, preference = len(plan.placements), plan.preference
    return (
        plan.shape.name,
        str(len(plan.nodes)),
        f"{placed} of {placed + len(plan.unplaced)}",
        f"{preference.first} of {preference.requests}" if preference.requests else "-",
        str(preference.score) if preference.requests else "-",
    )


def _pod_rows(placement: PodPlacement) -> Iterator[tuple[str, ...]]:
    from dralloc.cli.tables import allocation_rows

    rows = [row[1:5] for claim in placement.claims for row in allocation_rows(claim, placement.node)]
    for request, node, device, consumed in rows or [("-", placement.node, "-", "-")]:
        yield _name(placement.pod), node, request, device, consumed


def _unplaced_lines(plan: GrowthPlan) -> Iterator[str]:
    """Pods with the same reason share a line."""
    by_message: dict[tuple[str, bool], list[str]] = {}
    for unplaced in plan.unplaced:
        by_message.setdefault((unplaced.message, unplaced.is_error), []).append(_name(unplaced.pod))
    for (message, is_error), names in by_message.items():
        pods = f"pod {names[0]}" if len(names) == 1 else f"{len(names)} pods ({names[0]}, …)"
        verb = "cannot be placed" if is_error else "does not fit" if len(names) == 1 else "do not fit"
        yield f"\n{plan.shape.name}: {pods} {verb}: {message}"


def _name(pod: Any) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


# --- JSON and YAML --------------------------------------------------------------------------------------------------------


def _values(plan: GrowthPlan) -> dict[str, Any]:
    from dralloc.answers.planner import preference_of
    from dralloc.devices.identity import ClaimId

    preference = plan.preference
    return {
        "shape": plan.shape.name,
        "newNodes": list(plan.nodes),
        "preference": {
            "requests": preference.requests,
            "firstChoice": preference.first,
            "score": preference.score,
        },
        "placements": [
            {
                "pod": _name(placement.pod),
                "node": placement.node,
                "score": preference_of(placement).score,
                "devices": [
                    {
                        "claim": str(ClaimId.of(claim)),
                        "request": result.request,
                        "driver": result.driver,
                        "pool": result.pool,
                        "device": result.device,
                        "consumedCapacity": {name: str(each) for name, each in result.consumed_capacity.items()},
                    }
                    for claim in placement.claims
                    for result in (claim.status.allocation.devices.results if claim.status.allocation else ())
                ],
            }
            for placement in plan.placements
        ],
        "refusals": [{"pod": _name(unplaced.pod), "message": unplaced.message} for unplaced in plan.unplaced],
    }
