"""`dralloc plan`: which pods would fit on nodes that do not exist yet, and on how many."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dralloc.cli.options import Context, Files, Gates, Kubeconfig, Output, OutputFormat, profiles_starting_with
from dralloc.cli.output import FINDINGS, fail, parse_gates

if TYPE_CHECKING:
    from dralloc.api.resource_v1 import ResourceClaim
    from dralloc.cli.planning import Shape
    from dralloc.scheduler.state.cluster_state import ClusterState
    from dralloc.whatif.planner import Plan, PlannedPlacement, Preference


def plan(
    shape: Annotated[
        list[str],
        typer.Option(
            help="Nodes after a profile: gpu, mig, nic, cpu, tpu, or a file (see dralloc record), and =COUNT for the "
            "most that may come. Each shape that is given is tried by itself.",
            autocompletion=profiles_starting_with,
        ),
    ],
    files: Files = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", help="Only pods of this namespace; names without one are in it."),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = OutputFormat.TABLE,
    feature_gates: Gates = "",
) -> None:
    """Say which pending pods would fit on how many new nodes of a shape. Exits with 1 if no shape has room for all.

    Pods are placed as the scheduler would place them, on the nodes that are there first, with the same preference for nodes on which
    earlier alternatives fit. Whoever finds no place gets a new node of the shape, until the pods or the nodes are used up. That the pods
    fit on these nodes is certain; a scheduler that finds all the nodes there at once may spread them otherwise, and then need more.

    # Two kinds of machines to choose from, for pods that are not created yet.
    dralloc plan -f pods.yaml --shape gpu --shape mig=4

    # What would help the pods that wait in my cluster? Which pod would get what:
    # -o wide.
    dralloc plan --shape gpu --context production
    dralloc plan --shape gpu --context production -o wide

    # A shape of your own, as one of your clusters has it.
    dralloc record --labels pool=a100 -o a100.yaml
    dralloc plan -f pods.yaml --shape a100.yaml=10
    """
    from datetime import UTC, datetime

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
    from dralloc.cli.planning import add_classes, pending_pods, plan_with, read_shape
    from dralloc.cli.progress import progress
    from dralloc.cli.world import Origin, load_world

    shapes = [read_shape(text) for text in shape]
    origin = Origin(files=files, kubeconfig=kubeconfig, context=context, namespace=namespace)
    needed: set[type[ApiObject]] = {Pod, ResourceClaim, ResourceSlice, DeviceClass}
    useful: set[type[ApiObject]] = {Node, ResourceClaimTemplate, DeviceTaintRule}
    world = load_world(origin, parse_gates(feature_gates), needed=needed, useful=useful)
    add_classes(world, shapes)
    pods = list(pending_pods(world, namespace))
    if not pods:
        fail(f"no pod waits for a node in {world.place}")
    now = datetime.now(UTC)
    tried = [
        Trial(each, *plan_with(world, pods, each, now)) for each in progress(shapes, total=len(shapes), what="planning")
    ]
    is_wide = output is OutputFormat.WIDE
    answer(output, lambda: {"shapes": [_values(trial) for trial in tried]}, lambda: _lines(tried, is_wide=is_wide))
    if all(trial.plan.refusals for trial in tried):
        raise typer.Exit(FINDINGS)


@dataclass(frozen=True, slots=True)
class Trial:
    """A shape, and what became of the pods with it; the cluster has their claims."""

    shape: Shape
    plan: Plan
    cluster: ClusterState

    @property
    def preference(self) -> Preference:
        from dralloc.whatif.planner import Preference

        return sum(map(self.preference_of, self.plan.placements), Preference())

    def preference_of(self, placement: PlannedPlacement) -> Preference:
        from dralloc.whatif.planner import Preference, preference

        found = Preference()
        for claim_id in placement.new:
            claim = self.cluster.find_claim(claim_id)
            assert claim is not None, "it was allocated"
            found += preference(claim, placement.allocations[claim_id])
        return found

    def claims_of(self, placement: PlannedPlacement) -> Iterator[ResourceClaim]:
        for claim_id in placement.allocations:
            claim = self.cluster.find_claim(claim_id)
            assert claim is not None, "the pod was placed with it"
            yield claim


# --- For people -----------------------------------------------------------------------------------------------------------


def _lines(tried: list[Trial], *, is_wide: bool) -> Iterator[str]:
    from dralloc.cli.tables import table

    yield from table(("SHAPE", "NEW NODES", "PODS", "FIRST CHOICE", "SCORE"), [_row(trial) for trial in tried])
    for trial in tried:
        if is_wide and trial.plan.placements:
            rows = [row for placement in trial.plan.placements for row in _pod_rows(trial, placement)]
            yield from ("", f"{trial.shape.name}:", *table(("POD", "NODE", "REQUEST", "DEVICE", "CONSUMED"), rows))
        yield from _refusal_lines(trial)


def _row(trial: Trial) -> tuple[str, ...]:
    placed, refused, preference = len(trial.plan.placements), len(trial.plan.refusals), trial.preference
    return (
        trial.shape.name,
        str(len(trial.plan.nodes)),
        f"{placed} of {placed + refused}",
        f"{preference.first} of {preference.requests}" if preference.requests else "-",
        str(preference.score) if preference.requests else "-",
    )


def _pod_rows(trial: Trial, placement: PlannedPlacement) -> Iterator[tuple[str, ...]]:
    from dralloc.cli.serving import Given

    subject = _name(placement.pod)
    rows = [row[1:5] for claim in trial.claims_of(placement) for row in Given(claim, placement.node).rows()]
    for request, node, device, consumed in rows or [("-", placement.node, "-", "-")]:
        yield subject, node, request, device, consumed


def _refusal_lines(trial: Trial) -> Iterator[str]:
    """Pods that are refused for the same reason, together."""
    by_message: dict[str, list[str]] = {}
    for refusal in trial.plan.refusals:
        by_message.setdefault(refusal.message, []).append(_name(refusal.pod))
    for message, names in by_message.items():
        who = f"pod {names[0]}" if len(names) == 1 else f"{len(names)} pods ({names[0]}, …)"
        yield f"\n{trial.shape.name}: no place for {who}: {message}"


def _name(pod: Any) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


# --- For machines -----------------------------------------------------------------------------------------------------------


def _values(trial: Trial) -> dict[str, Any]:
    preference = trial.preference
    return {
        "shape": trial.shape.name,
        "newNodes": list(trial.plan.nodes),
        "preference": {
            "requests": preference.requests,
            "firstChoice": preference.first,
            "score": preference.score,
        },
        "placements": [
            {
                "pod": _name(placement.pod),
                "node": placement.node,
                "score": trial.preference_of(placement).score,
                "devices": [
                    {
                        "claim": str(claim_id),
                        "request": result.request,
                        "driver": result.driver,
                        "pool": result.pool,
                        "device": result.device,
                        "consumedCapacity": {name: str(each) for name, each in result.consumed_capacity.items()},
                    }
                    for claim_id, allocation in placement.allocations.items()
                    for result in allocation.devices.results
                ],
            }
            for placement in trial.plan.placements
        ],
        "refusals": [{"pod": _name(refusal.pod), "message": refusal.message} for refusal in trial.plan.refusals],
    }
