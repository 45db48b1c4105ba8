"""`dralloc defrag`: the fewest moves that make room for pods, or that free whole devices; with --apply, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dralloc.cli.name_completion import pods_starting_with
from dralloc.cli.options import Namespace
from dralloc.cli.output import FINDINGS, fail, paint, say
from dralloc.cli.placement_options import PlacementOptions, takes_options

if TYPE_CHECKING:
    from dralloc.answers.cluster_objects import ClusterObjects
    from dralloc.answers.defrag import DefragPlan, DefragQuestion
    from dralloc.answers.movable_pods import PlaceHolds
    from dralloc.answers.move_search import PlannedMove
    from dralloc.cli.cluster_source import ClusterSource
    from dralloc.kube.pod_v1 import Pod


@takes_options
def defrag(
    options: PlacementOptions,
    make_room_for: Annotated[
        list[str] | None,
        typer.Option(
            "--for",
            metavar="FILE|POD",
            help="Make room for the pods of a file, or for a pod that waits ([NAMESPACE/]NAME); all of them together.",
            autocompletion=pods_starting_with,
        ),
    ] = None,
    moves_max: Annotated[int, typer.Option("--moves-max", min=0, help="Move at most so many pods.")] = 5,
    decisions_max: Annotated[
        int,
        typer.Option(
            "--decisions-max", min=1, help="End the search after so many decisions; about 1,000 take a second."
        ),
    ] = 10_000,
    bare_pods: Annotated[
        bool, typer.Option("--bare-pods", help="Also move pods without a controller; --apply creates them again.")
    ] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Make the moves, with a new check before each.")] = False,
    release: Annotated[
        bool, typer.Option("--release", help="Only end the holds that an --apply which was killed has left.")
    ] = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=1, help="With --apply: for each move.")] = 300,
    namespace: Namespace = None,
) -> None:
    """Show the fewest pods to move so that others fit, or so that most whole devices become free. Exits with 1 if there is no plan.

    A move is an eviction: the pod's controller creates it again, and the scheduler places it. The plan proves a new place for every pod, in
    its order, with the scheduler's own decisions. Until the moves are done, nodes or devices are held: a NoSchedule taint
    dralloc.io/defrag keeps the evicted pods, and all others, from the place that is being made.

    Not moved are pods that would be lost, whose PodDisruptionBudget allows no eviction, of a higher priority than the pods that need room,
    of DaemonSets, of groups that run together (a member alone could not come back), of other schedulers, or with claims that cannot move: shared with a pod that stays, of devices that are not part of
    one node, with admin access. Pods that share claims move together. -o wide says who stays, and why.

    # What has to move so that the pod fits, or all pods of the file?
    dralloc defrag --for pods.yaml

    # Free as many whole devices as three moves can, from a dump.
    dralloc defrag --moves-max 3 -f cluster.json

    # Make room for a pod that waits, move by move.
    dralloc defrag --for default/big --apply
    """
    from dralloc.answers.defrag import DefragQuestion, plan_defrag
    from dralloc.cli.answers import answer
    from dralloc.cli.cluster_source import print_notes

    source = options.source(namespace)
    if (apply or release) and options.files:
        fail("--apply and --release change a cluster: they cannot be combined with -f")
    if release:
        _release(options, source)
        return
    objects = _load(options, source)
    targets = _targets(objects, make_room_for or [])
    question = DefragQuestion(
        targets=targets,
        moves_max=moves_max,
        bare_pods=bare_pods,
        scheduler_names=options.scheduler_names,
        decisions_max=decisions_max,
    )
    plan = plan_defrag(objects, question)
    print_notes(objects)
    is_wide = options.is_wide
    answer(options.output, lambda: _values(question, plan), lambda: _lines(question, plan, is_wide=is_wide))
    if plan.message or (not targets and not plan.moves):
        raise typer.Exit(FINDINGS)
    if apply and plan.moves:
        _apply(options, question, timeout, objects)


def _load(options: PlacementOptions, source: ClusterSource) -> ClusterObjects:
    from dralloc.answers.cluster_objects import PLACEMENT_NEEDED, PLACEMENT_USEFUL
    from dralloc.cli.cluster_source import print_assumed_nodes
    from dralloc.kube.pod_v1 import Pod
    from dralloc.kube.policy_v1 import PodDisruptionBudget

    useful = PLACEMENT_USEFUL | {PodDisruptionBudget}
    objects = source.load(options.gates(), needed={*PLACEMENT_NEEDED, Pod}, useful=useful)
    print_assumed_nodes(objects)
    return objects


def _targets(objects: ClusterObjects, given: list[str]) -> list[Pod]:
    from dralloc.cli.cluster_source import unknown_names_fail
    from dralloc.kube.pod_v1 import Pod

    targets: list[Pod] = []
    for text in given:
        if text == "-" or Path(text).exists() or text.endswith((".yaml", ".yml", ".json")):
            targets += _pods_of_file(objects, text)
        else:
            with unknown_names_fail():
                targets.append(objects.find(Pod, "pod", text))
    for pod in targets:
        if pod.spec.node_name:
            fail(f"pod {_name(pod)} is on node {pod.spec.node_name} already", FINDINGS)
    return targets


def _pods_of_file(objects: ClusterObjects, file: str) -> list[Pod]:
    """The pods of the file, as the cluster has them if it does; everything else of the file is added to the objects."""
    from dralloc.answers.cluster_objects import ClusterObjects
    from dralloc.answers.manifest_cluster import UnusableManifest, add_manifests
    from dralloc.answers.workload_pods import add_workload_pods
    from dralloc.cli.manifest_records import read_records
    from dralloc.kube.pod_v1 import Pod

    given = ClusterObjects(objects.gates, place=file, namespace=objects.namespace)
    try:
        add_manifests(given, read_records([file]))
        add_workload_pods(given)
    except UnusableManifest as error:
        fail(str(error))
    if not given.all(Pod):
        fail(f"{file}: no pods found")
    for kind, found in given.objects.items():
        for key, obj in found.items():
            if kind is not Pod and key not in objects.all(kind):
                objects.add(obj)
    return [objects.all(Pod).get(key, pod) for key, pod in given.all(Pod).items()]


# --- Applying -------------------------------------------------------------------------------------------------------------


def _apply(options: PlacementOptions, question: DefragQuestion, timeout_s: float, objects: ClusterObjects) -> None:
    from dralloc.answers.cluster_objects import exists
    from dralloc.cli.move_runner import MoveFailed, MoveRunner
    from dralloc.cli.server_connection import ask_server, find_server
    from dralloc.client.transport import Transport

    for pod in question.targets:
        if not exists(pod):
            fail(f"pod {_name(pod)} is not in the cluster: create it first; it waits until there is room", FINDINGS)
    connection = find_server(options.kubeconfig, options.context)

    async def work(transport: Transport) -> int:
        gates = options.gates()
        runner = MoveRunner(transport, objects.namespace, gates, lambda line: say(line), timeout_s, objects.stated)
        return await runner.run(question)

    try:
        moved = ask_server(connection, work)
    except MoveFailed as error:
        fail(str(error), FINDINGS)
    say(paint(f"done: {moved} {_plural(moved, 'pod')} moved", "green"))


def _release(options: PlacementOptions, source: ClusterSource) -> None:
    from dralloc.cli.move_runner import MoveRunner
    from dralloc.cli.server_connection import ask_server, find_server
    from dralloc.client.transport import Transport

    connection = find_server(options.kubeconfig, options.context)

    async def work(transport: Transport) -> int:
        gates = options.gates()
        runner = MoveRunner(transport, connection.namespace, gates, lambda line: say(line), 60, source.stated)
        return await runner.release_all()

    count = ask_server(connection, work)
    say(f"{count} {_plural(count, 'hold')} released")


# --- Text -----------------------------------------------------------------------------------------------------------------


def _lines(question: DefragQuestion, plan: DefragPlan, *, is_wide: bool) -> Iterator[str]:
    from dralloc.cli.tables import table

    yield paint(_headline(question, plan), "red" if plan.message else "green")
    if plan.moves:
        rows = [row for number, move in enumerate(plan.moves, 1) for row in _rows(number, move)]
        yield from ("", *table(("STEP", "POD", "FROM", "TO", "FREES", "GETS", "HELD MEANWHILE"), rows))
    if plan.placed and plan.moves:
        yield ""
        for placed in plan.placed:
            yield f"then {_name(placed.pod)} fits on {placed.node}"
    for card in plan.freed:
        yield f"free then: {card.pool}/{card.name}"
    if not plan.is_fewest and not plan.message:
        yield f"there may be a better plan: not all were compared within {question.decisions_max:,} decisions (--decisions-max)"
    yield from _fixed_lines(plan, is_wide=is_wide)


def _headline(question: DefragQuestion, plan: DefragPlan) -> str:
    moves = f"{plan.pods_moved} {_plural(plan.pods_moved, 'move')}"
    if plan.message:
        return plan.message
    if not question.targets:
        if not plan.moves:
            return f"no more devices can be freed with {question.moves_max} {_plural(question.moves_max, 'move')}"
        return f"{moves} would free {plan.gain} whole {_plural(plan.gain, 'device')}"
    pods = f"{len(plan.placed)} {_plural(len(plan.placed), 'pod')}"
    return f"{moves} would make room for {pods}" if plan.moves else f"{pods} would fit without a move"


def _rows(number: int, move: PlannedMove) -> Iterator[tuple[str, ...]]:
    for moved in move.pods:
        frees = ", ".join(sorted(each.device for each in moved.before)) or "-"
        gets = ", ".join(sorted(each.device for each in moved.after)) or "-"
        yield str(number), _name(moved.pod), moved.pod.spec.node_name, moved.node, frees, gets, _held(move.holds)


def _held(holds: PlaceHolds) -> str:
    from dralloc.primitives.phrases import first_few

    nodes = f"node {first_few(sorted(holds.nodes), 'node')}" if holds.nodes else ""
    devices = f"device {first_few(sorted(map(str, holds.devices)), 'device')}" if holds.devices else ""
    return "; ".join(filter(None, (nodes, devices))) or "-"


def _fixed_lines(plan: DefragPlan, *, is_wide: bool) -> Iterator[str]:
    from dralloc.answers.movable_pods import reasons_by_count

    reasons = reasons_by_count(plan.fixed)
    if reasons and (is_wide or plan.message):
        yield ""
        yield "not moved:"
        for reason, pods in reasons.items():
            names = _name(pods[0]) if len(pods) == 1 else f"{len(pods)} pods ({_name(pods[0])}, …)"
            yield f"  {names}: {reason}"


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"


# --- JSON and YAML --------------------------------------------------------------------------------------------------------


def _values(question: DefragQuestion, plan: DefragPlan) -> dict[str, Any]:
    return {
        "for": [_name(pod) for pod in question.targets],
        "movesMax": question.moves_max,
        "message": plan.message,
        "isFewest": plan.is_fewest,
        "moves": [
            {
                "step": number,
                "pod": _name(moved.pod),
                "uid": moved.pod.metadata.uid,
                "from": moved.pod.spec.node_name,
                "to": moved.node,
                "frees": sorted(map(str, moved.before)),
                "gets": sorted(map(str, moved.after)),
                "held": {"nodes": sorted(move.holds.nodes), "devices": sorted(map(str, move.holds.devices))},
            }
            for number, move in enumerate(plan.moves, 1)
            for moved in move.pods
        ],
        "placed": [{"pod": _name(placed.pod), "node": placed.node} for placed in plan.placed],
        "devicesFreed": plan.gain,
        "freed": [f"{card.pool}/{card.name}" for card in plan.freed],
        "notMoved": [{"pod": _name(each.pod), "reason": each.reason} for each in plan.fixed],
    }
