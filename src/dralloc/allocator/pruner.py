"""Which states the search leaves out and still finds the same first solution.

Three rules, each of which leaves out only states without a solution in which the plain search would meet no fatal error:

- memory (`key`, `recall`): a state with the key of an explored dead end is a dead end. Two states have the same key if the
  rest of the search cannot distinguish them, up to exchanging equivalent devices;
- equivalent devices (`equivalence`): only the first of them is tried;
- bounds (`is_unsatisfiable`): what is left is too little for the remaining requests.

A fatal error, such as a selector that fails on a device, must be reported exactly if the plain search would have met it.
Bounds therefore consider only the requests before the next one that may meet an error: if these cannot be served, the plain
search does not reach the error.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from dralloc.allocator.bounds import Bounds
from dralloc.allocator.ledger import Ledger
from dralloc.allocator.problem_survey import ProblemSurvey
from dralloc.allocator.search import Cursor, SearchStatus
from dralloc.allocator.supply import DeviceCandidate
from dralloc.snapshot.slices import bits_of


class Knowledge:
    """Proven facts about a problem. They hold for every search of it, and for searches of a part."""

    def __init__(self) -> None:
        self.statuses: dict[Hashable, SearchStatus] = {}
        # unsatisfiable[end] = start: requests[start:end] cannot be served even with nothing taken; start is the largest known.
        self.unsatisfiable: dict[int, int] = {}


class Pruner:
    def __init__(self, survey: ProblemSurvey, ledger: Ledger, knowledge: Knowledge) -> None:
        self._survey = survey
        self._ledger = ledger
        self._bounds = Bounds(survey, ledger)
        self._knowledge = knowledge

    def is_unsatisfiable(self, cursor: Cursor) -> bool:
        end = self._next_error(cursor)
        # Where order matters, dead ends and states over the limit must be distinguished, which bounds cannot do.
        if cursor.request == end or self._survey.order_matters:
            return False
        return cursor.request <= self._knowledge.unsatisfiable.get(end, -1) or self._bounds.refute(cursor, end)

    def _next_error(self, cursor: Cursor) -> int:
        """The first request from the cursor on, the current one included, where the search may meet a fatal error."""
        if cursor.alternative is None:
            return self._survey.next_error[cursor.request]
        if self._survey.may_fail(cursor.alternative):
            return cursor.request
        return self._survey.next_error[cursor.request + 1]

    def recall(self, key: Hashable) -> SearchStatus | None:
        return self._knowledge.statuses.get(key)

    def learn(self, key: Hashable, status: SearchStatus) -> None:
        self._knowledge.statuses[key] = status

    def key(self, cursor: Cursor) -> Hashable:
        survey, ledger = self._survey, self._ledger
        claim = survey.demand.requests[cursor.request].claim
        rest = cursor.rest
        return (
            cursor.request,
            survey.representatives[cursor.alternative.number] if cursor.alternative is not None else -1,
            cursor.slot,
            rest,
            ledger.recorded.get(claim, 0) if claim in survey.limited_claims else 0,
            tuple(sorted(self._used(cursor, claim, rest))),
            tuple(sorted(item for item in ledger.counters.items() if item[0] in survey.counters_ahead[cursor.request])),
            frozenset(ledger.groups.items()),
            tuple(map(ledger.states.get, survey.constraints_ahead[cursor.request])),
            (cursor.size, ledger.missing[cursor.request], ledger.own[cursor.request]) if cursor.size else None,
        )

    def _used(self, cursor: Cursor, claim: int, rest: int) -> Iterator[tuple[int, bool, bool, int, tuple[int, ...]]]:
        """The kinds of the devices ahead that were taken from; which of equivalent devices it was does not matter.

        `rest` are the devices that the current request has not passed.
        """
        survey, ledger = self._survey, self._ledger
        ahead, kinds = survey.ahead[cursor.request], survey.kinds[cursor.request]
        own = (
            survey.flat((at, mask) for (owner, at), mask in ledger.taken_by_claim.items() if owner == claim)
            if survey.has_admin_access
            else 0
        )
        for position in bits_of(survey.flat(ledger.taken.items()) & ahead):
            yield (
                kinds[position],
                bool(rest >> position & 1),
                bool(own >> position & 1),
                self._allocations(position),
                (),
            )
        for position, left in ledger.free.items():
            if ahead >> position & 1:
                yield kinds[position], bool(rest >> position & 1), False, self._allocations(position), left

    def equivalence(self, cursor: Cursor, candidate: DeviceCandidate) -> Hashable:
        position = candidate.position
        is_taken = self._ledger.taken.get(candidate.strip.number, 0) >> candidate.bit & 1
        kind = self._survey.kinds[cursor.request][position]
        return kind, self._ledger.free.get(position), is_taken, self._allocations(position)

    def _allocations(self, position: int) -> int:
        """How often the search has taken the device, where that matters."""
        return self._ledger.allocations.get(position, 0) if self._survey.allocations_matter else 0
