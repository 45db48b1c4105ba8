"""Shapes of nodes and clusters to try them on: what `dralloc plan` hands to the scheduler's planner."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from dralloc.api.codec import decode, encode
from dralloc.api.core_v1 import Node
from dralloc.api.pod_v1 import Pod, PodResourceClaimStatus
from dralloc.api.resource_v1 import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dralloc.cli.orders import turn
from dralloc.cli.output import fail
from dralloc.cli.pods import BadPod, claims_of
from dralloc.cli.serving import ShareIds
from dralloc.cli.world import World
from dralloc.devices.identity import ClaimId
from dralloc.fleet.profiles import (
    BadProfile,
    FleetProfile,
    SimulatedNode,
    classes_of,
    load_profile,
    nodes_of,
    shared_slices,
)
from dralloc.node.node_object import node_document, node_status
from dralloc.primitives.quantity import Quantity
from dralloc.scheduler.decide.cycle import Cycle
from dralloc.scheduler.state.cluster_state import ClusterState
from dralloc.whatif.planner import Growth, Plan, Planner, Refusal

NODES_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Shape:
    """Nodes after a profile, and how many there may be."""

    name: str
    profile: FleetProfile
    nodes_max: int

    @property
    def unit(self) -> int:
        """How many nodes come together: a round of all kinds, and whole groups."""
        kinds = sum(kind.weight for kind in self.profile.nodes)
        return math.lcm(kinds, *(group.size for group in self.profile.groups))

    @property
    def prefix(self) -> str:
        return f"new-{self.name}"


def read_shape(text: str) -> Shape:
    """`PROFILE` or `PROFILE=COUNT`. Ends the command where there is no such profile."""
    name, equals, count = text.partition("=")
    if equals and (not count.isdecimal() or not 1 <= int(count) <= NODES_MAX):
        fail(f"--shape {text}: the number of nodes must be between 1 and {NODES_MAX}")
    try:
        profile = load_profile(name)
    except BadProfile as error:
        fail(f"--shape {text}: {error}")
    return Shape(Path(name).stem, profile, int(count) if equals else NODES_MAX)


class Growths:
    """The nodes of a shape, in the order in which they would come."""

    def __init__(self, shape: Shape, now: datetime) -> None:
        self._shape = shape
        self._now = now
        self._nodes = nodes_of(shape.profile, NODES_MAX + shape.unit, shape.prefix)
        self._made: list[Growth] = []
        self._shared: set[str] = set()

    def __call__(self, number: int) -> Growth:
        while len(self._made) <= number:
            self._made.append(self._make())
        return self._made[number]

    def _make(self) -> Growth:
        fakes = tuple(islice(self._nodes, self._shape.unit))
        count = (len(self._made) + 1) * self._shape.unit
        everything = shared_slices(self._shape.profile, count, self._shape.prefix)
        shared = [item for item in everything if item.metadata.name not in self._shared]
        self._shared.update(item.metadata.name for item in shared)
        own = (item for fake in fakes for item in fake.slices)
        return Growth(tuple(_node(fake, self._now) for fake in fakes), (*own, *shared))


def _node(fake: SimulatedNode, now: datetime) -> Node:
    document = {**node_document(fake.shape), "status": node_status(fake.shape, now, now, is_ready=True)}
    return _with_room(decode(encode(document), Node))


def _with_room(node: Node) -> Node:
    """A node that does not say what it has was written by hand, to try something out, and has enough of everything."""
    if node.status.allocatable:
        return node
    plenty = {name: Quantity.parse("1P") for name in ("cpu", "memory", "ephemeral-storage", "pods")}
    return replace(node, status=replace(node.status, allocatable=plenty))


# --- Clusters -------------------------------------------------------------------------------------------------------------


def pending_pods(world: World, namespace: str | None) -> Iterator[Pod]:
    """The pods that have no node, by priority and age."""
    for pod in sorted(world.all(Pod).values(), key=turn):
        is_waiting = not (pod.spec.node_name or pod.is_finished or pod.metadata.deletion_timestamp)
        if is_waiting and namespace in (None, pod.metadata.namespace):
            yield pod


def add_classes(world: World, shapes: list[Shape]) -> None:
    """Classes that come with the shapes are there for all pods, unless there are others of the same name."""
    for shape in shapes:
        for item in classes_of(shape.profile):
            if ("", item.metadata.name) not in world.all(DeviceClass):
                world.add(item)


def plan_with(world: World, pods: list[Pod], shape: Shape, now: datetime) -> tuple[Plan, ClusterState]:
    """Where the pods would go, if as many nodes of the shape came as they need, and the cluster as it would be then."""
    cluster = _cluster_of(world)
    ready: list[Pod] = []
    refused: list[Refusal] = []
    for pod in pods:
        try:
            ready.append(_with_claims(world, cluster, pod))
        except BadPod as error:
            refused.append(Refusal(pod, str(error)))
    cycle = Cycle(cluster, world.gates)
    growths_max = -(-shape.nodes_max // shape.unit)
    planner = Planner(
        cluster,
        cycle,
        grow=Growths(shape, now),
        growths_max=growths_max,
        now=now,
        share_ids=ShareIds(shape.name),
    )
    plan = planner.plan(ready)
    return Plan(plan.placements, (*refused, *plan.refusals), plan.nodes), cluster


def _cluster_of(world: World) -> ClusterState:
    cluster = ClusterState()
    for node in world.all(Node).values():
        cluster.node_changed(None, _with_room(node))
    for resource_slice in world.all(ResourceSlice).values():
        cluster.slice_changed(None, resource_slice)
    for device_class in world.all(DeviceClass).values():
        cluster.class_changed(None, device_class)
    for rule in world.all(DeviceTaintRule).values():
        cluster.rule_changed(None, rule)
    for claim in world.all(ResourceClaim).values():
        cluster.claim_changed(None, claim)
    for pod in world.all(Pod).values():
        cluster.pod_changed(None, pod)
    return cluster


def _with_claims(world: World, cluster: ClusterState, pod: Pod) -> Pod:
    """The pod as it is once its claims are made from their templates; the cluster gets those. Raises BadPod."""
    if not pod.metadata.uid:
        uid = f"{pod.metadata.namespace}/{pod.metadata.name}"
        pod = replace(pod, metadata=replace(pod.metadata, uid=uid))
    claims = claims_of(world, pod)
    for claim in claims.claims:
        if ClaimId.of(claim) in claims.expected:
            cluster.claim_changed(None, claim)
    names = {entry: claim.metadata.name for entry, claim in claims.by_entry.items()}
    statuses = tuple(
        PodResourceClaimStatus(name=entry.name, resource_claim_name=names.get(entry.name))
        for entry in pod.spec.resource_claims
        if entry.resource_claim_template_name
    )
    return replace(pod, status=replace(pod.status, resource_claim_statuses=statuses))
