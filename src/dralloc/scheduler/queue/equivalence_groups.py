"""Parked pods that ask for the same, so that what helps one may help any: one of them, the envoy, is tried for all.

If it finds a node, the next one is sent; if it does not, neither would the others, and they sleep on. A device that comes
free thus costs one attempt for each crowd, not one for each of ten thousand pods.
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
    like: Hashable
    waits_for: set[ClusterEvent] = field(default_factory=set)
    asleep: dict[Hashable, tuple[int, Member]] = field(default_factory=dict)
    # By rank; entries of members that are not asleep any more are passed over when they surface.
    order: list[tuple[tuple[float, ...], int, Hashable]] = field(default_factory=list)
    # Woken, and its attempt is not over yet.
    envoy: Hashable = None
    # When the first of the envoys was sent that found, one after the other, that there is more to get.
    woken_at_s: float = 0.0


class EquivalenceGroups(Generic[Member]):
    """Members by what they are like."""

    def __init__(self) -> None:
        self._numbers = count()
        self._crowds: dict[Hashable, EquivalenceGroup[Member]] = {}
        self._waiting: dict[ClusterEvent, dict[Hashable, EquivalenceGroup[Member]]] = {}

    def find(self, like: Hashable) -> EquivalenceGroup[Member] | None:
        return self._crowds.get(like)

    def join(
        self,
        like: Hashable,
        key: Hashable,
        member: Member,
        *,
        rank: tuple[float, ...],
        waits_for: Iterable[ClusterEvent],
    ) -> EquivalenceGroup[Member]:
        """The member sleeps until its crowd is woken for one of these, and it is the member with the lowest rank."""
        crowd = self._crowds.setdefault(like, EquivalenceGroup(like))
        for event in waits_for:
            if event not in crowd.waits_for:
                crowd.waits_for.add(event)
                self._waiting.setdefault(event, {})[like] = crowd
        number = next(self._numbers)
        crowd.asleep[key] = (number, member)
        heapq.heappush(crowd.order, (rank, number, key))
        return crowd

    def leave(self, crowd: EquivalenceGroup[Member], key: Hashable) -> None:
        """The member sleeps no more."""
        del crowd.asleep[key]
        self._forget_if_empty(crowd)

    def waiting_for(self, event: ClusterEvent) -> tuple[EquivalenceGroup[Member], ...]:
        """The crowds that this may help, and for which nobody is about to be tried anyway."""
        waiting = self._waiting.get(event, {}).values()
        return tuple(crowd for crowd in waiting if crowd.envoy is None)

    def send(self, crowd: EquivalenceGroup[Member]) -> Member | None:
        """The member that is to be tried for all, who must leave; None where all have left."""
        while crowd.order:
            _, number, key = crowd.order[0]
            known = crowd.asleep.get(key)
            if known is not None and known[0] == number:
                crowd.envoy = key
                return known[1]
            heapq.heappop(crowd.order)
        return None

    def returned(self, crowd: EquivalenceGroup[Member]) -> None:
        """The envoy's attempt is over, or it is gone."""
        crowd.envoy = None
        self._forget_if_empty(crowd)

    def _forget_if_empty(self, crowd: EquivalenceGroup[Member]) -> None:
        if crowd.asleep or crowd.envoy is not None:
            return
        del self._crowds[crowd.like]
        for event in crowd.waits_for:
            waiting = self._waiting[event]
            del waiting[crowd.like]
            if not waiting:
                del self._waiting[event]
