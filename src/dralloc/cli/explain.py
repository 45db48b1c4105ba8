"""`dralloc explain`: why a pod or a claim does not fit, what would help, or why it gets what it gets."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dralloc.cli.output import FEATURE_GATES_HELP, FILES_HELP, FINDINGS, parse_gates, say

if TYPE_CHECKING:
    from dralloc.allocator.explanation.report import Explanation
    from dralloc.api.resource_v1 import ResourceClaim
    from dralloc.cli.orders import Order


class Sort(StrEnum):
    POD = "pod"
    CLAIM = "claim"


class OutputFormat(StrEnum):
    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


def explain(
    sort: Annotated[Sort, typer.Argument(help="What to explain.")],
    name: Annotated[str, typer.Argument(help="NAMESPACE/NAME; a name alone is in the namespace default.")],
    files: Annotated[list[str], typer.Option("--filename", "-f", help=FILES_HELP)],
    node: Annotated[str | None, typer.Option(help="Only on this node.")] = None,
    output: Annotated[
        OutputFormat, typer.Option("--output", "-o", help="For people or for machines.")
    ] = OutputFormat.TEXT,
    feature_gates: Annotated[str, typer.Option(help=FEATURE_GATES_HELP)] = "",
) -> None:
    """Say why a pod or a claim gets no devices, and what would help; or why it gets these. Exits with 1 if it does not fit.

    The first line is the answer. Then come the nodes, those with the same story together; the smallest single changes with
    which it would fit, each of them tried; and where the devices are lost, from all that a node has to those that are left.

    \b
    # Why is this pod pending?
    kubectl get nodes,resourceslices,deviceclasses,resourceclaims,resourceclaimtemplates,pods -A -o json > cluster.json
    dralloc explain pod ml/train-0 -f cluster.json

    \b
    # What keeps a claim from one node, device by device? For a program: -o json.
    dralloc explain claim ml/shared-gpu --node node-7 -f cluster.json
    """
    from dralloc.allocator.explanation.report import Question, Verdict, explain
    from dralloc.cli.orders import order_of_claim, order_of_pod
    from dralloc.cli.world import load_world, tell_derived_nodes

    world = load_world(files, parse_gates(feature_gates))
    tell_derived_nodes(world)
    order = order_of_pod(world, world.pod(name)) if sort is Sort.POD else order_of_claim(world.claim(name))
    nodes = (world.node(node),) if node is not None else world.nodes
    if order.fault:
        _tell(
            output,
            {"subject": order.subject, "verdict": Verdict.ERROR.value, "message": _fault(order)},
            [_fault(order)],
        )
        raise typer.Exit(FINDINGS)
    question = Question(
        claims=order.claims,
        classes=world.classes,
        features=world.features,
        snapshot=world.snapshot,
        nodes=nodes,
        excluded={each.name: order.excluded[each.name] for each in nodes if each.name in order.excluded},
    )
    explanation = explain(question)
    _tell_explanation(output, order, explanation)
    if explanation.verdict is not Verdict.FITS:
        raise typer.Exit(FINDINGS)


def _fault(order: Order) -> str:
    return f"{order.subject} cannot be served: {order.fault}"


def _tell_explanation(output: OutputFormat, order: Order, explanation: Explanation) -> None:
    from dralloc.allocator.explanation.plain import plain_explanation
    from dralloc.allocator.explanation.text import lines

    held = [line for claim in order.allocated for line in _held(claim)]
    if order.pod is None and order.allocated:
        message = f"{order.subject} has its devices already"
        _tell(
            output,
            {"subject": order.subject, "verdict": "Allocated", "message": message, "devices": held},
            [message, *held],
        )
        return
    plain = plain_explanation(explanation, order.subject)
    text = list(lines(explanation, order.subject))
    if held:
        plain["allocated"] = held
        text += ["", "Claims that have their devices", *(f"  {line}" for line in held)]
    _tell(output, plain, text)


def _held(claim: ResourceClaim) -> Iterator[str]:
    from dralloc.cli.serving import Given

    for claim_id, request, _, device, consumed in Given(claim, "").rows():
        yield f"{claim_id}: request {request} has {device}" + (f" ({consumed})" if consumed != "-" else "")


def _tell(output: OutputFormat, plain: dict[str, Any], text: list[str]) -> None:
    from dralloc.cli.objects import plain_json, plain_yaml

    match output:
        case OutputFormat.TEXT:
            say("\n".join(text))
        case OutputFormat.JSON:
            say(plain_json(plain))
        case OutputFormat.YAML:
            say(plain_yaml(plain), newline=False)
