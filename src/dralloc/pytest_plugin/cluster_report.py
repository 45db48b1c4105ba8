"""The state of a cluster as text, for the report of a failed test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from dralloc.cli.tables import table
from dralloc.client.async_client import AsyncClient
from dralloc.kube.core_v1 import Event, Node
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim, ResourceSlice
from dralloc.kube.timestamps import parse_timestamp

ROWS_MAX: Final = 30
EVENTS_MAX: Final = 15


async def cluster_report(client: AsyncClient) -> str:
    """Nodes, pods with the reason if they do not run, claims with their devices, and the latest events."""
    slices = await client.list(ResourceSlice)
    parts = [
        _part("nodes", ("NAME", "READY", "DEVICES"), _nodes(await client.list(Node), slices)),
        _part("pods", ("NAME", "PHASE", "NODE", "MESSAGE"), map(_pod, await client.list(Pod))),
        _part("claims", ("NAME", "RESERVED FOR", "DEVICES"), map(_claim, await client.list(ResourceClaim))),
        _part(f"last {EVENTS_MAX} events", ("OBJECT", "REASON", "MESSAGE"), _events(await client.list(Event))),
    ]
    return "\n\n".join(parts)


def _part(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    listed = list(rows)
    if not listed:
        return f"{title}: none"
    lines = table(header, listed[:ROWS_MAX])
    if len(listed) > ROWS_MAX:
        lines.append(f"and {len(listed) - ROWS_MAX} more")
    return "\n".join([f"{title}:", *(f"  {line}" for line in lines)])


def _nodes(nodes: Iterable[Node], slices: Iterable[ResourceSlice]) -> Iterator[tuple[str, ...]]:
    numbers: dict[str | None, int] = {}
    for each in slices:
        numbers[each.spec.node_name] = numbers.get(each.spec.node_name, 0) + len(each.spec.devices or ())
    for node in nodes:
        ready = next((condition.status for condition in node.status.conditions if condition.type == "Ready"), "-")
        yield node.metadata.name, ready, str(numbers.get(node.metadata.name, 0))


def _pod(pod: Pod) -> tuple[str, ...]:
    why = pod.status.message or next(
        (condition.message for condition in pod.status.conditions if condition.status == "False" and condition.message),
        "",
    )
    return _name(pod), pod.status.phase, pod.spec.node_name or "-", why or "-"


def _claim(claim: ResourceClaim) -> tuple[str, ...]:
    users = ", ".join(f"{user.resource}/{user.name}" for user in claim.status.reserved_for[:3]) or "-"
    if (more := len(claim.status.reserved_for) - 3) > 0:
        users += f" and {more} more"
    allocation = claim.status.allocation
    if allocation is None:
        return _name(claim), users, "not allocated"
    return _name(claim), users, "; ".join(describe_results(claim)) or "no devices requested"


def describe_results(claim: ResourceClaim) -> Iterator[str]:
    """The device of each request, such as `nic: eth1, bandwidth=5G`."""
    allocation = claim.status.allocation
    for result in allocation.devices.results if allocation is not None else ():
        amounts = [f"{name}={amount}" for name, amount in result.consumed_capacity.items()]
        share = ["a share"] if result.share_id else ["the whole device"]
        yield f"{result.request}: {', '.join([result.device, *(amounts or share)])}"


def _events(events: Iterable[Event]) -> Iterator[tuple[str, ...]]:
    for event in sorted(events, key=_time)[-EVENTS_MAX:]:
        about = event.involved_object
        yield f"{about.kind} {about.namespace}/{about.name}", event.reason, event.message


def _time(event: Event) -> datetime:
    stated = event.last_timestamp or event.event_time or event.metadata.creation_timestamp
    assert stated is not None, "the server sets creationTimestamp"
    return parse_timestamp(stated)


def _name(item: ApiObject) -> str:
    return f"{item.metadata.namespace}/{item.metadata.name}"
