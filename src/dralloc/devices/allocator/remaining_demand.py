"""What the remaining requests need at least, and which devices are left for them."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from dralloc.devices.allocator.attribute_constraints import Constraint
from dralloc.devices.allocator.ledger import Ledger
from dralloc.devices.allocator.problem_survey import CounterKey, ProblemSurvey, mask_union
from dralloc.devices.allocator.requests import Alternative
from dralloc.devices.allocator.search import Cursor

_UNSERVED: Final = Cursor(0)


class OpenAlternative(NamedTuple):
    """An alternative that may still be chosen, with the devices that it could take now."""

    alternative: Alternative
    need: int
    devices: int


class RemainingRequest(NamedTuple):
    """What a request needs at least, over all of its alternatives."""

    options: tuple[OpenAlternative, ...]
    need: int
    devices: int


class RemainingDemand:
    def __init__(self, survey: ProblemSurvey, ledger: Ledger) -> None:
        self._survey = survey
        self._ledger = ledger

    def between(self, cursor: Cursor, end: int) -> list[RemainingRequest] | None:
        """The requests from the cursor up to `end`; None if one of them has no alternative left."""
        exhausted = self._exhausted()
        requests: list[RemainingRequest] = []
        start = cursor.request
        if cursor.alternative is not None:
            current = self._option(cursor.alternative, exhausted, cursor)
            if current is None:
                return None
            requests.append(RemainingRequest((current,), current.need, current.devices))
            start += 1
        # Equal alternatives are evaluated once.
        known: dict[int, OpenAlternative | None] = {}
        for request in self._survey.demand.requests[start:end]:
            options: list[OpenAlternative] = []
            for alternative in request.alternatives:
                representative = self._survey.representatives[alternative.number]
                if representative not in known:
                    known[representative] = self._option(alternative, exhausted, _UNSERVED)
                option = known[representative]
                if option is not None:
                    options.append(option)
            if not options:
                return None
            need = min(option.need for option in options)
            requests.append(RemainingRequest(tuple(options), need, mask_union(option.devices for option in options)))
        return requests

    def _option(self, alternative: Alternative, exhausted: int, cursor: Cursor) -> OpenAlternative | None:
        """What the alternative still needs at the cursor, and the devices left for it; None if they are too few."""
        survey = self._survey
        need = (cursor.size or survey.wanted(alternative)) - cursor.slot
        gone = self._taken(alternative) | exhausted | self._too_full(alternative)
        devices = survey.usable[alternative.number] & ~gone
        if alternative.takes_all:
            devices &= survey.everything(alternative, cursor.slot)
        elif cursor.size:
            devices &= ~self._ledger.own.get(cursor.request, 0)
        else:
            devices &= cursor.rest
        for constraint in alternative.constraints:
            devices &= self._admitted(constraint)
        spare = devices.bit_count() - need
        if spare < 0 or (spare == 0 and not self._can_draw_together(devices)):
            return None
        return OpenAlternative(alternative, need, devices)

    def _can_draw_together(self, devices: int) -> bool:
        """True if the counters suffice for all of the devices together."""
        drawn: Counter[CounterKey] = Counter()
        for draws, drawing in self._survey.drawing.items():
            count = (drawing & devices & ~self._drawn_for()).bit_count()
            if count:
                for key, amount in draws:
                    drawn[key] += count * amount
        left, base = self._ledger.counters, self._survey.counters
        return all(amount <= left.get(key, base[key]) for key, amount in drawn.items())

    def _drawn_for(self) -> int:
        """Devices of which a share is taken: another share consumes no counters."""
        return mask_union(1 << position for position in self._ledger.free)

    def _taken(self, alternative: Alternative) -> int:
        if not alternative.is_admin:
            return self._survey.flat(self._ledger.taken.items())
        by_claim = self._ledger.taken_by_claim.items()
        return self._survey.flat((number, mask) for (claim, number), mask in by_claim if claim == alternative.claim)

    def _exhausted(self) -> int:
        """Devices that consume more of a counter than is left."""
        left, base = self._ledger.counters, self._survey.counters
        exhausted = 0
        for draws, devices in self._survey.drawing.items():
            if any(left.get(key, base[key]) < amount for key, amount in draws):
                exhausted |= devices
        return exhausted & ~self._drawn_for()

    def _too_full(self, alternative: Alternative) -> int:
        full = self._survey.too_full[alternative.number]
        usable = self._survey.usable[alternative.number]
        for position, left in self._ledger.free.items():
            if usable >> position & 1 and self._survey.lacks_capacity(alternative, position, left):
                full |= 1 << position
        return full

    def _admitted(self, constraint: Constraint) -> int:
        """The devices that satisfy the constraint together with those taken."""
        state = self._ledger.states.get(constraint.number)
        by_values = self._survey.devices_by_values(constraint)
        return mask_union(
            devices for values, devices in by_values.items() if constraint.after(state, values) is not None
        )
