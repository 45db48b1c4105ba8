"""Writes the decision about a gang: all members, or none.

1. The claims of all members are written; those that members share once. If one cannot be written, or so many members are gone
   that too few are left, everything is undone: what was allocated is deallocated, reservations are removed.
2. One member is bound. If that fails for good, everything is undone, too.
3. The others are bound. From here on nothing is undone: a binding that fails is tried again, for as long as its pod exists.

A scheduler that stops between two writes leaves claims that list pods without nodes. The next attempt for the gang uses them, and
if the gang does not fit any more, deallocates them. After a stop during the third step, the members that have nodes count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from msgspec import Struct

from dralloc.devices.identity import ClaimId
from dralloc.kube.pod_v1 import Pod
from dralloc.scheduler.bind.binder import Binder, BindingFailed, BindingOutcome, Bound, PodGone
from dralloc.scheduler.contract import CommittedPlacement

# How often a binding is tried, and the pauses between the attempts.
BINDINGS_MAX: Final = 8
RETRY_FIRST_S: Final = 0.05
RETRY_MAX_S: Final = 2.0

PlacedPods = Sequence[tuple[Pod, CommittedPlacement]]
Result = TypeVar("Result")


class GangUndone(Struct, frozen=True):
    """No member is bound, and nothing is left of what was written."""

    message: str
    is_collision: bool = False


class GangBound(Struct, frozen=True):
    """What became of the members, in their order."""

    outcomes: tuple[BindingOutcome, ...]


class GangBinder:
    """`writes_max` bounds how many members are written at the same time."""

    def __init__(self, binder: Binder, forget: Callable[[PlacedPods], None], writes_max: int) -> None:
        self._binder = binder
        self._forget = forget
        self._writes_max = writes_max

    async def bind(
        self,
        members: PlacedPods,
        *,
        needed: int,
        exists: Callable[[Pod], bool],
        consumer: str | None,
    ) -> GangBound | GangUndone:
        """Writes decisions that the cluster state has assumed. `needed` of the members must get their nodes together."""
        prepared = await self._in_turn([self._binder.prepare(pod, place) for pod, place in members])
        failed = next((each for each in prepared if isinstance(each, BindingFailed)), None)
        if failed is None and sum(exists(pod) for pod, _ in members) < needed:
            failed = BindingFailed("members of the gang were deleted while their claims were written")
        outcomes = await self._bind_first(members) if failed is None else []
        if outcomes and isinstance(outcomes[-1], BindingFailed):
            failed = outcomes[-1]
        if failed is not None:
            await self._undo(members, prepared, consumer)
            return GangUndone(failed.message, failed.is_collision)
        rest = [self._bind_surely(pod, place.node) for pod, place in members[len(outcomes) :]]
        return GangBound((*outcomes, *await self._in_turn(rest)))

    async def _bind_first(self, members: PlacedPods) -> list[BindingOutcome]:
        """Binds members one after the other until one exists."""
        outcomes: list[BindingOutcome] = []
        for pod, place in members:
            outcomes.append(await self._bind_surely(pod, place.node))
            if not isinstance(outcomes[-1], PodGone):
                break
        return outcomes

    async def _bind_surely(self, pod: Pod, node: str) -> BindingOutcome:
        outcome: BindingOutcome = BindingFailed("not tried")
        for attempt in range(BINDINGS_MAX):
            if attempt:
                await asyncio.sleep(min(RETRY_FIRST_S * 2.0**attempt, RETRY_MAX_S))
            outcome = await self._binder.bind_pod(pod, node)
            if isinstance(outcome, Bound | PodGone):
                break
        return outcome

    async def _undo(
        self, members: PlacedPods, prepared: Sequence[BindingFailed | frozenset[ClaimId]], consumer: str | None
    ) -> None:
        """Takes everything back, in memory first: the next decision must not use claims that are about to be released."""
        self._forget(members)
        made = {place.extended.claim_id for _, place in members if place.extended is not None}
        new = {claim_id for _, place in members for claim_id in place.new}
        # A claim that was allocated before, and lost its devices, is listed for the group, too.
        lost = {
            claim_id
            for each in prepared
            if isinstance(each, BindingFailed) and each.is_collision
            for claim_id in each.reserved
        }
        released = (new | lost) - made
        for claim_id in sorted(released):
            users = [pod for pod, place in members if claim_id in place.allocations]
            consumers = {pod.metadata.uid for pod in users} | ({consumer} if consumer is not None else set())
            await self._binder.release(claim_id, users, consumers)
        for (pod, place), each in zip(members, prepared, strict=True):
            reserved = each.reserved if isinstance(each, BindingFailed) else each
            await self._binder.undo(pod, place, [claim_id for claim_id in reserved if claim_id not in released])

    async def _in_turn(self, writes: Sequence[Coroutine[Any, Any, Result]]) -> list[Result]:
        """The results of all writes, of which a bounded number runs at the same time."""
        results: list[Result | None] = [None] * len(writes)
        waiting = iter(enumerate(writes))

        async def work() -> None:
            for number, write in waiting:
                results[number] = await write

        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(self._writes_max, len(writes))):
                tasks.create_task(work())
        return [result for result in results if result is not None]
