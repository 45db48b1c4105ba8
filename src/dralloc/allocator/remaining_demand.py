"""What the requests that are yet to be served want at least, and the devices that are left for them."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from dralloc.allocator.attribute_constraints import Constraint
from dralloc.allocator.ledger import Ledger
from dralloc.allocator.problem_survey import CounterKey, Landscape, mask_union
from dralloc.allocator.requests import Alternative
from dralloc.allocator.search import Cursor

_UNSERVED: Final = Cursor(0)


class Option(NamedTuple):
    """An alternative that is still open, and the devices it could take now."""

    alternative: Alternative
    need: int
    devices: int


class Want(NamedTuple):
    """What a request needs at least, whichever of its alternatives serves it."""

    options: tuple[Option, ...]
    need: int
    devices: int


class Wants:
    def __init__(self, landscape: Landscape, ledger: Ledger) -> None:
        self._landscape = landscape
        self._ledger = ledger

    def between(self, cursor: Cursor, end: int) -> list[Want] | None:
        """What the requests from the cursor up to `end` want; None where one of them has no alternative left."""
        exhausted = self._exhausted()
        wants: list[Want] = []
        start = cursor.request
        if cursor.alternative is not None:
            current = self._option(cursor.alternative, exhausted, cursor)
            if current is None:
                return None
            wants.append(Want((current,), current.need, current.devices))
            start += 1
        # Many requests want the same.
        known: dict[int, Option | None] = {}
        for request in self._landscape.demand.requests[start:end]:
            options: list[Option] = []
            for alternative in request.alternatives:
                twin = self._landscape.twins[alternative.number]
                if twin not in known:
                    known[twin] = self._option(alternative, exhausted, _UNSERVED)
                option = known[twin]
                if option is not None:
                    options.append(option)
            if not options:
                return None
            need = min(option.need for option in options)
            wants.append(Want(tuple(options), need, mask_union(option.devices for option in options)))
        return wants

    def _option(self, alternative: Alternative, exhausted: int, cursor: Cursor) -> Option | None:
        """The alternative, as far as it is served at the cursor, with the devices left for it; None where they are too few."""
        landscape = self._landscape
        need = landscape.wanted(alternative) - cursor.slot
        gone = self._taken(alternative) | exhausted | self._too_full(alternative)
        devices = landscape.usable[alternative.number] & ~gone
        if alternative.takes_all:
            devices &= landscape.everything(alternative, cursor.slot)
        elif cursor.after is not None:
            devices &= -2 << cursor.after.position
        for constraint in alternative.constraints:
            devices &= self._admitted(constraint)
        spare = devices.bit_count() - need
        if spare < 0 or (spare == 0 and not self._can_draw_together(devices)):
            return None
        return Option(alternative, need, devices)

    def _can_draw_together(self, devices: int) -> bool:
        """Whether the counters last for all of the devices."""
        drawn: Counter[CounterKey] = Counter()
        for draws, drawing in self._landscape.drawing.items():
            count = (drawing & devices & ~self._drawn_for()).bit_count()
            if count:
                for key, amount in draws:
                    drawn[key] += count * amount
        left, base = self._ledger.counters, self._landscape.counters
        return all(amount <= left.get(key, base[key]) for key, amount in drawn.items())

    def _drawn_for(self) -> int:
        """Shared devices that have drawn already: another share draws nothing."""
        return mask_union(1 << position for position in self._ledger.free)

    def _taken(self, alternative: Alternative) -> int:
        if not alternative.is_admin:
            return self._landscape.flat(self._ledger.taken.items())
        by_claim = self._ledger.taken_by_claim.items()
        return self._landscape.flat((number, mask) for (claim, number), mask in by_claim if claim == alternative.claim)

    def _exhausted(self) -> int:
        """Devices that would draw more from a counter than is left."""
        left, base = self._ledger.counters, self._landscape.counters
        exhausted = 0
        for draws, devices in self._landscape.drawing.items():
            if any(left.get(key, base[key]) < amount for key, amount in draws):
                exhausted |= devices
        return exhausted & ~self._drawn_for()

    def _too_full(self, alternative: Alternative) -> int:
        full = self._landscape.crowded[alternative.number]
        usable = self._landscape.usable[alternative.number]
        for position, left in self._ledger.free.items():
            if usable >> position & 1:
                nanos = self._landscape.charge(alternative, position).nanos
                if any(have < take for have, take in zip(left, nanos, strict=True)):
                    full |= 1 << position
        return full

    def _admitted(self, constraint: Constraint) -> int:
        """The devices that the constraint still admits."""
        state = self._ledger.states.get(constraint)
        by_values = self._landscape.devices_by_values(constraint)
        return mask_union(
            devices for values, devices in by_values.items() if constraint.after(state, values) is not None
        )
