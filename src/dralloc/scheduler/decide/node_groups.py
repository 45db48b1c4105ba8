"""Nodes that are alike, in groups: a score of one node of a group is that of all, and so is whether its devices serve a demand.

Most nodes of a large cluster are alike: those that are empty, and have the same devices and resources. A kind of pod then looks at
each state of a node, not at each node.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator
from typing import NamedTuple

from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.local_devices import LocalDeviceIndex
from dralloc.scheduler.decide.node_rooms import NodeRooms
from dralloc.scheduler.state.change_log import ChangeReader, LastChanges
from dralloc.scheduler.state.node_state import NodeState


class Member(NamedTuple):
    """A node of a group. Of equal nodes, the least is the best."""

    rank: int
    name: str
    number: int


class AlikeNodes:
    """`mask` has the numbers of the members. The number of a group is never given to another."""

    __slots__ = ("key", "mask", "members", "number")

    def __init__(self, key: Hashable, number: int) -> None:
        self.key = key
        self.number = number
        self.mask = 0
        # Ascending.
        self.members: list[Member] = []

    def add(self, member: Member) -> None:
        insort(self.members, member)
        self.mask |= 1 << member.number

    def remove(self, member: Member) -> None:
        del self.members[bisect_left(self.members, member)]
        self.mask &= ~(1 << member.number)

    def first_in(self, mask: int) -> Member | None:
        """The best member of the mask."""
        left = self.mask & mask
        if left:
            for member in self.members:
                if left >> member.number & 1:
                    return member
        return None


class NodeGroups:
    """The groups of one view. Without `local` devices to tell what is alike, each node is a group of its own."""

    def __init__(self, view: ClusterView, rooms: NodeRooms, local: LocalDeviceIndex | None) -> None:
        self._view = view
        self._rooms = rooms
        self._local = local
        # The numbers of the next group and of the next change.
        self._number = self.next = 0
        self._reader = ChangeReader(view.changes)
        self._restart()

    def _restart(self) -> None:
        # Groups that got a node, or whose nodes offer something else.
        self.changed: LastChanges[AlikeNodes] = LastChanges()
        self.next += 1
        self.changed.first = self.next
        self._by_key: dict[Hashable, AlikeNodes] = {}
        self._by_number: dict[int, AlikeNodes] = {}
        self._places: dict[str, tuple[AlikeNodes, Member]] = {}
        for name, node in self._view.nodes.items():
            self._update(name, node)

    def __iter__(self) -> Iterator[AlikeNodes]:
        return iter(self._by_number.values())

    def __len__(self) -> int:
        return len(self._by_number)

    def get(self, number: int) -> AlikeNodes | None:
        """The group with the number; None if it has no nodes any more."""
        return self._by_number.get(number)

    def catch_up(self) -> None:
        """After the numbers of the nodes have."""
        first = self._reader.advance()
        if first is None:
            self._restart()
            return
        for name in self._view.changes.nodes_since(first):
            self._update(name, self._view.nodes.get(name))

    def _update(self, name: str, node: NodeState | None) -> None:
        place = self._places.pop(name, None)
        if place is not None:
            place[0].remove(place[1])
        if node is not None:
            group = self._group_of(node)
            member = Member(node.rank, name, self._rooms.numbers[name])
            group.add(member)
            self._places[name] = group, member
            self.changed.add(group, self.next)
            self.next += 1
        if place is not None and not place[0].members:
            del self._by_key[place[0].key], self._by_number[place[0].number]

    def _group_of(self, node: NodeState) -> AlikeNodes:
        key = self._key(node)
        group = self._by_key.get(key)
        if group is None:
            group = self._by_key[key] = self._by_number[self._number] = AlikeNodes(key, self._number)
            self._number += 1
        return group

    def _key(self, node: NodeState) -> Hashable:
        local, place, snapshot = self._local, node.offer.place, self._view.snapshot
        if local is None:
            return node.name
        devices = local.of(place, snapshot)
        if not local.is_everything(devices, place, snapshot):
            return node.name
        return devices, tuple(sorted(node.offer.allocatable.items())), tuple(sorted(node.free.items()))
