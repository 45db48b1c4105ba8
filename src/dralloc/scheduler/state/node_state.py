"""A node as the scheduler sees it: what it offers, and what its pods use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from msgspec import Struct, field
from msgspec.structs import replace

from dralloc.devices import node_selectors
from dralloc.kube.core_v1 import Node, Taint
from dralloc.scheduler.state.pod_resources import UNSTATED, HostPort, PodResources


@dataclass(frozen=True)
class NodeOffer:
    """The fields of a node that matter to the scheduler. Heartbeats change none of them."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    is_unschedulable: bool
    allocatable: Mapping[str, int]
    declared_features: frozenset[str]

    @classmethod
    def of(cls, node: Node) -> NodeOffer:
        return cls(
            name=node.metadata.name,
            labels=node.metadata.labels,
            taints=node.spec.taints,
            is_unschedulable=node.spec.unschedulable,
            allocatable={name: amount.nanos for name, amount in node.status.allocatable.items()},
            declared_features=frozenset(node.status.declared_features),
        )

    @cached_property
    def place(self) -> node_selectors.NodeFacts:
        """The node as the allocator sees it."""
        return node_selectors.NodeFacts(self.name, self.labels, self.declared_features)


class Load(Struct, frozen=True, gc=False):
    """What the pods on a node use."""

    amounts: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)
    ports: tuple[HostPort, ...] = ()

    def plus(self, resources: PodResources) -> Load:
        return Load(
            _shifted(self.amounts, resources.amounts, 1),
            _shifted(self.weights, resources.weights, 1),
            (*self.ports, *resources.ports),
        )

    def minus(self, resources: PodResources) -> Load:
        return Load(
            _shifted(self.amounts, resources.amounts, -1),
            _shifted(self.weights, resources.weights, -1),
            _without_first(self.ports, resources.ports) if resources.ports else self.ports,
        )


EMPTY = Load()


class NodeState(Struct, frozen=True, dict=True):
    """`rank` decides between nodes with equal scores."""

    offer: NodeOffer
    load: Load = EMPTY
    rank: int = 0

    @cached_property
    def free(self) -> Mapping[str, int]:
        """What pods may still request."""
        used = self.load.amounts
        return {name: nanos - used.get(name, 0) for name, nanos in self.offer.allocatable.items()}

    @cached_property
    def unweighted(self) -> Mapping[str, tuple[int, int]]:
        """What node scores count as free, and as allocatable, of the resources that they count."""
        used, allocatable = self.load.weights, self.offer.allocatable
        return {
            name: (allocatable[name] - used.get(name, 0), allocatable[name])
            for name in UNSTATED
            if allocatable.get(name)
        }

    @property
    def name(self) -> str:
        return self.offer.name

    def with_load(self, load: Load) -> NodeState:
        return replace(self, load=load)


def _without_first(ports: Iterable[HostPort], gone: Iterable[HostPort]) -> tuple[HostPort, ...]:
    """The ports without one of each that is gone: another pod may have the same one."""
    left, kept = set(gone), list[HostPort]()
    for port in ports:
        if port in left:
            left.discard(port)
        else:
            kept.append(port)
    return tuple(kept)


def _shifted(amounts: Mapping[str, int], change: Mapping[str, int], sign: int) -> Mapping[str, int]:
    shifted = dict(amounts)
    for name, nanos in change.items():
        shifted[name] = shifted.get(name, 0) + sign * nanos
    return shifted
