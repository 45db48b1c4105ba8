"""`dralloc explain`: why a pod or a claim does not fit, what would help, or why it gets what it gets."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dralloc.cli.answers import answer
from dralloc.cli.options import Context, Files, Gates, Kubeconfig, Namespace, Output, OutputFormat
from dralloc.cli.output import FINDINGS, paint, parse_gates

if TYPE_CHECKING:
    from dralloc.api.pod_v1 import Pod
    from dralloc.api.resource_v1 import ResourceClaim
    from dralloc.cli.orders import Order
    from dralloc.cli.world import World
    from dralloc.snapshot.node_selectors import Node
    from dralloc.whatif.explanation.report import Explanation


class Sort(StrEnum):
    POD = "pod"
    CLAIM = "claim"


def explain(
    sort: Annotated[Sort, typer.Argument(metavar="pod|claim", help="What to explain.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="NAMESPACE/NAME, or a name alone (see --namespace).")],
    files: Files = None,
    node: Annotated[str | None, typer.Option(help="Only on this node.")] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
    output: Output = OutputFormat.TABLE,
    feature_gates: Gates = "",
) -> None:
    """Say why a pod or a claim gets no devices, and what would help; or why it gets these. Exits with 1 if it does not fit.

    The first line is the answer. Then come the nodes, those with the same story together; the smallest single changes with
    which it would fit, each of them tried; and where the devices are lost, from all that a node has to those that are left.

    # Why is this pod pending? The cluster that kubectl would ask is read, and
    # nothing is written.
    dralloc explain pod ml/train-0

    # The same without access to the cluster, from what somebody else saved.
    dra=nodes,resourceslices,deviceclasses,resourceclaims,resourceclaimtemplates
    kubectl get $dra,pods -A -o json > cluster.json
    dralloc explain pod ml/train-0 -f cluster.json

    # What keeps a claim from one node, device by device? For a program: -o json.
    dralloc explain claim shared-gpu -n ml --node node-7

    # Would this claim fit, if I created it in the cluster?
    dralloc explain claim wanted -f wanted.yaml --context production
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
    from dralloc.cli.orders import order_of_claim, order_of_pod
    from dralloc.cli.world import Origin, load_world, tell_derived_nodes
    from dralloc.whatif.explanation.report import Verdict

    needed: set[type[ApiObject]] = {ResourceSlice, DeviceClass, ResourceClaim}
    useful: set[type[ApiObject]] = {Node, DeviceTaintRule}
    if sort is Sort.POD:
        needed.add(Pod)
        useful.add(ResourceClaimTemplate)
    origin = Origin(files=files, kubeconfig=kubeconfig, context=context, namespace=namespace)
    world = load_world(origin, parse_gates(feature_gates), needed=needed, useful=useful)
    tell_derived_nodes(world)
    order = order_of_pod(world, world.pod(name)) if sort is Sort.POD else order_of_claim(world.claim(name))
    nodes = (world.node(node),) if node is not None else world.nodes
    if order.fault:
        plain = {"subject": order.subject, "verdict": Verdict.ERROR.value, "message": _fault(order)}
        answer(output, lambda: plain, lambda: [_fault(order)])
        raise typer.Exit(FINDINGS)
    explanation = explain_order(world, order, nodes)
    _tell_explanation(output, world, order, explanation)
    if explanation.verdict is not Verdict.FITS:
        raise typer.Exit(FINDINGS)


def explain_order(world: World, order: Order, nodes: tuple[Node, ...]) -> Explanation:
    from dralloc.whatif.explanation.report import Question, explain

    question = Question(
        claims=order.claims,
        classes=world.classes,
        features=world.features,
        snapshot=world.snapshot,
        nodes=nodes,
        excluded={each.name: order.excluded[each.name] for each in nodes if each.name in order.excluded},
    )
    return explain(question)


def explanation_lines(order: Order, explanation: Explanation) -> Iterator[str]:
    """The explanation for people."""
    from dralloc.whatif.explanation.text import lines

    yield from lines(explanation, order.subject)
    if held := _all_held(order):
        yield from ("", "Claims that have their devices", *(f"  {line}" for line in held))


def _fault(order: Order) -> str:
    return f"{order.subject} cannot be served: {order.fault}"


def _tell_explanation(output: OutputFormat, world: World, order: Order, explanation: Explanation) -> None:
    from dralloc.whatif.explanation.json_form import plain_explanation
    from dralloc.whatif.explanation.report import Verdict

    held = _all_held(order)
    if (message := _settled(world, order)) is not None:
        plain = {"subject": order.subject, "verdict": "Allocated", "message": message, "devices": held}
        answer(output, lambda: plain, lambda: [message, *held])
        return

    def values() -> dict[str, Any]:
        plain = plain_explanation(explanation, order.subject)
        return {**plain, "allocated": held} if held else plain

    def text() -> Iterator[str]:
        first, *rest = explanation_lines(order, explanation)
        yield paint(first, "green" if explanation.verdict is Verdict.FITS else "red")
        yield from rest

    answer(output, values, text)


def _settled(world: World, order: Order) -> str | None:
    """What there is to say where nothing is left to decide."""
    if order.claims:
        return None
    if order.pod is None:
        return f"{order.subject} has its devices already" if order.allocated else None
    node = order.pod.spec.node_name
    if not node:
        return None
    return f"{order.subject} is on node {node} already{_going(order)}{_idle(world, order.pod)}"


def _idle(world: World, pod: Pod) -> str:
    """Why a pod that has its node does not run there, as far as the node says."""
    from dralloc.api import core_v1

    found = world.all(core_v1.Node).get(("", pod.spec.node_name or ""))
    if found is None or pod.status.phase not in ("", "Pending"):
        return ""
    for each in found.status.conditions:
        if each.type == "Ready" and each.status != "True":
            why = f" ({each.message or each.reason})" if each.message or each.reason else ""
            return f" and does not run, because that node is not ready{why}; delete the pod to have it placed anew"
    return ""


def _going(order: Order) -> str:
    """Which claims somebody has deleted while the pod uses them."""
    going = [claim.metadata.name for claim in order.allocated if claim.metadata.deletion_timestamp is not None]
    return "".join(f"; its claim {name} is deleted when no pod uses it any more" for name in going)


def _all_held(order: Order) -> list[str]:
    return [line for claim in order.allocated for line in _held(claim)]


def _held(claim: ResourceClaim) -> Iterator[str]:
    from dralloc.cli.serving import Given

    for claim_id, request, _, device, consumed, _ in Given(claim, "").rows():
        yield f"{claim_id}: request {request} has {device}" + (f" ({consumed})" if consumed != "-" else "")
