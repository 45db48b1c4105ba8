"""What the search may leave out, and still find the same first solution.

Three ways, each of which leaves out only states that hold no solution and in which the plain search would meet no fault:

- what ended badly once ends badly again (`key`, `recall`): two states have the same key if the rest of the search cannot
  tell them apart, up to exchanging devices that are alike;
- of devices that are alike only the first is tried (`likeness`);
- bounds show that what is left cannot suffice (`is_hopeless`).

A fault, such as a selector that fails on a device, must be reported exactly if the plain search would have come to it. So a
bound may only be asked about the requests before the next one that might meet a fault: if those cannot be served, the
search does not get there.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from dralloc.allocator.bounds import Bounds
from dralloc.allocator.ledger import Ledger
from dralloc.allocator.problem_survey import Landscape
from dralloc.allocator.search import Cursor, Verdict
from dralloc.allocator.supply import Place
from dralloc.snapshot.slices import bits_of


class Knowledge:
    """What was found out about a problem; it holds for every search of it, also for searches of a part."""

    def __init__(self) -> None:
        self.verdicts: dict[Hashable, Verdict] = {}
        # By the end of a run of requests: the last of them from which on they cannot be served, even with nothing taken.
        self.doomed: dict[int, int] = {}


class Pruner:
    def __init__(self, landscape: Landscape, ledger: Ledger, knowledge: Knowledge) -> None:
        self._landscape = landscape
        self._ledger = ledger
        self._bounds = Bounds(landscape, ledger)
        self._knowledge = knowledge

    # --- Bounds ---------------------------------------------------------------------------------------------------

    def is_hopeless(self, cursor: Cursor) -> bool:
        end = self._end_of_faultless(cursor)
        # Where order matters, it matters whether a state fails or passes the limit, which bounds do not tell.
        if cursor.request == end or self._landscape.order_matters:
            return False
        return cursor.request <= self._knowledge.doomed.get(end, -1) or self._bounds.refute(cursor, end)

    def _end_of_faultless(self, cursor: Cursor) -> int:
        """The first request from the cursor on where the search may meet a fault; the current one if it may do so there."""
        if cursor.alternative is None:
            return self._landscape.horizon[cursor.request]
        if self._landscape.may_fault(cursor.alternative):
            return cursor.request
        return self._landscape.horizon[cursor.request + 1]

    # --- Memory ---------------------------------------------------------------------------------------------------

    def recall(self, key: Hashable) -> Verdict | None:
        return self._knowledge.verdicts.get(key)

    def learn(self, key: Hashable, verdict: Verdict) -> None:
        self._knowledge.verdicts[key] = verdict

    def key(self, cursor: Cursor) -> Hashable:
        landscape, ledger = self._landscape, self._ledger
        claim = landscape.demand.requests[cursor.request].claim
        after = cursor.after.position if cursor.after is not None else -1
        return (
            cursor.request,
            landscape.twins[cursor.alternative.number] if cursor.alternative is not None else -1,
            cursor.slot,
            after,
            ledger.recorded.get(claim, 0) if claim in landscape.limited_claims else 0,
            tuple(sorted(self._used(cursor, claim, after))),
            tuple(
                sorted(item for item in ledger.counters.items() if item[0] in landscape.counters_ahead[cursor.request])
            ),
            frozenset(ledger.groups.items()),
            tuple(ledger.states.get(constraint) for constraint in landscape.constraints_ahead[cursor.request]),
        )

    def _used(self, cursor: Cursor, claim: int, after: int) -> Iterator[tuple[int, bool, bool, tuple[int, ...]]]:
        """The devices ahead that are not as they were: what kind they are of, not which they are."""
        landscape, ledger = self._landscape, self._ledger
        ahead, kinds = landscape.ahead[cursor.request], landscape.kinds[cursor.request]
        own = (
            landscape.flat((at, mask) for (owner, at), mask in ledger.taken_by_claim.items() if owner == claim)
            if landscape.has_admin_access
            else 0
        )
        for position in bits_of(landscape.flat(ledger.taken.items()) & ahead):
            yield kinds[position], position > after, bool(own >> position & 1), ()
        for position, left in ledger.free.items():
            if ahead >> position & 1:
                yield kinds[position], position > after, False, left

    # --- Likeness -------------------------------------------------------------------------------------------------

    def likeness(self, cursor: Cursor, place: Place) -> Hashable:
        position = place.position
        is_taken = self._ledger.taken.get(place.strip.number, 0) >> place.bit & 1
        return self._landscape.kinds[cursor.request][position], self._ledger.free.get(position), is_taken
