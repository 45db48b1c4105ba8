"""Profiles: YAML files that describe the nodes of a simulated cluster.

A profile has kinds of nodes with their pools, pools of groups of nodes, and pools of the whole cluster. `nodes_of` and
`shared_slices` make the objects for any number of nodes. The built-in profiles are in `profiles/`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from dralloc.kube.admission import Admitted, Refused, Verb, WriteRequest, admit
from dralloc.kube.codec import DecodeError, decode, encode, find_stray_fields
from dralloc.kube.registry import find_kind
from dralloc.kube.resource_v1 import DeviceClass, ResourceSlice
from dralloc.kube.strategy import AdmissionContext
from dralloc.node.node_object import NodeShape
from dralloc.node.simulated.placeholders import BadTemplate, Variables, fill, fill_text, repetitions
from dralloc.primitives.features import FeatureGates

API_VERSION: Final = "resource.k8s.io/v1"
SOME_TIME: Final = datetime(2026, 1, 1, tzinfo=UTC)
# Marks all nodes and slices that a fleet publishes.
PROFILE_LABEL: Final = "fake.dralloc.io/profile"


Document = dict[str, Any]


class BadProfile(Exception):
    """The profile does not exist or is not valid; the message says why."""


class PoolTemplate(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A pool of devices. Each slice has the fields of a ResourceSlice spec for devices and counters."""

    driver: str
    name: str = "{node}"
    slices: list[dict[str, Any]]
    node_selector: dict[str, Any] | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None

    @property
    def is_placed(self) -> bool:
        return self.node_selector is not None or bool(self.all_nodes) or bool(self.per_device_node_selection)


class NodeKind(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nodes of one kind: `weight` of them in each round of all kinds."""

    weight: int = 1
    labels: dict[str, str] = {}
    capacity: dict[str, str] = {}
    pools: list[PoolTemplate] = []


class NodeGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pools that are shared by each group of `size` nodes."""

    size: int
    pools: list[PoolTemplate]


class FleetProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    description: str = ""
    classes: list[dict[str, Any]] = []
    nodes: list[NodeKind]
    groups: list[NodeGroup] = []
    cluster: list[PoolTemplate] = []


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    shape: NodeShape
    slices: tuple[ResourceSlice, ...]


def profile_names() -> list[str]:
    directory = resources.files("dralloc.node.simulated") / "profiles"
    return sorted(entry.name.removesuffix(".yaml") for entry in directory.iterdir() if entry.name.endswith(".yaml"))


def load_profile(name: str) -> FleetProfile:
    """A built-in profile by its name, or any other by the path of its file; raises `BadProfile`."""
    if name in profile_names():
        text = (resources.files("dralloc.node.simulated") / "profiles" / f"{name}.yaml").read_text("utf-8")
    else:
        try:
            text = Path(name).read_text("utf-8")
        except OSError as error:
            ours = ", ".join(profile_names())
            raise BadProfile(f"no profile {name!r}: {error.strerror}; use a file, or one of {ours}") from None
        except UnicodeDecodeError as error:
            raise BadProfile(f"profile {name}: {error}") from None
    return read_profile(text, name)


def read_profile(text: str, name: str) -> FleetProfile:
    try:
        profile = msgspec.convert(yaml.safe_load(text), FleetProfile)
    except (yaml.YAMLError, msgspec.ValidationError, RecursionError) as error:
        raise BadProfile(f"profile {name}: {' '.join(str(error).split())}") from None
    if not profile.nodes or any(kind.weight < 1 for kind in profile.nodes) or any(g.size < 1 for g in profile.groups):
        raise BadProfile(f"profile {name}: nodes are required, and weights and sizes must be at least 1")
    # Validate one round of all kinds, so that errors are reported before anything is published.
    try:
        for document in chain(_class_documents(profile), *_slice_documents_of_a_round(profile)):
            _judge(document)
    except BadProfile as error:
        raise BadProfile(f"profile {name}: {error}") from None
    return profile


def classes_of(profile: FleetProfile) -> tuple[DeviceClass, ...]:
    return tuple(_typed(document, DeviceClass) for document in _class_documents(profile))


def nodes_of(profile: FleetProfile, count: int, prefix: str) -> Iterator[SimulatedNode]:
    """`count` nodes with their slices, the kinds in turn; a generator, so thousands of nodes need little memory."""
    turn = [kind for kind in profile.nodes for _ in range(kind.weight)]
    for number in range(count):
        kind, name = turn[number % len(turn)], f"{prefix}-{number}"
        try:
            labels = fill(kind.labels, {"node": name, "number": number})
        except BadTemplate as error:
            raise BadProfile(f"labels of node {name}: {error}") from None
        slices = tuple(_typed(document, ResourceSlice) for document in _node_documents(kind, name, number))
        yield SimulatedNode(NodeShape(name=name, labels=labels, capacity=kind.capacity), slices)


def shared_slices(profile: FleetProfile, count: int, prefix: str) -> Iterator[ResourceSlice]:
    """The slices of groups of nodes and of the whole cluster."""
    for document in _shared_documents(profile, count, prefix):
        yield _typed(document, ResourceSlice)


# --- Documents ----------------------------------------------------------------------------------------------------


def _class_documents(profile: FleetProfile) -> Iterator[Document]:
    for each in profile.classes:
        yield {"apiVersion": API_VERSION, "kind": "DeviceClass", **each}


def _slice_documents_of_a_round(profile: FleetProfile) -> Iterator[Iterator[Document]]:
    for number, kind in enumerate(profile.nodes):
        yield _node_documents(kind, f"node-{number}", number)
    yield _shared_documents(profile, 1, "node")


def _node_documents(kind: NodeKind, name: str, number: int) -> Iterator[Document]:
    variables: Variables = {"node": name, "number": number}
    for position, pool in enumerate(kind.pools):
        yield from _pool_documents(pool, variables, f"{name}-{position}", None if pool.is_placed else name)


def _shared_documents(profile: FleetProfile, count: int, prefix: str) -> Iterator[Document]:
    for position, pool in enumerate(profile.cluster):
        yield from _pool_documents(pool, {"prefix": prefix}, f"{prefix}-cluster-{position}", None)
    for kind, group in enumerate(profile.groups):
        for number in range(-(-count // group.size)):
            variables: Variables = {"group": number, "prefix": prefix, "first": number * group.size}
            for position, pool in enumerate(group.pools):
                yield from _pool_documents(pool, variables, f"{prefix}-group-{kind}-{number}-{position}", None)


def _pool_documents(pool: PoolTemplate, variables: Variables, base: str, node: str | None) -> Iterator[Document]:
    try:
        name = fill_text(pool.name, variables)
        specs = [
            _slice_spec(each, inner) for each in pool.slices for inner in repetitions(each.get("repeat"), variables)
        ]
        placement = {
            "nodeName": node,
            "nodeSelector": fill(pool.node_selector, variables),
            "allNodes": pool.all_nodes,
            "perDeviceNodeSelection": pool.per_device_node_selection,
        }
    except BadTemplate as error:
        raise BadProfile(f"pool {pool.name} of {pool.driver}: {error}") from None
    for index, spec in enumerate(specs):
        yield {
            "apiVersion": API_VERSION,
            "kind": "ResourceSlice",
            "metadata": {"name": f"{base}-{index:05x}"},
            "spec": {
                "driver": pool.driver,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": len(specs)},
                **{key: value for key, value in placement.items() if value is not None},
                **spec,
            },
        }


def _slice_spec(template: Document, variables: Variables) -> Document:
    return {
        key: _repeated(value, variables) if isinstance(value, list) else fill(value, variables)
        for key, value in template.items()
        if key != "repeat"
    }


def _repeated(items: list[Any], variables: Variables) -> list[Any]:
    filled: list[Any] = []
    for item in items:
        repeat = item.get("repeat") if isinstance(item, dict) else None
        plain = {key: value for key, value in item.items() if key != "repeat"} if isinstance(item, dict) else item
        filled += [fill(plain, inner) for inner in repetitions(repeat, variables)]
    return filled


def _typed(document: dict[str, Any], wire_type: type[Any]) -> Any:
    try:
        return decode(encode(document), wire_type)
    except DecodeError as error:
        raise BadProfile(f"{document['kind']} of the profile: {error}") from None


def _judge(document: Document) -> None:
    """Raise `BadProfile` for objects that an API server would refuse, or whose fields it would drop."""
    kind = find_kind(document["apiVersion"], document["kind"])
    assert kind is not None, "profiles have classes and slices"
    body = encode(document)
    new = _typed(document, kind.hub)
    about = f"{kind.kind} {new.metadata.name}"
    if stray := find_stray_fields(body, kind.hub):
        raise BadProfile(f"{about}: {stray[0]}")
    request = WriteRequest(verb=Verb.CREATE, kind=kind, version=kind.hub_version, new=new, body=body)
    around = AdmissionContext(gates=FeatureGates.defaults(), now=SOME_TIME, namespace_labels={}, uid="", name_suffix="")
    match admit(request, around):
        case Refused(faults=faults):
            raise BadProfile(f"{about}: {'; '.join(map(str, faults))}")
        case Admitted():
            return
