"""Bounds: proofs that a state has no solution, from what the remaining requests need and what is left.

Every bound solves a relaxation of the problem, which keeps only one kind of rule. If the relaxation has no solution, the
state has none. A rule that a bound ignores makes it weaker, never wrong.

- devices: every request needs its number of devices, and a device that is taken whole serves one request;
- amounts: what is left of a capacity or a counter serves only so many requests of at least an amount (`amount_bounds`);
- distinctAttribute: devices that must differ in an attribute need as many values;
- matchAttribute: devices that must agree in an attribute need one value that enough devices have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dralloc.allocator.amount_bounds import dimensions_of
from dralloc.allocator.attribute_constraints import Constraint, Value
from dralloc.allocator.bipartite_flow import can_meet
from dralloc.allocator.ledger import Ledger
from dralloc.allocator.problem_survey import ProblemSurvey, mask_union
from dralloc.allocator.remaining_demand import RemainingDemand, RemainingRequest
from dralloc.allocator.search import Cursor


class Bounds:
    def __init__(self, survey: ProblemSurvey, ledger: Ledger) -> None:
        self._survey = survey
        self._ledger = ledger
        self._remaining = RemainingDemand(survey, ledger)
        self._dimensions = dimensions_of(survey)

    def refute(self, cursor: Cursor, end: int) -> bool:
        """True if the requests from the cursor up to `end` provably cannot all be served."""
        requests = self._remaining.between(cursor, end)
        if requests is None:
            return True
        return (
            not self._devices_suffice(requests)
            or not all(dimension.suffices(requests, self._ledger) for dimension in self._dimensions)
            or not all(self._values_suffice(constraint, requests) for constraint in _constraints_of(requests))
        )

    def _devices_suffice(self, requests: Sequence[RemainingRequest]) -> bool:
        """False if the devices that are taken whole are too few. Admin access takes no device from other requests."""
        shareable = self._survey.shareable
        needs: Counter[int] = Counter()
        for request in requests:
            if any(option.alternative.is_admin for option in request.options):
                continue
            need = request.need - (request.devices & shareable).bit_count()
            if need > 0:
                needs[request.devices & ~shareable] += need
        return can_meet(needs, int.bit_count)

    def _values_suffice(self, constraint: Constraint, requests: Sequence[RemainingRequest]) -> bool:
        covered = [
            request
            for request in requests
            if all(constraint in option.alternative.constraints for option in request.options)
        ]
        if constraint.wants_equal:
            return self._some_value_suffices(constraint, covered)
        by_values = self._survey.devices_by_values(constraint)
        needs: Counter[int] = Counter()
        for request in covered:
            # All devices with a value count as one unit.
            needs[mask_union(devices for devices in by_values.values() if devices & request.devices)] += request.need
        return can_meet(needs, lambda group: sum(1 for devices in by_values.values() if devices & group))

    def _some_value_suffices(self, constraint: Constraint, covered: Sequence[RemainingRequest]) -> bool:
        """False if no value is on enough devices for every request. Once a value is chosen, this bound says nothing."""
        if (
            len(covered) < 2 and sum(request.need for request in covered) < 2
        ) or constraint.number in self._ledger.states:
            return True
        devices_with: dict[Value, int] = {}
        for values, devices in self._survey.devices_by_values(constraint).items():
            for value in values:
                devices_with[value] = devices_with.get(value, 0) | devices
        return any(self._value_suffices(devices, covered) for devices in devices_with.values())

    def _value_suffices(self, devices: int, covered: Sequence[RemainingRequest]) -> bool:
        restricted = [request._replace(devices=request.devices & devices) for request in covered]
        return all(request.devices.bit_count() >= request.need for request in restricted) and self._devices_suffice(
            restricted
        )


def _constraints_of(requests: Sequence[RemainingRequest]) -> list[Constraint]:
    found = (
        constraint
        for request in requests
        for option in request.options
        for constraint in option.alternative.constraints
    )
    return list(dict.fromkeys(found))
