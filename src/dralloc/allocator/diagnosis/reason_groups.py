"""The reasons of many nodes, in groups of nodes that are told as one.

What differs between the nodes of a group (how much is available at most, how many devices are left) is merged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from dralloc.allocator.diagnosis.reasons import Reason
from dralloc.devices.identity import ClaimId
from dralloc.primitives.phrases import counted

GROUPS_SHOWN_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class ReasonGroup:
    """Nodes with the same reason, in `parts`. `example` is the node that is nearest to a fit."""

    reason: Reason
    parts: tuple[Collection[str], ...]
    example: str

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(chain.from_iterable(self.parts))

    @property
    def size(self) -> int:
        """The number of the nodes."""
        return sum(map(len, self.parts))

    def named(self, claims: Sequence[ClaimId]) -> ReasonGroup:
        return ReasonGroup(self.reason.named(claims), self.parts, self.example)

    def __str__(self) -> str:
        return f"{counted(self.size, 'node')}: {self.reason}"


def grouped(reasons: Iterable[tuple[str, Reason]]) -> tuple[ReasonGroup, ...]:
    """Nodes with their reasons, put together where these are told as one; the group that comes nearest first."""
    # Many nodes share one object.
    members: dict[int, tuple[Reason, list[str]]] = {}
    for node, reason in reasons:
        members.setdefault(id(reason), (reason, []))[1].append(node)
    return groups_of(members.values())


def groups_of(members: Iterable[tuple[Reason, Collection[str]]]) -> tuple[ReasonGroup, ...]:
    """The same for reasons with their nodes, of which each has at least one."""
    alike: dict[str, list[tuple[Reason, Collection[str]]]] = {}
    for entry in members:
        alike.setdefault(entry[0].key, []).append(entry)
    groups = [_group(entries) for entries in alike.values()]
    return tuple(sorted(groups, key=lambda group: (group.reason.distance, -group.size, str(group.reason))))


def _group(entries: Sequence[tuple[Reason, Collection[str]]]) -> ReasonGroup:
    """The group of these nodes, whose reason has the best of what differs between them."""
    if len(entries) == 1:
        [(only, nodes)] = entries
        return ReasonGroup(only, (nodes,), next(iter(nodes)))
    best, nearest = min(entries, key=lambda entry: entry[0].distance)
    losses = {(reason.lost, reason.lost_at_all) for reason, _ in entries}
    merged = replace(
        best,
        left=max(reason.left for reason, _ in entries),
        lost=best.lost if len(losses) == 1 else None,
        wanted=max(reason.wanted for reason, _ in entries),
    )
    return ReasonGroup(merged, tuple(nodes for _, nodes in entries), next(iter(nearest)))


def availability(groups: Sequence[ReasonGroup], *, total: int, available: int = 0) -> str:
    """The reasons of all nodes in one line, as a pod's condition has it."""
    told = [str(group) for group in groups[:GROUPS_SHOWN_MAX]]
    untold = sum(group.size for group in groups[GROUPS_SHOWN_MAX:])
    if untold:
        told.append(f"{counted(untold, 'node')}: other reasons")
    return f"{available}/{total} nodes are available" + (f": {'; '.join(told)}" if told else "")
