"""`dralloc allocate`: which devices claims would get, in a cluster or in what manifests describe. Nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from dralloc.cli.options import Context, Files, Gates, Kubeconfig, Output, OutputFormat
from dralloc.cli.output import FINDINGS, fail, paint, parse_gates, say

if TYPE_CHECKING:
    from dralloc.cli.serving import Service


# The last column is for those who want all.
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
        typer.Option("--namespace", "-n", help="Only what waits in this namespace; names without one are in it."),
    ] = None,
    output: Output = OutputFormat.TABLE,
    feature_gates: Gates = "",
) -> None:
    """Say which devices claims would get, by Kubernetes' own rules. Exits with 1 if one of them does not fit.

    Claims that have devices keep them, and each claim takes from what is left. A pod's claims are served together, those
    included that are still to be made from templates; jobs and deployments of the files are taken as their pods. Of several nodes, the first
    is taken on which the most preferred
    alternatives fit.

    # What would every claim get that has nothing yet? Pods first, in the order of
    # the files.
    dralloc allocate -f cluster/

    # In the cluster that kubectl would ask: what would this pod get, and on which
    # node? Nothing is written.
    dralloc allocate --pod ml/train-0

    # What would these pods get, if I created them there?
    dralloc allocate -f pods.yaml --context production

    # The claim as it would be stored, on one node.
    dralloc allocate -f cluster.json --claim ml/shared-gpu --node node-7 -o yaml
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
    from dralloc.cli.orders import all_orders, order_of_claim, order_of_pod
    from dralloc.cli.serving import Service
    from dralloc.cli.world import Origin, load_world, tell_derived_nodes

    if pod is not None and claim is not None:
        fail("give --pod or --claim, not both")
    origin = Origin(files=files, kubeconfig=kubeconfig, context=context, namespace=namespace)
    needed: set[type[ApiObject]] = {ResourceSlice, DeviceClass, ResourceClaim}
    useful: set[type[ApiObject]] = {Node, Pod, ResourceClaimTemplate, DeviceTaintRule}
    world = load_world(origin, parse_gates(feature_gates), needed=needed, useful=useful)
    tell_derived_nodes(world)
    service = Service(world, (world.node(node),) if node is not None else world.nodes)
    if pod is not None:
        service.serve(order_of_pod(world, world.pod(pod)))
    elif claim is not None:
        service.serve(order_of_claim(world.claim(claim)))
    else:
        for order in all_orders(world, namespace):
            service.serve(order)
    _print(service, output)
    if service.refusals:
        raise typer.Exit(FINDINGS)


def _print(service: Service, output: OutputFormat) -> None:
    from dralloc.cli.answers import answer_objects
    from dralloc.cli.object_documents import as_manifest

    if output.is_for_people:
        _print_table(service, is_wide=output is OutputFormat.WIDE)
        return
    refusals = [(refusal.subject, refusal.message) for refusal in service.refusals]
    answer_objects(output, [as_manifest(given.claim, "v1") for given in service.given], refusals)
    for subject, message in refusals:
        say(f"{subject} {message}", err=True)


def _print_table(service: Service, *, is_wide: bool) -> None:
    from dralloc.cli.tables import table

    width = None if is_wide else len(HEADER) - 1
    rows = [row[:width] for given in service.given for row in given.rows()]
    if rows:
        for line in table(HEADER[:width], rows):
            say(line)
    for refusal in service.refusals:
        say(paint(f"{refusal.subject} {refusal.message}", "red"))
    if not rows and not service.refusals:
        say("nothing waits for devices")
