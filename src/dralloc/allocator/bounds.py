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

from dralloc.allocator.amount_bounds import dimensions_of
from dralloc.allocator.attribute_constraints import Constraint, Value
from dralloc.allocator.bipartite_flow import can_meet
from dralloc.allocator.ledger import Ledger
from dralloc.allocator.problem_survey import Landscape, mask_union
from dralloc.allocator.remaining_demand import Want, Wants
from dralloc.allocator.search import Cursor


class Bounds:
    def __init__(self, landscape: Landscape, ledger: Ledger) -> None:
        self._landscape = landscape
        self._ledger = ledger
        self._wants = Wants(landscape, ledger)
        self._dimensions = dimensions_of(landscape)

    def refute(self, cursor: Cursor, end: int) -> bool:
        """Whether the requests from the cursor up to `end` cannot all be served."""
        wants = self._wants.between(cursor, end)
        if wants is None:
            return True
        return (
            not self._devices_suffice(wants)
            or not all(dimension.suffices(wants, self._ledger) for dimension in self._dimensions)
            or not all(self._values_suffice(constraint, wants) for constraint in _constraints_of(wants))
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
