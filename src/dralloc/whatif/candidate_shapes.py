"""Shapes of nodes that a cluster could grow by, after the profiles of simulated nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Final

from dralloc.api.codec import decode, encode
from dralloc.api.core_v1 import Node
from dralloc.api.resource_v1 import DeviceClass, ResourceSlice
from dralloc.fleet import profiles
from dralloc.node.node_object import node_document, node_status
from dralloc.whatif.cluster_objects import ClusterObjects
from dralloc.whatif.scheduler_state import with_room

NODES_MAX: Final = 10_000


class BadShape(ValueError):
    """A shape that cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class CandidateShape:
    """A profile of nodes, and how many of them there may be."""

    name: str
    profile: profiles.FleetProfile
    nodes_max: int

    @classmethod
    def parse(cls, text: str) -> CandidateShape:
        """Reads `PROFILE` or `PROFILE=COUNT`. Raises BadShape."""
        name, equals, count = text.partition("=")
        if equals and (not count.isdecimal() or not 1 <= int(count) <= NODES_MAX):
            raise BadShape(f"{text}: the number of nodes must be between 1 and {NODES_MAX}")
        try:
            profile = profiles.load_profile(name)
        except profiles.BadProfile as error:
            raise BadShape(f"{text}: {error}") from None
        return cls(Path(name).stem, profile, int(count) if equals else NODES_MAX)

    @property
    def unit(self) -> int:
        """How many nodes are added at once: a round of all kinds, and whole groups."""
        kinds = sum(kind.weight for kind in self.profile.nodes)
        return math.lcm(kinds, *(group.size for group in self.profile.groups))

    @property
    def growths_max(self) -> int:
        return -(-self.nodes_max // self.unit)

    @property
    def prefix(self) -> str:
        return f"new-{self.name}"


@dataclass(frozen=True, slots=True)
class Growth:
    """Nodes that are added together, with their devices."""

    nodes: tuple[Node, ...]
    slices: tuple[ResourceSlice, ...]


class Growths:
    """The growths of a shape, by number. The same number gives the same growth."""

    def __init__(self, shape: CandidateShape, now: datetime) -> None:
        self._shape = shape
        self._now = now
        self._nodes = profiles.nodes_of(shape.profile, NODES_MAX + shape.unit, shape.prefix)
        self._made: list[Growth] = []
        self._shared: set[str] = set()

    def __call__(self, number: int) -> Growth:
        while len(self._made) <= number:
            self._made.append(self._make())
        return self._made[number]

    def _make(self) -> Growth:
        simulated = tuple(islice(self._nodes, self._shape.unit))
        count = (len(self._made) + 1) * self._shape.unit
        everything = profiles.shared_slices(self._shape.profile, count, self._shape.prefix)
        shared = [item for item in everything if item.metadata.name not in self._shared]
        self._shared.update(item.metadata.name for item in shared)
        own = (item for each in simulated for item in each.slices)
        return Growth(tuple(_node(each, self._now) for each in simulated), (*own, *shared))


def _node(simulated: profiles.SimulatedNode, now: datetime) -> Node:
    document = {**node_document(simulated.shape), "status": node_status(simulated.shape, now, now, is_ready=True)}
    return with_room(decode(encode(document), Node))


def add_classes(objects: ClusterObjects, shapes: list[CandidateShape]) -> None:
    """Adds the device classes of the shapes; classes that exist are kept."""
    for shape in shapes:
        for item in profiles.classes_of(shape.profile):
            if ("", item.metadata.name) not in objects.all(DeviceClass):
                objects.add(item)
