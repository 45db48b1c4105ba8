"""Parked pods that ask for the same, so that what helps one may help any: one of them is tried for all.

If it finds a node, the next one is tried; if it does not, neither would the others, and they sleep on. A device that comes
free thus costs one attempt for each crowd, not one for each of ten thousand pods.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

from dralloc.scheduler.news import Happening

Member = TypeVar("Member")


@dataclass(slots=True)
class _Crowd(Generic[Member]):
    waits_for: frozenset[Happening]
    asleep: dict[Hashable, tuple[int, Member]] = field(default_factory=dict)
    # By rank; entries of members that are not asleep any more are passed over when they surface.
    order: list[tuple[Hashable, int, Hashable]] = field(default_factory=list)
    # Woken and not tried yet.
    awake: set[Hashable] = field(default_factory=set)


class Crowds(Generic[Member]):
    """Members by what they are like."""

    def __init__(self) -> None:
        self._numbers = count()
        self._crowds: dict[Hashable, _Crowd[Member]] = {}
        self._waiting: dict[Happening, dict[Hashable, None]] = {}

    def join(
        self, like: Hashable, key: Hashable, member: Member, *, rank: tuple[float, ...], waits_for: Iterable[Happening]
    ) -> None:
        """The member sleeps until its crowd is woken for one of these, and it is the member with the lowest rank."""
        crowd = self._crowds.get(like)
        if crowd is None:
            crowd = self._crowds[like] = _Crowd(frozenset(waits_for))
            for happening in crowd.waits_for:
                self._waiting.setdefault(happening, {})[like] = None
        number = next(self._numbers)
        crowd.asleep[key] = (number, member)
        heapq.heappush(crowd.order, (rank, number, key))

    def leave(self, like: Hashable, key: Hashable) -> None:
        """The member sleeps no more."""
        crowd = self._crowds[like]
        del crowd.asleep[key]
        self._forget_if_empty(like, crowd)

    def waiting_for(self, happening: Happening) -> Iterator[Hashable]:
        """The crowds that this may help, none of whose members is about to be tried anyway."""
        for like in tuple(self._waiting.get(happening, ())):
            if not self._crowds[like].awake:
                yield like

    def first(self, like: Hashable) -> Member | None:
        """The member to be tried for all."""
        crowd = self._crowds.get(like)
        while crowd is not None and crowd.order:
            _, number, key = crowd.order[0]
            known = crowd.asleep.get(key)
            if known is not None and known[0] == number:
                return known[1]
            heapq.heappop(crowd.order)
        return None

    def woken(self, like: Hashable, key: Hashable) -> None:
        """The member is about to be tried for all."""
        if (crowd := self._crowds.get(like)) is not None:
            crowd.awake.add(key)

    def tried(self, like: Hashable, key: Hashable) -> bool:
        """The member was tried, or is gone; whether that was for all."""
        crowd = self._crowds.get(like)
        if crowd is None or key not in crowd.awake:
            return False
        crowd.awake.discard(key)
        self._forget_if_empty(like, crowd)
        return True

    def _forget_if_empty(self, like: Hashable, crowd: _Crowd[Member]) -> None:
        if crowd.asleep or crowd.awake:
            return
        del self._crowds[like]
        for happening in crowd.waits_for:
            waiting = self._waiting[happening]
            del waiting[like]
            if not waiting:
                del self._waiting[happening]
