"""Bipartite flow: whether needs can be met together. Every bound is reduced to this problem.

A need is given by a mask of the devices that can meet it. Devices that the same needs can use form a group, so that the
problem becomes a flow between a few needs and a few groups, which is solved exactly and cheaply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise


def can_meet(needs: Mapping[int, int], units_of: Callable[[int], int]) -> bool:
    """True if every need gets its number of units from devices in its mask.

    `units_of` returns the number of units of a group of devices. It must be subadditive: the units of a union are not more than
    the sum of the units of its parts.
    """
    groups = _groups(needs)
    left = [units_of(group) for group in groups]
    reach = {mask: [index for index, group in enumerate(groups) if group & mask] for mask in needs}
    # Needs with the fewest groups first: less flow has to be rerouted.
    flow: list[dict[int, int]] = [{} for _ in groups]
    for mask in sorted(needs, key=lambda mask: len(reach[mask])):
        if not _supply(mask, needs[mask], reach, left, flow):
            return False
    return True


def _groups(needs: Mapping[int, int]) -> list[int]:
    """The devices of all needs, partitioned so that every need contains each group wholly or not at all."""
    groups: list[int] = []
    for mask in needs:
        rest = mask
        for index in range(len(groups)):
            inside = groups[index] & mask
            if inside and inside != groups[index]:
                groups.append(groups[index] ^ inside)
                groups[index] = inside
            rest &= ~inside
        if rest:
            groups.append(rest)
    return groups


def _supply(
    need: int, wanted: int, reach: Mapping[int, list[int]], left: list[int], flow: list[dict[int, int]]
) -> bool:
    """Gives the need its units along augmenting paths; False if there is no such path."""
    while wanted > 0:
        path = _path_to_spare(need, reach, left, flow)
        if path is None:
            return False
        # Along the path each need moves units to the next group; the last group has spare units.
        spare = path[-1][1]
        amount = min([wanted, left[spare], *(flow[group][owner] for owner, group in _moved(path))])
        left[spare] -= amount
        for owner, group in path:
            flow[group][owner] = flow[group].get(owner, 0) + amount
        for owner, group in _moved(path):
            flow[group][owner] -= amount
        wanted -= amount
    return True


def _moved(path: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The needs that give up units of a group, with the group: the need before them on the path takes these units."""
    return [(owner, group) for (_, group), (owner, _) in pairwise(path)]


def _path_to_spare(
    need: int, reach: Mapping[int, list[int]], left: list[int], flow: list[dict[int, int]]
) -> list[tuple[int, int]] | None:
    """An augmenting path from the need to a group with spare units: pairs of a need and the group it takes units of."""
    came_from: dict[int, tuple[int, int] | None] = {need: None}
    queue = [need]
    for owner in queue:
        for group in reach[owner]:
            if left[group]:
                return _trace(came_from, owner, group)
            for other, amount in flow[group].items():
                if amount and other not in came_from:
                    came_from[other] = (owner, group)
                    queue.append(other)
    return None


def _trace(came_from: Mapping[int, tuple[int, int] | None], owner: int, group: int) -> list[tuple[int, int]]:
    path = [(owner, group)]
    while (step := came_from[path[-1][0]]) is not None:
        path.append(step)
    path.reverse()
    return path
