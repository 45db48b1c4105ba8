"""Equivalence groups: parked pods with the same requirements, of which one, the representative, is tried for all.

If the representative finds a node, the next member is tried. If it finds none, no member would, and all stay parked. A freed
device thus costs one attempt for each group, not one for each of ten thousand pods.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

from dralloc.scheduler.state.cluster_events import ClusterEvent

Member = TypeVar("Member")


@dataclass(slots=True, eq=False)
class EquivalenceGroup(Generic[Member]):
    key: Hashable
    waits_for: set[ClusterEvent] = field(default_factory=set)
    # The parked members, by key, with the number of their entry in `order`.
    members: dict[Hashable, tuple[int, Member]] = field(default_factory=dict)
    # A heap by rank. Entries of members that have left are skipped when they reach the top.
    order: list[tuple[tuple[float, ...], int, Hashable]] = field(default_factory=list)
    # The member that was woken and whose attempt has not ended.
    representative: Hashable = None
    # When the event came that woke the first of a series of successful representatives.
    woken_at_s: float = 0.0


class EquivalenceGroups(Generic[Member]):
    def __init__(self) -> None:
        self._numbers = count()
        self._groups: dict[Hashable, EquivalenceGroup[Member]] = {}
        self._waiting: dict[ClusterEvent, dict[Hashable, EquivalenceGroup[Member]]] = {}

    def find(self, key: Hashable) -> EquivalenceGroup[Member] | None:
        return self._groups.get(key)

    def join(
        self,
        group_key: Hashable,
        key: Hashable,
        member: Member,
        *,
        rank: tuple[float, ...],
        waits_for: Iterable[ClusterEvent],
    ) -> EquivalenceGroup[Member]:
        """Adds the member to its group. The member with the lowest rank becomes representative first."""
        group = self._groups.setdefault(group_key, EquivalenceGroup(group_key))
        for event in waits_for:
            if event not in group.waits_for:
                group.waits_for.add(event)
                self._waiting.setdefault(event, {})[group_key] = group
        number = next(self._numbers)
        group.members[key] = (number, member)
        heapq.heappush(group.order, (rank, number, key))
        return group

    def leave(self, group: EquivalenceGroup[Member], key: Hashable) -> None:
        del group.members[key]
        self._drop_if_empty(group)

    def waiting_for(self, event: ClusterEvent) -> tuple[EquivalenceGroup[Member], ...]:
        """The groups that wait for the event and have no representative at the moment."""
        waiting = self._waiting.get(event, {}).values()
        return tuple(group for group in waiting if group.representative is None)

    def choose_representative(self, group: EquivalenceGroup[Member]) -> Member | None:
        """Returns the next representative, which the caller must remove with `leave`; None if no member is left."""
        while group.order:
            _, number, key = group.order[0]
            known = group.members.get(key)
            if known is not None and known[0] == number:
                group.representative = key
                return known[1]
            heapq.heappop(group.order)
        return None

    def dismiss_representative(self, group: EquivalenceGroup[Member]) -> None:
        """The representative's attempt has ended, or it is gone."""
        group.representative = None
        self._drop_if_empty(group)

    def _drop_if_empty(self, group: EquivalenceGroup[Member]) -> None:
        if group.members or group.representative is not None:
            return
        del self._groups[group.key]
        for event in group.waits_for:
            waiting = self._waiting[event]
            del waiting[group.key]
            if not waiting:
                del self._waiting[event]
