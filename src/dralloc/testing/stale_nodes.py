"""Deletes simulated nodes of an earlier start on the same data that are not simulated any more.

They would look ready, and pods bound to them would never run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

from dralloc.client.async_client import AsyncClient
from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import key_of
from dralloc.kube.core_v1 import Node
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceSlice
from dralloc.node.simulated.fleet import FleetSettings
from dralloc.node.simulated.profiles import PROFILE_LABEL, shared_slices
from dralloc.primitives.errors import NotFound


async def delete_stale_nodes(
    client: AsyncClient, earlier: Mapping[str, int], wanted: Iterable[FleetSettings]
) -> list[str]:
    """Delete unwanted nodes, their pods and devices; returns the nodes' names. `earlier` has counts by prefix."""
    wanted = tuple(wanted)
    gone = _names(earlier) - _names({each.prefix: each.count for each in wanted})
    if not gone:
        return []
    pods = [pod for pod in await client.list(Pod) if pod.spec.node_name in gone]
    nodes = [node for node in await client.list(Node, labels=PROFILE_LABEL) if node.metadata.name in gone]
    await _delete(client, Pod, pods)
    # A node owns its slices, so they are deleted with it.
    await _delete(client, Node, nodes)
    slices = await client.list(ResourceSlice, labels=PROFILE_LABEL)
    await _delete(client, ResourceSlice, _stale_shared_slices(slices, earlier, wanted))
    return sorted(node.metadata.name for node in nodes)


def _names(counts: Mapping[str, int]) -> set[str]:
    return {f"{prefix}-{number}" for prefix, count in counts.items() for number in range(count)}


def _stale_shared_slices(
    slices: Iterable[ResourceSlice], earlier: Mapping[str, int], wanted: tuple[FleetSettings, ...]
) -> list[ResourceSlice]:
    kept = {item.metadata.name for each in wanted for item in shared_slices(each.profile, each.count, each.prefix)}
    of_earlier = tuple(f"{prefix}-{kind}-" for prefix in earlier for kind in ("group", "cluster"))
    return [
        item
        for item in slices
        if not item.metadata.owner_references
        and item.metadata.name.startswith(of_earlier)
        and item.metadata.name not in kept
    ]


async def _delete(client: AsyncClient, kind: type[ApiObject], items: Iterable[ApiObject]) -> None:
    for item in items:
        with suppress(NotFound):
            await client.calls.delete(resource_for(kind), key_of(item), grace_period_s=0)
