"""Cluster objects from a server. Only GET requests are sent.

Each kind is read in the newest version that both the server and dralloc know. Kinds that cannot be read are reported with
the reason; the caller decides whether it can answer without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec

from dralloc.answers.cluster_objects import (
    VOLUME_KINDS,
    ReadKind,
    decode_object,
    object_type_of,
    place_of,
    relevant_kinds,
)
from dralloc.answers.reduced_objects import reduced
from dralloc.client.api_calls import ApiCalls
from dralloc.client.discovery import Discovery, discover
from dralloc.client.transport import ClientRequest, Transport
from dralloc.client.typed_resource import TypedResource
from dralloc.client.unreadable_objects import UnreadableObject
from dralloc.devices.identity import ClaimId
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.core_v1 import ConfigMap, Event, Node
from dralloc.kube.kind import Kind
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import GROUP, DeviceTaintRule, ResourceClaim, ResourceSlice
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.primitives.decoders import UNREADABLE
from dralloc.primitives.errors import Forbidden, NotFound
from dralloc.scheduler.configuration_publisher import CONFIG_MAPS
from dralloc.scheduler.published_configuration import key_of, published_names
from dralloc.scheduler.settings import NAME
from dralloc.scheduler.state.volume_state import has_volumes

PAGE_SIZE: Final = 500
# Pods may name schedulers that do not exist.
SCHEDULERS_MAX: Final = 20
_WITH_WRITES: Final = frozenset({ResourceClaim, ResourceSlice})


async def read_cluster(
    transport: Transport,
    namespace: str,
    wanted: Collection[type[ApiObject]] | None = None,
    *,
    events: str = "",
    with_writes: bool = False,
) -> dict[type[ApiObject], ReadKind]:
    """Lists the wanted kinds, or all that answers depend on, concurrently.

    `events` is the field selector of the events that are read. `with_writes`: with the last write of slices and claims.
    """
    discovery = await discover(transport)
    calls = ApiCalls(transport)
    kinds = {object_type: kind for object_type, kind in relevant_kinds() if wanted is None or object_type in wanted}
    with_schedulers = kinds.pop(ConfigMap, None) is not None
    readers = (
        _read(
            calls,
            discovery,
            kind,
            namespace,
            selector=events if object_type is Event else "",
            with_writes=with_writes and object_type in _WITH_WRITES,
        )
        for object_type, kind in kinds.items()
    )
    found = await asyncio.gather(*readers)
    read = dict(zip(kinds, found, strict=True))
    pods = [pod for pod in read.get(Pod, ReadKind()).objects if isinstance(pod, Pod)]
    if with_schedulers:
        read[ConfigMap] = await _read_schedulers(calls, {pod.spec.scheduler_name for pod in pods})
    if not any(map(has_volumes, pods)):
        # No answer about these pods depends on volumes.
        read |= {kind: replace(read[kind], note="") for kind in VOLUME_KINDS & read.keys()}
    return read


async def _read_schedulers(calls: ApiCalls, named: set[str]) -> ReadKind:
    """What schedulers have published about themselves: ours, and those that pods name."""
    names = [NAME, *(name for name in published_names(named) if name != NAME)][:SCHEDULERS_MAX]
    found: list[ApiObject] = []
    note = ""
    for key in map(key_of, names):
        try:
            found.append(reduced(await calls.get(CONFIG_MAPS, key)))
        except (NotFound, UnreadableObject):
            continue
        except Forbidden as error:
            note = note or f"cannot read how schedulers place pods, answers assume the default (or --config): {error}"
    return ReadKind(tuple(found), note, is_missing=bool(note) and not found)


async def server_version(transport: Transport) -> str:
    """The server's release, such as v1.37.0; empty if it does not say."""
    response = await transport.send(ClientRequest(method="GET", path="/version"))
    try:
        return str(msgspec.json.decode(response.body, type=dict[str, Any]).get("gitVersion", ""))
    except UNREADABLE:
        return ""


def served_resource(
    discovery: Discovery, kind: Kind, *, keeps_managed_fields: bool = False
) -> TypedResource[Any] | None:
    """The resource of the kind, in the newest version that both sides know; None if there is none."""
    offered = discovery.versions(kind.group, kind.plural)
    version = next((served.version for served in kind.versions if served.version in offered), None)
    if version is None:
        return None
    object_type = object_type_of(kind)
    assert object_type is not None, "only relevant kinds are requested"
    return TypedResource(
        group=kind.group,
        version=version,
        plural=kind.plural,
        kind=kind.kind,
        namespaced=kind.namespaced,
        type=object_type,
        read=partial(decode_object, kind, version),
        keeps_managed_fields=keeps_managed_fields,
    )


def why_not_served(discovery: Discovery, kind: Kind) -> str:
    offered = discovery.versions(kind.group, kind.plural)
    if offered:
        known = ", ".join(served.version for served in kind.versions)
        return f"{kind.plural} are served in unknown versions only: {', '.join(offered)}; known: {known}"
    if any(resource.group == GROUP for resource in discovery.resources):
        return f"{kind.plural} are not served: the feature gate is off, or the cluster is too old"
    return (
        f"{kind.plural} are not served: this cluster has no {GROUP}; it needs Kubernetes 1.34 or later, "
        "or 1.32 with the feature gate DynamicResourceAllocation and the beta API enabled"
    )


async def _read(
    calls: ApiCalls, discovery: Discovery, kind: Kind, namespace: str, *, selector: str, with_writes: bool
) -> ReadKind:
    resource = served_resource(discovery, kind, keeps_managed_fields=with_writes)
    # Most clusters do not serve taint rules and groups; then there are none.
    is_optional = kind.hub in (DeviceTaintRule, PodGroup)
    if resource is None:
        is_usual = is_optional and not discovery.versions(kind.group, kind.plural)
        return ReadKind(note="" if is_usual else why_not_served(discovery, kind), is_missing=True)
    unreadable: list[UnreadableObject] = []
    try:
        objects, _ = await calls.list_all(
            resource, page_size=PAGE_SIZE, field_selector=selector, on_unreadable=unreadable.append
        )
        return ReadKind(tuple(map(reduced, objects)), _left_out(unreadable), is_incomplete=bool(unreadable))
    except NotFound as error:
        # The gate was turned off in the meantime.
        return ReadKind(note="" if is_optional else f"cannot read {kind.plural}: {error}", is_missing=True)
    except Forbidden as error:
        refused = f"cannot read {kind.plural}: {error}"
    if kind.namespaced:
        try:
            objects, _ = await calls.list_all(
                resource,
                namespace=namespace,
                page_size=PAGE_SIZE,
                field_selector=selector,
                on_unreadable=unreadable.append,
            )
            partial_note = f"{kind.plural} were read in namespace {namespace} only (no permission for others)"
            return ReadKind(
                tuple(map(reduced, objects)),
                "; ".join(filter(None, [partial_note, _left_out(unreadable)])),
                namespace=namespace,
                is_incomplete=bool(unreadable),
            )
        except Forbidden:
            pass
    return ReadKind(note=refused, is_missing=True)


def _left_out(unreadable: Sequence[UnreadableObject]) -> str:
    """The note about objects that the answer does not consider."""
    if not unreadable:
        return ""
    others = f", and {len(unreadable) - 1} more" if len(unreadable) > 1 else ""
    return f"left out: {unreadable[0]}{others}"


def with_change(snapshot: Snapshot, before: ApiObject | None, after: ApiObject | None) -> Snapshot:
    """The snapshot after an object changed; the same one if the change does not concern devices."""
    is_gone = after is None
    match after or before:
        case ResourceSlice() as item:
            return snapshot.without_slice(item.metadata.name) if is_gone else snapshot.with_slice(item)
        case ResourceClaim() as item:
            return snapshot.without_claim(ClaimId.of(item)) if is_gone else snapshot.with_claim(item)
        case DeviceTaintRule() as item:
            return snapshot.without_rule(item.metadata.name) if is_gone else snapshot.with_rule(item)
        case Node() as item:
            place = place_of(item)
            if is_gone:
                return snapshot.without_node(place.name)
            return snapshot if snapshot.nodes.get(place.name) == place else snapshot.with_node(place)
        case other:
            raise AssertionError(f"not watched: {other}")
