"""Proofs that a state holds no solution, from what its requests need and what is left.

Every bound asks an easier question than the search does: it forgets all rules but one kind. If even that question has no
answer, the state has none. Whatever a bound forgets only makes it weaker, never wrong.

- devices: every request needs its number of devices, and a device that is given out whole serves one of them;
- amounts: what is left of a capacity, or of a counter, lasts for so many requests that need at least so much (`amounts`);
- distinct values: devices that must differ in an attribute need as many values;
- equal values: devices that must agree in an attribute need one value that has enough devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from dralloc.allocator.amounts import Option, Want, dimensions_of
from dralloc.allocator.constraints import Constraint, Value
from dralloc.allocator.landscape import CounterKey, Landscape, mask_union
from dralloc.allocator.ledger import Ledger
from dralloc.allocator.requests import Alternative
from dralloc.allocator.search import Cursor
from dralloc.allocator.transport import can_meet

_UNSERVED: Final = Cursor(0)


class Bounds:
    def __init__(self, landscape: Landscape, ledger: Ledger) -> None:
        self._landscape = landscape
        self._ledger = ledger
        self._dimensions = dimensions_of(landscape)

    def refute(self, cursor: Cursor, end: int) -> bool:
        """Whether the requests from the cursor up to `end` cannot all be served."""
        wants = self._wants(cursor, end)
        if wants is None:
            return True
        return (
            not self._devices_suffice(wants)
            or not all(dimension.suffices(wants, self._ledger) for dimension in self._dimensions)
            or not all(self._values_suffice(constraint, wants) for constraint in _constraints_of(wants))
        )

    # --- What is wanted, and what there is ------------------------------------------------------------------------

    def _wants(self, cursor: Cursor, end: int) -> list[Want] | None:
        """What the requests want; None where one of them has no alternative left."""
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

    # --- Devices --------------------------------------------------------------------------------------------------

    def _devices_suffice(self, wants: Sequence[Want]) -> bool:
        """Whether the devices that are given out whole go round. Admin access takes none away from those before it."""
        shareable = self._landscape.shareable
        needs: Counter[int] = Counter()
        for want in wants:
            if any(option.alternative.is_admin for option in want.options):
                continue
            need = want.need - (want.devices & shareable).bit_count()
            if need > 0:
                needs[want.devices & ~shareable] += need
        return can_meet(needs, int.bit_count)

    # --- Values ---------------------------------------------------------------------------------------------------

    def _values_suffice(self, constraint: Constraint, wants: Sequence[Want]) -> bool:
        covered = [
            want for want in wants if all(constraint in option.alternative.constraints for option in want.options)
        ]
        if constraint.wants_equal:
            return self._some_value_suffices(constraint, covered)
        by_values = self._landscape.devices_by_values(constraint)
        needs: Counter[int] = Counter()
        for want in covered:
            # One device of a value stands for all of them.
            needs[mask_union(devices for devices in by_values.values() if devices & want.devices)] += want.need
        return can_meet(needs, lambda group: sum(1 for devices in by_values.values() if devices & group))

    def _some_value_suffices(self, constraint: Constraint, covered: Sequence[Want]) -> bool:
        """Whether there is a value that every request finds on enough devices. Once one is chosen, nothing is left to ask."""
        if (len(covered) < 2 and sum(want.need for want in covered) < 2) or constraint in self._ledger.states:
            return True
        devices_with: dict[Value, int] = {}
        for values, devices in self._landscape.devices_by_values(constraint).items():
            for value in values:
                devices_with[value] = devices_with.get(value, 0) | devices
        return any(self._value_suffices(devices, covered) for devices in devices_with.values())

    def _value_suffices(self, devices: int, covered: Sequence[Want]) -> bool:
        restricted = [want._replace(devices=want.devices & devices) for want in covered]
        return all(want.devices.bit_count() >= want.need for want in restricted) and self._devices_suffice(restricted)


def _constraints_of(wants: Sequence[Want]) -> list[Constraint]:
    found = (constraint for want in wants for option in want.options for constraint in option.alternative.constraints)
    return list(dict.fromkeys(found))
