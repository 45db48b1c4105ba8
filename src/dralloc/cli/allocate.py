"""`dralloc allocate`: which devices claims would get, from manifests, without a cluster."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from dralloc.cli.output import FEATURE_GATES_HELP, FILES_HELP, FINDINGS, fail, parse_gates, say

if TYPE_CHECKING:
    from dralloc.cli.serving import Service


class OutputFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def allocate(
    files: Annotated[list[str], typer.Option("--filename", "-f", help=FILES_HELP)],
    pod: Annotated[str | None, typer.Option(help="Only the claims of this pod: NAMESPACE/NAME.")] = None,
    claim: Annotated[str | None, typer.Option(help="Only this claim: NAMESPACE/NAME.")] = None,
    node: Annotated[str | None, typer.Option(help="Only on this node.")] = None,
    output: Annotated[
        OutputFormat, typer.Option("--output", "-o", help="A table, or the claims with their status.")
    ] = OutputFormat.TABLE,
    feature_gates: Annotated[str, typer.Option(help=FEATURE_GATES_HELP)] = "",
) -> None:
    """Say which devices claims would get, by Kubernetes' own rules. Exits with 1 if one of them does not fit.

    Claims that have devices keep them, and each claim takes from what is left. A pod's claims are served together, those
    included that are still to be made from templates. Of several nodes, the first is taken on which the most preferred
    alternatives fit.

    \b
    # What would every claim get that has nothing yet? Pods first, in the order of the files.
    dralloc allocate -f cluster/

    \b
    # From a real cluster: what would this pod get, and on which node?
    kubectl get nodes,resourceslices,deviceclasses,resourceclaims,resourceclaimtemplates,pods -A -o json > cluster.json
    dralloc allocate -f cluster.json --pod ml/train-0

    \b
    # The claim as it would be stored, on one node.
    dralloc allocate -f cluster.json --claim ml/shared-gpu --node node-7 -o yaml
    """
    from dralloc.cli.orders import all_orders, order_of_claim, order_of_pod
    from dralloc.cli.serving import Service
    from dralloc.cli.world import load_world, tell_derived_nodes

    if pod is not None and claim is not None:
        fail("give --pod or --claim, not both")
    world = load_world(files, parse_gates(feature_gates))
    tell_derived_nodes(world)
    service = Service(world, (world.node(node),) if node is not None else world.nodes)
    if pod is not None:
        service.serve(order_of_pod(world, world.pod(pod)))
    elif claim is not None:
        service.serve(order_of_claim(world.claim(claim)))
    else:
        for order in all_orders(world):
            service.serve(order)
    _print(service, output)
    if service.refusals:
        raise typer.Exit(FINDINGS)


def _print(service: Service, output: OutputFormat) -> None:
    from dralloc.cli.objects import as_manifest, to_json, to_yaml

    if output is OutputFormat.TABLE:
        _print_table(service)
        return
    bodies = [as_manifest(given.claim, "v1") for given in service.given]
    if bodies:
        say(to_yaml(bodies), newline=False) if output is OutputFormat.YAML else say(to_json(bodies))
    for refusal in service.refusals:
        say(f"{refusal.subject} {refusal.message}", err=True)


def _print_table(service: Service) -> None:
    from dralloc.cli.tables import table

    rows = [row for given in service.given for row in given.rows()]
    if rows:
        for line in table(("CLAIM", "REQUEST", "NODE", "DEVICE", "CONSUMED"), rows):
            say(line)
    for refusal in service.refusals:
        say(f"{refusal.subject} {refusal.message}")
    if not rows and not service.refusals:
        say("nothing waits for devices")
