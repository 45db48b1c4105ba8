"""The cluster that `allocate`, `explain`, `plan` and `top` answer from: one that manifests describe, or a running one.

Objects are taken as a cluster gives them: nothing is refused that can be read. Where there are no nodes, the slices say which
there must be.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from dralloc.allocator.features import Features
from dralloc.api import core_v1
from dralloc.api.apps_v1 import DaemonSet, Deployment
from dralloc.api.batch_v1 import Job
from dralloc.api.codec import DecodeError, decode
from dralloc.api.conversion import V1BETA1, to_hub
from dralloc.api.defaulting import default_resource_claim, default_resource_claim_template
from dralloc.api.meta_v1 import ApiObject
from dralloc.api.pod_v1 import Pod
from dralloc.api.registry import Kind, find_in_other_versions, find_kind
from dralloc.api.resource_v1 import (
    GROUP,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from dralloc.cli.manifest_records import Record, fail_unread, read_records
from dralloc.cli.output import FINDINGS, fail, say
from dralloc.primitives.features import FeatureGates
from dralloc.snapshot.cluster import Snapshot
from dralloc.snapshot.node_selectors import Node

# Where there is nothing that names a node.
SOME_NODE = "some-node"

Name = tuple[str, str]
ObjectT = TypeVar("ObjectT", bound=ApiObject)


@dataclass(eq=False)
class World:
    """Objects by namespace and name; those without a namespace have an empty one."""

    gates: FeatureGates
    # Where the objects are, in a sentence.
    place: str = "the files"
    # Where names are looked up that come without a namespace.
    namespace: str = "default"
    objects: dict[type[ApiObject], dict[Name, ApiObject]] = field(default_factory=dict)

    def all(self, kind: type[ObjectT]) -> Mapping[Name, ObjectT]:
        return self.objects.get(kind, {})  # type: ignore[return-value]  # filed by their own type

    def add(self, obj: ApiObject) -> None:
        """Takes the place of an object of the same name."""
        key = (obj.metadata.namespace, obj.metadata.name)
        self.objects.setdefault(type(obj), {})[key] = obj

    @property
    def features(self) -> Features:
        return Features.of(self.gates)

    @cached_property
    def classes(self) -> Mapping[str, DeviceClass]:
        return {name: found for (_, name), found in self.all(DeviceClass).items()}

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """By name."""
        stated = self.all(core_v1.Node)
        if stated:
            nodes = [place_of(node) for node in stated.values()]
        else:
            nodes = [Node(name) for name in self._named_nodes() or {SOME_NODE}]
        return tuple(sorted(nodes, key=lambda node: node.name))

    def _named_nodes(self) -> set[str]:
        named: set[str | None] = set()
        for resource_slice in self.all(ResourceSlice).values():
            named.add(resource_slice.spec.node_name)
            if resource_slice.spec.per_device_node_selection:
                named.update(device.node_name for device in resource_slice.spec.devices or ())
        named.update(pod.spec.node_name for pod in self.all(Pod).values())
        return {name for name in named if name}

    @property
    def has_stated_nodes(self) -> bool:
        return bool(self.all(core_v1.Node))

    @cached_property
    def snapshot(self) -> Snapshot:
        return Snapshot.of(
            slices=self.all(ResourceSlice).values(),
            claims=self.all(ResourceClaim).values(),
            rules=self.all(DeviceTaintRule).values(),
            nodes=self.nodes,
        )

    # --- Finding what a user means -------------------------------------------------------------------------------------

    def node(self, name: str) -> Node:
        found = next((node for node in self.nodes if node.name == name), None)
        return found or fail(self._unknown("node", name, (node.name for node in self.nodes)), FINDINGS)

    def claim(self, text: str) -> ResourceClaim:
        return self._find(ResourceClaim, "claim", text)

    def pod(self, text: str) -> Pod:
        return self._find(Pod, "pod", text)

    def _find(self, kind: type[ObjectT], noun: str, text: str) -> ObjectT:
        """The object that `NAMESPACE/NAME` means, or a name alone in the namespace that is meant."""
        namespace, slash, name = text.partition("/")
        key = (namespace, name) if slash else (self.namespace, text)
        known = self.all(kind)
        return known.get(key) or fail(self._unknown(noun, "/".join(key), map("/".join, known)), FINDINGS)

    def _unknown(self, noun: str, name: str, known: Iterable[str]) -> str:
        from dralloc.whatif.explanation.text import listed

        here = name.rpartition("/")[0]
        names = sorted(known, key=lambda other: (other.rpartition("/")[0] != here, other))
        if not names:
            return f"there is no {noun} {name}: there are no {noun}s in {self.place}"
        by_tail: dict[str, list[str]] = {}
        for other in names:
            by_tail.setdefault(other.rpartition("/")[2], []).append(other)
        tails = difflib.get_close_matches(name.rpartition("/")[2], by_tail, n=1)
        close = difflib.get_close_matches(name, by_tail[tails[0]], n=1, cutoff=0) if tails else []
        if close:
            return f"there is no {noun} {name}, did you mean {close[0]}?"
        return f"there is no {noun} {name}; there {'is' if len(names) == 1 else 'are'} {listed(names, noun)}"


def place_of(node: core_v1.Node) -> Node:
    """What slices can select of a node."""
    return Node(node.metadata.name, node.metadata.labels, frozenset(node.status.declared_features))


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a world is taken from: files, the cluster of a kubeconfig, or a cluster with files added to it."""

    files: list[str] | None = None
    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None

    @property
    def has_cluster(self) -> bool:
        return not self.files or self.kubeconfig is not None or self.context is not None


def load_world(
    origin: Origin,
    feature_gates: FeatureGates,
    *,
    needed: Collection[type[ApiObject]],
    useful: Collection[type[ApiObject]] = (),
) -> World:
    """Reads what matters. Ends the command where something in the files, or what is `needed` of a cluster, cannot be read.

    Of a cluster nothing else is read but what is `useful`.
    """
    world = World(feature_gates, namespace=origin.namespace or "default")
    if origin.has_cluster:
        from dralloc.cli.cluster_reading import add_cluster

        add_cluster(world, origin, needed, useful)
    _add_records(world, read_records(origin.files) if origin.files else [])
    if any(world.all(kind) for kind in (Job, Deployment, DaemonSet)):
        from dralloc.cli.workloads import add_what_workloads_make

        add_what_workloads_make(world)
    if not world.objects:
        named = ", ".join(origin.files or ()) or world.place
        fail(f"there is nothing in {named} that devices are allocated from or to")
    return world


def tell_derived_nodes(world: World) -> None:
    if not world.has_stated_nodes:
        say(f"there are no nodes in {world.place}: {_count_derived(world)}", err=True, prefix="note: ")


def _count_derived(world: World) -> str:
    if [node.name for node in world.nodes] == [SOME_NODE]:
        return f"one without labels is assumed, called {SOME_NODE}; with --kubeconfig or --context, files are added to a cluster"
    return f"{len(world.nodes)} that slices and pods name are taken, without labels"


# --- Objects --------------------------------------------------------------------------------------------------------------

_VIEWS: Mapping[str, type[ApiObject]] = {
    "Pod": Pod,
    "Node": core_v1.Node,
    "Job": Job,
    "Deployment": Deployment,
    "DaemonSet": DaemonSet,
}
_HUBS = (ResourceSlice, DeviceClass, ResourceClaim, ResourceClaimTemplate, DeviceTaintRule)


def known_type(kind: Kind) -> type[ApiObject] | None:
    """As what the allocator knows objects of the kind; None where they are of no interest."""
    return kind.hub if kind.hub in _HUBS else _VIEWS.get(kind.kind)


def read_known(kind: Kind, version: str, body: bytes) -> ApiObject:
    """The object as the allocator knows it; raises `DecodeError`. Items of lists do not say what they are."""
    served = kind.served(version)
    assert served is not None, "the kind was found by its version"
    if kind.kind in _VIEWS:
        obj = decode(body, _VIEWS[kind.kind])
    else:
        obj = _defaulted(to_hub(decode(body, served.wire_type)), flattened=version == V1BETA1)
    return obj if obj.kind else replace(obj, api_version=kind.api_version(kind.hub_version), kind=kind.kind)


def _add_records(world: World, records: list[Record]) -> None:
    strange: set[tuple[str, str, str]] = set()
    for record in records:
        if (obj := _object(record, world.namespace)) is not None:
            world.add(obj)
        elif record.api_version.startswith(f"{GROUP}/"):
            strange.add((record.file, record.kind, record.api_version))
    for file, kind, api_version in sorted(strange):
        say(f"{file}: {kind} of {api_version} is not known, and left out", err=True, prefix="note: ")


def _object(record: Record, namespace: str) -> ApiObject | None:
    named = find_in_other_versions(record.api_version, record.kind)
    if named is None or known_type(named) is None:
        return None
    kind = find_kind(record.api_version, record.kind)
    if kind is None:
        fail_unread(record)
    try:
        obj = read_known(kind, record.api_version.rpartition("/")[2], record.body)
    except DecodeError as error:
        fail(f"{record.file}: {error}; dralloc validate {record.file} says where")
    if not obj.metadata.name:
        fail(f"{record.file}: a {kind.kind} has no name")
    if kind.namespaced and not obj.metadata.namespace:
        obj = replace(obj, metadata=replace(obj.metadata, namespace=namespace))
    return obj


def _defaulted(obj: ApiObject, *, flattened: bool) -> ApiObject:
    match obj:
        case ResourceClaim():
            return default_resource_claim(obj, flattened=flattened)
        case ResourceClaimTemplate():
            return default_resource_claim_template(obj, flattened=flattened)
        case _:
            return obj
