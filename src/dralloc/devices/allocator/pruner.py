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

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from dralloc.devices.allocator.attribute_constraints import Constraint, Value
from dralloc.devices.allocator.bipartite_flow import can_meet
from dralloc.devices.allocator.ledger import Ledger
from dralloc.devices.allocator.problem_survey import CounterKey, ProblemSurvey, mask_union
from dralloc.devices.allocator.remaining_demand import RemainingDemand, RemainingRequest
from dralloc.devices.allocator.search import Cursor, SearchStatus
from dralloc.devices.allocator.supply import DeviceCandidate
from dralloc.devices.slices import bits_of


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


# --- Bounds ---------------------------------------------------------------------------------------------------------
# Bounds: proofs that a state has no solution, from what the remaining requests need and what is left.
#
# Every bound solves a relaxation of the problem, which keeps only one kind of rule. If the relaxation has no
# solution, the state has none. A rule that a bound ignores makes it weaker, never wrong.
#
# - devices: every request needs its number of devices, and a device that is taken whole serves one request;
# - amounts: what is left of a capacity or a counter serves only so many requests of at least an amount (`Dimension`, below);
# - distinctAttribute: devices that must differ in an attribute need as many values;
# - matchAttribute: devices that must agree in an attribute need one value that enough devices have.


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


# --- Amount bounds --------------------------------------------------------------------------------------------------
# The bound on amounts: how many requests the rest of a capacity, or of a counter, can serve.
#
# Capacities of shareable devices and counters of pools are treated equally: a dimension (memory, say) has many
# stores of different sizes, and each request takes at least some amount from one store. However the requests are
# packed, a store of size s serves at most s // a requests that need a or more. The bound is checked for every
# amount that occurs, and for the sum.


class Stores(Protocol):
    def units(self, devices: int, amount: int, ledger: Ledger) -> int:
        """How often the amount can be taken from the stores of the devices."""

    def total(self, devices: int, ledger: Ledger) -> int:
        """What is left in the stores of the devices."""


class _Need(NamedTuple):
    devices: int
    takings: int
    amount: int


class Dimension:
    """One capacity, or one counter.

    `takings` has, by the number of an alternative, the positive amounts that it takes, by device. `whole` are devices that are
    taken whole and take no amount: each of them serves one request without any.
    """

    def __init__(self, stores: Stores, takings: Mapping[int, Mapping[int, int]], whole: int) -> None:
        self._stores = stores
        self._devices = {number: mask_union(1 << at for at in taken) for number, taken in takings.items()}
        self._least = {number: min(taken.values()) for number, taken in takings.items()}
        self._whole = whole

    def suffices(self, requests: Sequence[RemainingRequest], ledger: Ledger) -> bool:
        needs = [need for request in requests if (need := self._need(request)) is not None]
        if not needs:
            return True
        amounts = {need.amount for need in needs}
        devices = mask_union(need.devices for need in needs)
        most = self._stores.total(devices, ledger) + max(amounts) * (devices & self._whole).bit_count()
        if sum(need.takings * need.amount for need in needs) > most:
            return False
        return all(self._lasts(amount, needs, ledger) for amount in amounts)

    def _need(self, request: RemainingRequest) -> _Need | None:
        """What a request must take; None if it may take nothing. Admin access, which may reuse a device, is left out."""
        options = request.options
        if any(option.alternative.is_admin or option.alternative.number not in self._least for option in options):
            return None
        # Shareable devices that take nothing serve every request.
        escapes = mask_union(
            option.devices & ~(self._devices[option.alternative.number] | self._whole) for option in options
        )
        takings = request.need - escapes.bit_count()
        if takings <= 0:
            return None
        return _Need(
            request.devices & ~escapes, takings, min(self._least[option.alternative.number] for option in options)
        )

    def _lasts(self, amount: int, needs: Sequence[_Need], ledger: Ledger) -> bool:
        wanted: Counter[int] = Counter()
        for need in needs:
            if need.amount >= amount:
                wanted[need.devices] += need.takings
        return can_meet(
            wanted, lambda group: self._stores.units(group, amount, ledger) + (group & self._whole).bit_count()
        )


def dimensions_of(survey: ProblemSurvey) -> list[Dimension]:
    return [*_capacities(survey), *_counters(survey)]


# --- Capacities of shareable devices ------------------------------------------------------------------------------


class _CapacityStores:
    """Each device that has the capacity is a store."""

    def __init__(self, survey: ProblemSurvey, index_of: Mapping[int, int]) -> None:
        self._survey = survey
        self._index_of = index_of
        self._devices = mask_union(1 << position for position in index_of)

    def units(self, devices: int, amount: int, ledger: Ledger) -> int:
        return sum(left // amount for left in self._left(devices, ledger))

    def total(self, devices: int, ledger: Ledger) -> int:
        return sum(self._left(devices, ledger))

    def _left(self, devices: int, ledger: Ledger) -> Iterator[int]:
        for position in bits_of(devices & self._devices):
            left = ledger.free.get(position) or self._survey.free[position]
            yield max(left[self._index_of[position]], 0)


def _capacities(survey: ProblemSurvey) -> Iterator[Dimension]:
    index_of: dict[str, dict[int, int]] = {}
    for position in bits_of(survey.shareable):
        for index, name in enumerate(survey.capacity_names(position)):
            index_of.setdefault(name, {})[position] = index
    for indices in index_of.values():
        takings: dict[int, dict[int, int]] = {}
        for alternative in survey.demand.alternatives:
            for position, index in indices.items():
                if survey.usable[alternative.number] >> position & 1:
                    amount = survey.least_charge(alternative, position)[index]
                    if amount:
                        takings.setdefault(alternative.number, {})[position] = amount
        yield Dimension(_CapacityStores(survey, indices), takings, survey.whole)


# --- Counters of pools ----------------------------------------------------------------------------------------------


class _CounterStores:
    """Each counter is a store, for all devices that consume it."""

    def __init__(self, survey: ProblemSurvey, devices_of: Mapping[CounterKey, int]) -> None:
        self._survey = survey
        self._devices_of = devices_of

    def units(self, devices: int, amount: int, ledger: Ledger) -> int:
        return sum(
            min(self._left(key, ledger) // amount, (drawing & devices).bit_count())
            for key, drawing in self._devices_of.items()
            if drawing & devices
        )

    def total(self, devices: int, ledger: Ledger) -> int:
        return sum(self._left(key, ledger) for key, drawing in self._devices_of.items() if drawing & devices)

    def _left(self, key: CounterKey, ledger: Ledger) -> int:
        return max(ledger.counters.get(key, self._survey.counters[key]), 0)


def _counters(survey: ProblemSurvey) -> Iterator[Dimension]:
    """One dimension for each name of counters. Shareable devices are left out: they consume once for all their shares."""
    devices_of: dict[str, dict[CounterKey, int]] = {}
    amounts: dict[str, dict[int, int]] = {}
    for position, draws in survey.draws.items():
        if survey.shareable >> position & 1:
            continue
        for key, amount in draws:
            name = key[1].counter
            if amount > 0 and position not in amounts.setdefault(name, {}):
                amounts[name][position] = amount
                stores = devices_of.setdefault(name, {})
                stores[key] = stores.get(key, 0) | 1 << position
    for name, stores in devices_of.items():
        takings: dict[int, dict[int, int]] = {}
        for alternative in survey.demand.alternatives:
            usable = survey.usable[alternative.number]
            taken = {position: amount for position, amount in amounts[name].items() if usable >> position & 1}
            if taken:
                takings[alternative.number] = taken
        yield Dimension(_CounterStores(survey, stores), takings, survey.whole & ~mask_union(stores.values()))
