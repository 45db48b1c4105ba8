"""The objects that what-if answers depend on, from manifests, from a server, or from both.

Objects are taken as a cluster gives them: everything that can be decoded is accepted. Without Node objects, the nodes that
slices and pods name are assumed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec.structs import replace

from dralloc.answers.side_facts import SideFacts
from dralloc.devices.allocator.features import Features
from dralloc.devices.node_selectors import NodeFacts
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.apps_v1 import DaemonSet, Deployment
from dralloc.kube.batch_v1 import Job
from dralloc.kube.codec import decode
from dralloc.kube.conversion import V1BETA1, to_hub
from dralloc.kube.core_v1 import ConfigMap, Event, Namespace, Node, ResourceQuota
from dralloc.kube.kind import Kind
from dralloc.kube.meta_v1 import ApiObject, ObjectMeta
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.policy_v1 import PodDisruptionBudget
from dralloc.kube.registry import KINDS
from dralloc.kube.resource_defaults import default_resource_claim, default_resource_claim_template
from dralloc.kube.resource_v1 import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from dralloc.kube.scheduling_v1 import PriorityClass
from dralloc.kube.scheduling_v1beta1 import PodGroup
from dralloc.kube.storage_v1 import GROUP as STORAGE
from dralloc.kube.storage_v1 import CSINode
from dralloc.kube.volumes_v1 import (
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.phrases import first_few

if TYPE_CHECKING:
    from dralloc.scheduler.configuration import SchedulerConfiguration
    from dralloc.scheduler.decide.placement_strategy import PlacementStrategy

__all__ = ["ClusterObjects"]

# What placing pods depends on. Without the first ones there is no answer.
PLACEMENT_NEEDED: Final[frozenset[type[ApiObject]]] = frozenset({ResourceSlice, DeviceClass, ResourceClaim})
VOLUME_KINDS: Final[frozenset[type[ApiObject]]] = frozenset(
    {PersistentVolume, PersistentVolumeClaim, StorageClass, CSIDriver, CSINode, CSIStorageCapacity, VolumeAttachment}
)
PLACEMENT_USEFUL: Final[frozenset[type[ApiObject]]] = VOLUME_KINDS | {
    *(Namespace, Node, Pod, ResourceClaimTemplate, DeviceTaintRule, ResourceQuota, PriorityClass, PodDisruptionBudget),
    PodGroup,
    # Of these, what schedulers have published.
    ConfigMap,
}
# The node that is assumed where no object names one.
ASSUMED_NODE: Final = "some-node"

ObjectKey = tuple[str, str]
ObjectT = TypeVar("ObjectT", bound=ApiObject)


class UnknownObject(LookupError):
    """No object has the name that the user gave; the message names those that exist."""


@dataclass(frozen=True, slots=True)
class StatedScheduler:
    """What the user states about the scheduler, instead of what it has published: everything, the strategy alone, or both."""

    configuration: SchedulerConfiguration | None = None
    strategy: PlacementStrategy | None = None


@dataclass(eq=False)
class ClusterObjects:
    """Objects by type, namespace and name; the namespace of cluster-scoped objects is empty."""

    gates: FeatureGates
    # Where the objects come from, as part of a sentence.
    place: str = "the files"
    # The namespace of names that come without one.
    namespace: str = "default"
    objects: dict[type[ApiObject], dict[ObjectKey, ApiObject]] = field(default_factory=dict)
    # What the user should know about how the objects were read.
    notes: list[str] = field(default_factory=list)
    # The release of the server, if it is known.
    server_version: str = ""
    # The time that answers assume: that of a dump, else the time of reading. In whole seconds, as in a dump.
    now: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))
    stated: StatedScheduler = field(default_factory=lambda: StatedScheduler())
    # What is known beside objects; None if nothing was requested.
    facts: SideFacts | None = None

    def all(self, kind: type[ObjectT]) -> Mapping[ObjectKey, ObjectT]:
        """The objects of a type, by namespace and name."""
        return self.objects.get(kind, {})  # type: ignore[return-value]  # objects are filed by their own type

    def add(self, obj: ApiObject) -> None:
        """Adds the object, in place of one of the same type and name."""
        key = (obj.metadata.namespace, obj.metadata.name)
        self.objects.setdefault(type(obj), {})[key] = obj

    def add_read(self, found: ReadKind) -> None:
        """Adds what was read of a kind."""
        if found.note:
            self.notes.append(found.note)
        for obj in found.objects:
            self.add(obj)

    @property
    def features(self) -> Features:
        """The features that the gates switch on."""
        return Features.of(self.gates)

    @property
    def gates_in_use(self) -> FeatureGates:
        """The gates, and those that the fields of PodGroups prove to be on: without them, a server does not keep the fields."""
        groups = self.all(PodGroup).values()
        proved = {
            "GenericWorkload": bool(groups),
            "DRAWorkloadResourceClaims": any(group.spec.resource_claims for group in groups),
            "TopologyAwareWorkloadScheduling": any(group.topology_key for group in groups),
        }
        return FeatureGates(self.gates.enabled | {name for name, is_on in proved.items() if is_on})

    @property
    def has_nodes(self) -> bool:
        """True if there are Node objects."""
        return bool(self.all(Node))

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """By name; without Node objects, those that slices and pods name, else one assumed node."""
        found = list(self.all(Node).values())
        if not found:
            found = [Node(metadata=ObjectMeta(name=name)) for name in self._named_nodes() or {ASSUMED_NODE}]
        return tuple(sorted(found, key=lambda node: node.metadata.name))

    def _named_nodes(self) -> set[str]:
        named: set[str | None] = set()
        for resource_slice in self.all(ResourceSlice).values():
            named.add(resource_slice.spec.node_name)
            if resource_slice.spec.per_device_node_selection:
                named.update(device.node_name for device in resource_slice.spec.devices or ())
        named.update(pod.spec.node_name for pod in self.all(Pod).values())
        return {name for name in named if name}

    def snapshot(self) -> Snapshot:
        """The devices and what is allocated of them."""
        return Snapshot.of(
            slices=self.all(ResourceSlice).values(),
            claims=self.all(ResourceClaim).values(),
            rules=self.all(DeviceTaintRule).values(),
            nodes=map(place_of, self.nodes),
        )

    # --- Finding what a user means -------------------------------------------------------------------------------------

    def find_node(self, name: str) -> Node:
        """Raises UnknownObject."""
        known = {node.metadata.name: node for node in self.nodes}
        if name not in known:
            raise self._unknown("node", name, known)
        return known[name]

    def find(self, kind: type[ObjectT], noun: str, text: str) -> ObjectT:
        """The object that `NAMESPACE/NAME`, or a name in the default namespace, denotes. Raises UnknownObject."""
        namespace, slash, name = text.partition("/")
        key = (namespace, name) if slash else (self.namespace, text)
        known = self.all(kind)
        if key not in known:
            raise self._unknown(noun, "/".join(key), map("/".join, known))
        return known[key]

    def _unknown(self, noun: str, name: str, known: Iterable[str]) -> UnknownObject:
        namespace = name.rpartition("/")[0]
        names = sorted(known, key=lambda other: (other.rpartition("/")[0] != namespace, other))
        if not names:
            return UnknownObject(f"no {noun} {name}: there are no {noun}s in {self.place}")
        by_tail: dict[str, list[str]] = {}
        for other in names:
            by_tail.setdefault(other.rpartition("/")[2], []).append(other)
        tails = difflib.get_close_matches(name.rpartition("/")[2], by_tail, n=1)
        close = difflib.get_close_matches(name, by_tail[tails[0]], n=1, cutoff=0) if tails else []
        hint = f"did you mean {close[0]}?" if close else f"known: {first_few(names, noun)}"
        return UnknownObject(f"no {noun} {name} in {self.place}; {hint}")


def made_up_uid(obj: ApiObject) -> str:
    """A UID for an object that no server has. It has a slash, so that it cannot be mistaken for a server's."""
    return f"{obj.metadata.namespace}/{obj.metadata.name}"


def exists(obj: ApiObject) -> bool:
    """True if a server has the object, and not only a manifest."""
    return bool(obj.metadata.uid) and not is_made_up(obj.metadata.uid)


def is_made_up(uid: str) -> bool:
    return "/" in uid


def place_of(node: Node) -> NodeFacts:
    """What slices can select of a node."""
    return NodeFacts(node.metadata.name, node.metadata.labels, frozenset(node.status.declared_features))


# --- Decoding -------------------------------------------------------------------------------------------------------------

# By API group and kind: events.k8s.io has another Event.
_VIEWS: Mapping[tuple[str, str], type[ApiObject]] = {
    ("", "Pod"): Pod,
    ("", "Node"): Node,
    ("batch", "Job"): Job,
    ("apps", "Deployment"): Deployment,
    ("apps", "DaemonSet"): DaemonSet,
    ("", "Namespace"): Namespace,
    ("", "ResourceQuota"): ResourceQuota,
    ("scheduling.k8s.io", "PriorityClass"): PriorityClass,
    ("scheduling.k8s.io", "PodGroup"): PodGroup,
    ("policy", "PodDisruptionBudget"): PodDisruptionBudget,
    ("", "Event"): Event,
    ("", "ConfigMap"): ConfigMap,
    ("", "PersistentVolume"): PersistentVolume,
    ("", "PersistentVolumeClaim"): PersistentVolumeClaim,
    (STORAGE, "StorageClass"): StorageClass,
    (STORAGE, "CSIDriver"): CSIDriver,
    (STORAGE, "CSINode"): CSINode,
    (STORAGE, "CSIStorageCapacity"): CSIStorageCapacity,
    (STORAGE, "VolumeAttachment"): VolumeAttachment,
}
_HUBS = (ResourceSlice, DeviceClass, ResourceClaim, ResourceClaimTemplate, DeviceTaintRule)


def object_type_of(kind: Kind) -> type[ApiObject] | None:
    """The type that objects of the kind are decoded to; None for kinds that no answer depends on."""
    return kind.hub if kind.hub in _HUBS else _VIEWS.get((kind.group, kind.kind))


def relevant_kinds() -> Iterator[tuple[type[ApiObject], Kind]]:
    """The kinds that answers depend on, with the type of their objects."""
    for kind in KINDS:
        object_type = object_type_of(kind)
        if object_type is not None:
            yield object_type, kind


@dataclass(frozen=True, slots=True)
class ReadKind:
    """The objects of one kind, or, if `is_missing`, why they cannot be read. `note` is for the user."""

    objects: tuple[ApiObject, ...] = ()
    note: str = ""
    is_missing: bool = False
    # The only namespace that could be read; empty if all could.
    namespace: str = ""
    # True if objects were left out, so that one that is not here may exist.
    is_incomplete: bool = False


def decode_object(kind: Kind, version: str, body: bytes) -> ApiObject:
    """The object in the hub version, with defaults; raises `DecodeError`. Items of lists may lack apiVersion and kind."""
    served = kind.served(version)
    assert served is not None, "the kind was found by its version"
    if (view := _VIEWS.get((kind.group, kind.kind))) is not None:
        obj = decode(body, view)
    else:
        obj = _defaulted(to_hub(decode(body, served.wire_type)), flattened=version == V1BETA1)
    return obj if obj.kind else replace(obj, api_version=kind.api_version(kind.hub_version), kind=kind.kind)


def _defaulted(obj: ApiObject, *, flattened: bool) -> ApiObject:
    match obj:
        case ResourceClaim():
            return default_resource_claim(obj, flattened=flattened)
        case ResourceClaimTemplate():
            return default_resource_claim_template(obj, flattened=flattened)
        case _:
            return obj
