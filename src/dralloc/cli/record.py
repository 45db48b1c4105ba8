"""`dralloc record`: a profile of simulated nodes, from a real cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dralloc.cli.options import Context, Kubeconfig
from dralloc.cli.output import fail, say, writing


def record(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The file to write; default: print.")] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    labels: Annotated[str, typer.Option(help="Record only nodes with these labels, such as pool=gpu.")] = "",
) -> None:
    """Record the nodes, slices and classes of a cluster as a profile for `dralloc node --fake N --profile FILE`.

    Nothing is written to the cluster. Equal nodes are recorded once.

    # Record the nodes of production, then simulate a thousand of them.
    dralloc record --context production -o production.yaml
    dralloc node --fake 1000 --profile production.yaml

    # Only the nodes with GPUs, printed.
    dralloc record --labels pool=gpu
    """
    import yaml

    from dralloc.cli.server_connection import ask_server, find_server
    from dralloc.client.async_client import AsyncClient
    from dralloc.client.transport import Transport
    from dralloc.kube.core_v1 import Node
    from dralloc.kube.resource_v1 import DeviceClass, ResourceSlice
    from dralloc.node.simulated.profile_recorder import record_profile
    from dralloc.node.simulated.profiles import BadProfile, read_profile

    async def read(
        transport: Transport,
    ) -> tuple[tuple[Node, ...], tuple[ResourceSlice, ...], tuple[DeviceClass, ...]]:
        client = AsyncClient(transport)
        nodes = await client.list(Node, labels=labels)
        return nodes, await client.list(ResourceSlice), await client.list(DeviceClass)

    nodes, slices, classes = ask_server(find_server(kubeconfig, context), read, doing="reading the cluster")
    if not nodes:
        fail("no nodes to record" + (f" with labels {labels}" if labels else ""))
    profile = record_profile(nodes, slices, classes, f"Recorded from a cluster of {len(nodes)} nodes.")
    text = yaml.safe_dump(profile, sort_keys=False, allow_unicode=True, width=120)
    try:
        read_profile(text, "recorded")
    except BadProfile as error:
        fail(f"the objects of the cluster cannot be recorded as a profile: {error}")
    if output is None:
        say(text, newline=False)
        return
    with writing(output):
        output.write_text(text, "utf-8")
    kinds = "1 kind" if len(profile["nodes"]) == 1 else f"{len(profile['nodes'])} kinds"
    say(f"{output}: {kinds} of nodes, from {len(nodes)} nodes and {len(slices)} slices")
