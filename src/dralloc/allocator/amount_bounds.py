"""The bound on amounts: how many requests the rest of a capacity, or of a counter, can serve.

Capacities of shareable devices and counters of pools are treated equally: a dimension (memory, say) has many stores of
different sizes, and each request takes at least some amount from one store. However the requests are packed, a store of size
s serves at most s // a requests that need a or more. The bound is checked for every amount that occurs, and for the sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from dralloc.allocator.bipartite_flow import can_meet
from dralloc.allocator.ledger import Ledger
from dralloc.allocator.problem_survey import CounterKey, ProblemSurvey, mask_union
from dralloc.allocator.remaining_demand import RemainingRequest
from dralloc.snapshot.slices import bits_of


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
