"""Which nodes fit, as masks: bit i of a mask stands for the node with number i.

A node that gets a pod changes few answers: those for amounts between what it had and what it has left. They are corrected when
the node changes, for all pods that request the same amount. What a pod costs then does not grow with the kinds of pods times nodes:
the nodes that fit are the common bits of a few masks, and nodes that do not fit are looked at when their reasons are asked for.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from typing import Final
from weakref import WeakValueDictionary

from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.device_judge import DeviceJudge
from dralloc.scheduler.decide.offer_verdicts import OfferJudge
from dralloc.scheduler.decide.pod_requirements import PodRequirements
from dralloc.scheduler.state.node_state import NodeState
from dralloc.scheduler.state.pod_resources import PodResources
from dralloc.snapshot.slices import bits_of

# How many amounts of one resource have a mask.
AMOUNTS_MAX: Final = 2000
# What a node has left that does not exist.
_NOTHING: Final = -(1 << 200)


class _ResourceMasks:
    """Which nodes have an amount of one resource left, for the amounts that pods request."""

    def __init__(self) -> None:
        # Ascending, with the mask of each.
        self._amounts: list[int] = []
        self._masks: list[int] = []

    def mask(self, amount: int, left: Iterable[int]) -> int:
        """`left` is what the nodes have left, the highest number first."""
        index = bisect_left(self._amounts, amount)
        if index < len(self._amounts) and self._amounts[index] == amount:
            return self._masks[index]
        if len(self._amounts) >= AMOUNTS_MAX:
            self._amounts.clear()
            self._masks.clear()
            index = 0
        mask = int("".join(["1" if each >= amount else "0" for each in left]) or "0", 2)
        self._amounts.insert(index, amount)
        self._masks.insert(index, mask)
        return mask

    def move(self, number: int, before: int, after: int) -> None:
        amounts = self._amounts
        low, high = bisect_right(amounts, min(before, after)), bisect_right(amounts, max(before, after))
        for index in range(low, high):
            self._masks[index] ^= 1 << number


class NodeRooms:
    """The numbers of the nodes of a view, and what they have left. A number is never given to another node."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._restart()

    def _restart(self) -> None:
        self._read = self._view.changes.next
        self.names: list[str] = []
        self.numbers: dict[str, int] = {}
        self._left: list[Mapping[str, int] | None] = []
        self._masks: dict[str, _ResourceMasks] = {}
        for name, node in self._view.nodes.items():
            self._update(name, node)

    def catch_up(self) -> None:
        changes, read = self._view.changes, self._read
        if not changes.is_known_since(read):
            self._restart()
            return
        self._read = changes.next
        nodes = self._view.nodes
        for name in {*changes.changed.since(read), *changes.worsened.since(read)}:
            self._update(name, nodes.get(name))

    def _update(self, name: str, node: NodeState | None) -> None:
        number = self.numbers.setdefault(name, len(self._left))
        if number == len(self._left):
            self._left.append(None)
            self.names.append(name)
        before, after = self._left[number], node.free if node is not None else None
        self._left[number] = after
        for resource, masks in self._masks.items():
            masks.move(number, _left_of(resource, before), _left_of(resource, after))

    def mask(self, amounts: Mapping[str, int]) -> int:
        """The nodes that have all the amounts left."""
        found = -1
        for resource, amount in amounts.items():
            masks = self._masks.setdefault(resource, _ResourceMasks())
            found &= masks.mask(amount, (_left_of(resource, left) for left in reversed(self._left)))
        return found


def _left_of(resource: str, left: Mapping[str, int] | None) -> int:
    return left.get(resource, 0) if left is not None else _NOTHING


class ServedNodes:
    """The nodes whose devices serve one demand, as far as they were asked for."""

    def __init__(self, devices: DeviceJudge, rooms: NodeRooms, view: ClusterView) -> None:
        self._devices = devices
        self._rooms = rooms
        self._view = view
        # False once a node was asked for whose devices must be searched, or are not its own.
        self.is_exact = True
        self._read = view.changes.next
        self._known = 0
        self.mask = 0

    def catch_up(self) -> None:
        changes, read = self._view.changes, self._read
        if not changes.is_known_since(read):
            self._known = self.mask = 0
            self._read = changes.next
            return
        self._read = changes.next
        for name in changes.changed.since(read):
            self._forget(self._rooms.numbers[name])
        for name in changes.taken.since(read):
            # What is taken serves no other claim.
            number = self._rooms.numbers[name]
            if self._devices.demand.wants_used_devices:
                self._forget(number)
            elif self.mask >> number & 1:
                self._ask(self._view.nodes[name], number)

    def _forget(self, number: int) -> None:
        self._known &= ~(1 << number)
        self.mask &= ~(1 << number)

    def has(self, node: NodeState, number: int) -> bool:
        if not self._known >> number & 1:
            self._ask(node, number)
        return bool(self.mask >> number & 1)

    def _ask(self, node: NodeState, number: int) -> None:
        place, snapshot = node.offer.place, self._view.snapshot
        is_served = self._devices.is_served(place, snapshot)
        if is_served is None or self._devices.shared_pools(place, snapshot):
            self.is_exact = False
        bit = 1 << number
        self._known |= bit
        self.mask = self.mask | bit if is_served else self.mask & ~bit


class FitMask:
    """The nodes that fit pods with the same requirements, as far as they were asked for."""

    def __init__(
        self, resources: PodResources, offers: OfferJudge, served: ServedNodes | None, rooms: NodeRooms
    ) -> None:
        self._amounts = resources.amounts
        self._offers = offers
        self._served = served
        self._rooms = rooms
        self._room = 0

    @property
    def is_exact(self) -> bool:
        """False if masks cannot tell which nodes fit."""
        return self._served is None or self._served.is_exact

    def catch_up(self) -> None:
        self._rooms.catch_up()
        if self._served is not None:
            self._served.catch_up()
        self._room = self._rooms.mask(self._amounts)

    def bit(self, name: str) -> int:
        return 1 << self._rooms.numbers[name]

    def names(self, mask: int) -> list[str]:
        return [self._rooms.names[number] for number in bits_of(mask)]

    def left(self) -> int:
        """The nodes that have room and whose devices serve the demand."""
        return self._room if self._served is None else self._room & self._served.mask

    def has(self, node: NodeState) -> bool:
        number = self._rooms.numbers[node.name]
        return (
            bool(self._room >> number & 1)
            and self._offers.on(node.offer).is_admitted
            and (self._served is None or self._served.has(node, number))
        )


class FitMasks:
    """The masks of one view, and the judges of offers, shared by pods that require the same of nodes, resources aside."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._rooms: NodeRooms | None = None
        # These live as long as a table uses them.
        self._offers: WeakValueDictionary[bytes, OfferJudge] = WeakValueDictionary()
        self._served: WeakValueDictionary[DeviceJudge, ServedNodes] = WeakValueDictionary()

    def offers(self, requirements: PodRequirements) -> OfferJudge:
        key = requirements.offer_key()
        known = self._offers.get(key)
        if known is None:
            known = self._offers[key] = OfferJudge(requirements)
        return known

    def of(self, requirements: PodRequirements, devices: DeviceJudge | None) -> FitMask | None:
        """None for pods whose nodes no mask can tell, and for those that name the few nodes they can run on."""
        resources = requirements.node.resources
        if resources.ports or requirements.only_nodes() is not None:
            return None
        if self._rooms is None:
            self._rooms = NodeRooms(self._view)
        served = self._served_by(devices, self._rooms) if devices is not None else None
        return FitMask(resources, self.offers(requirements), served, self._rooms)

    def _served_by(self, devices: DeviceJudge, rooms: NodeRooms) -> ServedNodes:
        known = self._served.get(devices)
        if known is None:
            known = self._served[devices] = ServedNodes(devices, rooms, self._view)
        return known
