"""What a running cluster has of the things that decide about devices. Nothing is sent but GET.

Each kind is read in the newest version that the server has and we know, so older clusters are read too. What a user may not
see is said in a line; the command ends only where it could not answer without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from dralloc.api.meta_v1 import ApiObject
from dralloc.api.registry import KINDS, Kind
from dralloc.api.resource_v1 import GROUP, DeviceTaintRule
from dralloc.cli.output import fail, say
from dralloc.cli.server_connection import ask_server, find_server
from dralloc.cli.world import Origin, World, known_type, read_known
from dralloc.client.api_calls import ApiCalls
from dralloc.client.discovery import Discovery, discover
from dralloc.client.transport import Transport
from dralloc.client.typed_resource import TypedResource
from dralloc.primitives.errors import Forbidden

PAGE_SIZE: Final = 500
INSTEAD: Final = "; or name files with -f"


@dataclass(frozen=True, slots=True)
class Reading:
    """The objects of one kind, or why they cannot be read. `note` says what the user should know of them."""

    objects: tuple[ApiObject, ...] = ()
    note: str = ""
    is_missing: bool = False


def add_cluster(
    world: World, origin: Origin, needed: Collection[type[ApiObject]], useful: Collection[type[ApiObject]]
) -> None:
    """Adds what the cluster has of these kinds to the world."""
    connection = find_server(origin.kubeconfig, origin.context, otherwise=INSTEAD)
    world.place = f"the cluster {connection.server}"
    world.namespace = origin.namespace or connection.namespace
    wanted = frozenset((*needed, *useful))
    readings = ask_server(
        connection,
        lambda transport: read_cluster(transport, world.namespace, wanted),
        doing=f"reading {world.place}",
        otherwise=INSTEAD,
    )
    for object_type, reading in readings.items():
        if reading.is_missing and object_type in needed:
            fail(f"{connection.server}: {reading.note}")
        if reading.note:
            say(reading.note, err=True, prefix="note: ")
        for obj in reading.objects:
            world.add(obj)


async def read_cluster(
    transport: Transport, namespace: str, wanted: Collection[type[ApiObject]] | None = None
) -> dict[type[ApiObject], Reading]:
    """Every kind that matters, or those that are wanted, all at the same time."""
    discovery = await discover(transport)
    calls = ApiCalls(transport)
    kinds = {object_type: kind for object_type, kind in known_kinds() if wanted is None or object_type in wanted}
    found = await asyncio.gather(*(_read(calls, discovery, kind, namespace) for kind in kinds.values()))
    return dict(zip(kinds, found, strict=True))


def known_kinds() -> Iterator[tuple[type[ApiObject], Kind]]:
    """The kinds that decide about devices, by the type of their objects."""
    for kind in KINDS:
        object_type = known_type(kind)
        if object_type is not None:
            yield object_type, kind


def served_resource(discovery: Discovery, kind: Kind) -> TypedResource[Any] | None:
    """Where the server keeps objects of the kind, in the newest version that both sides know."""
    offered = discovery.versions(kind.group, kind.plural)
    version = next((served.version for served in kind.versions if served.version in offered), None)
    if version is None:
        return None
    object_type = known_type(kind)
    assert object_type is not None, "the kind is one of those that decide about devices"
    return TypedResource(
        group=kind.group,
        version=version,
        plural=kind.plural,
        kind=kind.kind,
        namespaced=kind.namespaced,
        type=object_type,
        read=partial(read_known, kind, version),
    )


def why_not_served(discovery: Discovery, kind: Kind) -> str:
    offered = discovery.versions(kind.group, kind.plural)
    if offered:
        known = ", ".join(served.version for served in kind.versions)
        return f"{kind.plural} are served as {', '.join(offered)}, of which none is known here; known are {known}"
    if any(resource.group == GROUP for resource in discovery.resources):
        return f"{kind.plural} are not served: the feature that brings them is off, or the cluster is too old"
    return (
        f"{kind.plural} are not served: this cluster has no {GROUP}; it comes with Kubernetes 1.34, "
        "and in 1.32 and 1.33 where the feature gate DynamicResourceAllocation and the API's beta version are on"
    )


async def _read(calls: ApiCalls, discovery: Discovery, kind: Kind, namespace: str) -> Reading:
    resource = served_resource(discovery, kind)
    if resource is None:
        # Most clusters do not have taint rules, and then there are none.
        is_usual = kind.hub is DeviceTaintRule and not discovery.versions(kind.group, kind.plural)
        return Reading(note="" if is_usual else why_not_served(discovery, kind), is_missing=True)
    try:
        objects, _ = await calls.list_all(resource, page_size=PAGE_SIZE)
        return Reading(objects)
    except Forbidden as error:
        refused = f"{kind.plural} cannot be read: {error}"
    if kind.namespaced:
        try:
            objects, _ = await calls.list_all(resource, namespace=namespace, page_size=PAGE_SIZE)
            told = f"{kind.plural} can be read in namespace {namespace} only: what others have is not known here"
            return Reading(objects, told)
        except Forbidden:
            pass
    return Reading(note=refused, is_missing=True)
