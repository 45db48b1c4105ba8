"""The cluster that a trace is simulated on: nodes and devices, and how pods of tables request those devices."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from msgspec.structs import replace

from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.scheduler_state import state_of
from dralloc.kube.codec import decode, encode
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_claims import controller_of
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import Device, DeviceClass, ResourceClaim, ResourceSlice
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.quantity import Quantity
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.study.comparison import BadInput
from dralloc.study.trace import ManifestPod, PodShape, Trace

GPU_DRIVER: Final = "gpu.example.com"
NIC_DRIVER: Final = "nic.example.com"
# As in the experiments with the public traces: never the limit.
PODS_PER_NODE: Final = 1001
# A resource of nodes for each group of pods that limits its pods on a node.
GROUP_RESOURCE: Final = "group.dralloc.io/"


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node of a table, with devices of one model."""

    name: str
    cpu_milli: int
    memory_mib: int
    devices: int = 0
    model: str = ""
    nics: int = 0
    disk_mib: int = 0
    pods: int = PODS_PER_NODE


@dataclass(frozen=True, slots=True)
class DeviceTerms:
    """How a pod of a table requests devices: the class, the attribute with the model, and the capacity that a share consumes.

    `share` is the most that a device has of this capacity; without it, a part of a device takes the whole device.
    """

    device_class: str
    driver: str
    capacity: str = ""
    share: Quantity = Quantity.ZERO
    nic_class: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """Nodes with devices. `terms` is None where pods of tables cannot request the devices."""

    name: str
    objects: ClusterObjects
    terms: DeviceTerms | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes of the cluster."""
        return self.objects.nodes

    @property
    def slices(self) -> Iterable[ResourceSlice]:
        """The slices of the cluster."""
        return self.objects.all(ResourceSlice).values()

    @property
    def measured_driver(self) -> str:
        """The driver whose devices are measured; empty for all."""
        return self.terms.driver if self.terms is not None else ""

    @property
    def digest(self) -> str:
        """Equal for clusters with equal content, whatever their name."""
        found = sha256(repr(self.terms).encode())
        for kind, objects in sorted(self.objects.objects.items(), key=lambda item: item[0].__name__):
            for key, obj in objects.items():
                found.update(repr((kind.__name__, key)).encode() + encode(obj))
        return found.hexdigest()

    def has(self, resource: str) -> bool:
        """True if a node has the resource."""
        return any(resource in node.status.allocatable for node in self.nodes)

    def nodes_for(self, trace: Trace) -> list[Node]:
        """The nodes in the order of the file, with the limits of the trace's groups."""
        limits = _group_limits(trace)
        nodes: Iterable[Node] = self.objects.all(Node).values() or self.nodes
        return [_with_groups(node, limits) if limits else node for node in nodes]

    def state(self, trace: Trace, seed: int) -> ClusterState:
        """The cluster before the first arrival. Nodes are in a random order, in which ties between them are broken.

        Pods that run in the cluster stay where they are, except those that the trace has itself.
        """
        nodes = self.nodes_for(trace)
        names = [node.metadata.name for node in nodes]
        order = list(range(len(names)))
        random.Random(seed).shuffle(order)
        ranks = dict(zip(names, order, strict=True))
        return state_of(_without_arrivals(self.objects, trace), nodes, ranks.__getitem__)


def _without_arrivals(objects: ClusterObjects, trace: Trace) -> ClusterObjects:
    """The objects without the pods of the trace and without claims of theirs, as when both are of one dump."""
    loads = [each.load for each in trace.arrivals if isinstance(each.load, ManifestPod)]
    if not loads:
        return objects
    pods = {(each.pod.metadata.namespace, each.pod.metadata.name) for each in loads}
    named = {
        (claim.metadata.namespace, claim.metadata.name) for each in loads for claim in (*each.claims, *each.shared)
    }
    kept = dict(objects.objects)
    kept[Pod] = {key: pod for key, pod in objects.all(Pod).items() if key not in pods}
    kept[ResourceClaim] = {
        key: claim
        for key, claim in objects.all(ResourceClaim).items()
        if key not in named and (key[0], _pod_of(claim)) not in pods
    }
    return ClusterObjects(objects.gates, place=objects.place, objects=kept, now=objects.now)


def _pod_of(claim: ResourceClaim) -> str:
    owner = controller_of(claim.metadata)
    return owner.name if owner is not None and owner.kind == "Pod" else ""


def _group_limits(trace: Trace) -> Mapping[str, int]:
    """The most pods of each group that a node may have."""
    shapes = (each.load for each in trace.arrivals if isinstance(each.load, PodShape))
    return {each.group: each.per_node_max for each in shapes if each.per_node_max is not None}


def _with_groups(node: Node, limits: Mapping[str, int]) -> Node:
    resources = {GROUP_RESOURCE + group: Quantity.of(limit) for group, limit in limits.items()}
    allocatable = {**node.status.allocatable, **resources}
    return replace(node, status=replace(node.status, allocatable=allocatable))


# --- From tables --------------------------------------------------------------------------------------------------


def cluster_of_rows(name: str, rows: Iterable[NodeRow]) -> Cluster:
    """A cluster whose devices can be shared in thousandths."""
    objects = ClusterObjects(FeatureGates.defaults(), place=name)
    nics = False
    for device_class, driver in (("gpu", GPU_DRIVER), ("nic", NIC_DRIVER)):
        objects.add(_object(_class_document(device_class, driver), DeviceClass))
    for row in rows:
        objects.add(_object(_node_document(row), Node))
        for document in _slice_documents(row):
            objects.add(_object(document, ResourceSlice))
        nics = nics or row.nics > 0
    share = Quantity.of(1000)
    return Cluster(name, objects, DeviceTerms("gpu", GPU_DRIVER, "milli", share, "nic" if nics else ""))


def _object(document: Mapping[str, Any], kind: type[Any]) -> Any:
    return decode(encode(document), kind)


def _class_document(name: str, driver: str) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]},
    }


def _node_document(row: NodeRow) -> dict[str, Any]:
    amounts = {"cpu": f"{row.cpu_milli}m", "memory": f"{row.memory_mib}Mi", "pods": str(row.pods)}
    if row.disk_mib:
        amounts["ephemeral-storage"] = f"{row.disk_mib}Mi"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": row.name, "uid": row.name, "labels": {"kubernetes.io/hostname": row.name}},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def _slice_documents(row: NodeRow) -> Iterator[dict[str, Any]]:
    if row.devices:
        model = {"attributes": {"model": {"string": row.model}}} if row.model else {}
        yield _slice_document(row.name, GPU_DRIVER, "gpu", row.devices, "milli", 1000, model)
    if row.nics:
        yield _slice_document(row.name, NIC_DRIVER, "nic", row.nics, "percent", 100, {})


def _slice_document(
    node: str, driver: str, prefix: str, count: int, capacity: str, value: int, more: Mapping[str, Any]
) -> dict[str, Any]:
    policy = {"default": str(value), "validRange": {"min": "1", "step": "1"}}
    device = {
        "allowMultipleAllocations": True,
        "capacity": {capacity: {"value": str(value), "requestPolicy": policy}},
        **more,
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{prefix}", "uid": f"{node}-{prefix}", "resourceVersion": "1"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"{prefix}-{number}", **device} for number in range(count)],
        },
    }


# --- From other objects -------------------------------------------------------------------------------------------


def terms_for(objects: ClusterObjects, device_class: str = "", capacity: str = "") -> DeviceTerms | None:
    """How pods of tables request the devices of these objects; None if there are no devices. Raises BadInput.

    The class is the one that is named, or the only one, or that of the driver with most devices; the capacity is the one
    that is named, or the first that the devices share.
    """
    devices: dict[str, list[Device]] = {}
    for each in objects.all(ResourceSlice).values():
        devices.setdefault(each.spec.driver, []).extend(each.spec.devices or ())
    classes = [name for _, name in objects.all(DeviceClass)]
    if device_class and device_class not in classes:
        raise BadInput(f"no device class {device_class!r} in {objects.place}; known: {', '.join(classes) or 'none'}")
    if not devices or not classes:
        return None
    driver = Counter({name: len(found) for name, found in devices.items()}).most_common(1)[0][0]
    if device_class in devices:
        driver = device_class
    chosen = device_class or (driver if driver in classes else classes[0])
    shared = [each for each in devices[driver] if each.allow_multiple_allocations]
    names = list(dict.fromkeys(name for each in shared for name in each.capacity))
    if capacity and capacity not in names:
        raise BadInput(f"no shared capacity {capacity!r} of {driver}; known: {', '.join(names) or 'none'}")
    if not names:
        return DeviceTerms(chosen, driver)
    name = capacity or names[0]
    share = max(each.capacity[name].value for each in shared if name in each.capacity)
    return DeviceTerms(chosen, driver, name, share)
