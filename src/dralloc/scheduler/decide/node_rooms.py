"""The nodes of a view as bits of masks: which of them have how much left. Bit i of a mask stands for the node with number i."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from dralloc.devices.slices import bits_of
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.decide.node_fit import RESOURCES_NAMED_MAX, NodeMisfit, shortage
from dralloc.scheduler.state.change_log import ChangeReader
from dralloc.scheduler.state.node_state import NodeState

# How many amounts of one resource have a mask.
AMOUNTS_MAX: Final = 2000
# What a node has left that does not exist.
_NOTHING: Final = -(1 << 200)


class _ResourceMasks:
    """Which nodes have an amount of one resource left, for the amounts that pods request."""

    def __init__(self, left: list[int]) -> None:
        # By the number of the node.
        self._left = left
        # Ascending, with the mask of each.
        self._amounts: list[int] = []
        self._masks: list[int] = []

    def mask(self, amount: int) -> int:
        index = bisect_left(self._amounts, amount)
        if index < len(self._amounts) and self._amounts[index] == amount:
            return self._masks[index]
        if len(self._amounts) >= AMOUNTS_MAX:
            self._amounts.clear()
            self._masks.clear()
            index = 0
        mask = int("".join(["1" if each >= amount else "0" for each in reversed(self._left)]) or "0", 2)
        self._amounts.insert(index, amount)
        self._masks.insert(index, mask)
        return mask

    def move(self, number: int, after: int) -> None:
        if number == len(self._left):
            self._left.append(_NOTHING)
        before, self._left[number] = self._left[number], after
        amounts = self._amounts
        low, high = bisect_right(amounts, min(before, after)), bisect_right(amounts, max(before, after))
        for index in range(low, high):
            self._masks[index] ^= 1 << number


class NodeRooms:
    """The numbers of the nodes of a view, and what they have left. A number is never given to another node."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._reader = ChangeReader(view.changes)
        self._restart()

    def _restart(self) -> None:
        self.names: list[str] = []
        self.numbers: dict[str, int] = {}
        self._left: list[Mapping[str, int] | None] = []
        # Of resources that some node has, or had: pods ask for any.
        self._masks: dict[str, _ResourceMasks] = {}
        self._offered: set[str] = set()
        for name, node in self._view.nodes.items():
            self._update(name, node)

    def catch_up(self) -> None:
        first = self._reader.advance()
        if first is None:
            self._restart()
            return
        for name in self._view.changes.nodes_since(first):
            self._update(name, self._view.nodes.get(name))

    def _update(self, name: str, node: NodeState | None) -> None:
        number = self.numbers.setdefault(name, len(self._left))
        if number == len(self._left):
            self._left.append(None)
            self.names.append(name)
        self._left[number] = left = node.free if node is not None else None
        if left is not None:
            self._offered.update(left)
        for resource, masks in self._masks.items():
            masks.move(number, _left_of(resource, left))

    def mask(self, amounts: Mapping[str, int]) -> int:
        """The nodes that have all the amounts left."""
        found = -1
        for resource, amount in amounts.items():
            found &= self._mask_of(resource, amount)
            if not found:
                break
        return found

    def _mask_of(self, resource: str, amount: int) -> int:
        masks = self._masks.get(resource)
        if masks is None:
            if resource not in self._offered:
                return 0
            masks = self._masks[resource] = _ResourceMasks([_left_of(resource, left) for left in self._left])
        return masks.mask(amount)

    def shortages(self, amounts: Mapping[str, int], among: int) -> Iterator[tuple[NodeMisfit, int]]:
        """The nodes of a mask that do not have all the amounts left, by what they lack, as far as a reason tells it."""
        # Each node is in one part.
        parts: list[tuple[int, tuple[str, ...]]] = [(among, ())]
        for resource, amount in amounts.items():
            enough, refined = self._mask_of(resource, amount), list[tuple[int, tuple[str, ...]]]()
            for nodes, lacking in parts:
                if has := nodes & enough:
                    refined.append((has, lacking))
                if lacks := nodes & ~enough:
                    if len(lacking) == RESOURCES_NAMED_MAX:
                        yield shortage(*lacking, resource), lacks
                    else:
                        refined.append((lacks, (*lacking, resource)))
            parts = refined
            if not parts:
                return
        yield from ((shortage(*lacking), nodes) for nodes, lacking in parts if lacking)


def _left_of(resource: str, left: Mapping[str, int] | None) -> int:
    return left.get(resource, 0) if left is not None else _NOTHING


class NodeNames(Collection[str]):
    """The names of the nodes of a mask, made when they are asked for. There are many nodes, and mostly only their number is told."""

    def __init__(self, mask: int, names: list[str]) -> None:
        self._mask = mask
        self._names = names

    def __len__(self) -> int:
        return self._mask.bit_count()

    def __iter__(self) -> Iterator[str]:
        return (self._names[number] for number in bits_of(self._mask))

    def __contains__(self, name: object) -> bool:
        return any(each == name for each in self)
