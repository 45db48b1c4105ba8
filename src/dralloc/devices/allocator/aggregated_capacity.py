"""Several devices that have a capacity together (`allocationMode: AggregatedCapacity`).

A device gives what is missing, rounded up by its policy, or else the most that is left of it; one that is allocated once gives
all that it has. Solutions with fewer devices come first. All devices of a solution but one are taken in order; the last one,
which gives the rest, may be any other device. How much a device gives is not searched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from heapq import heappush, heapreplace, nlargest
from itertools import accumulate
from typing import Final, NamedTuple

from dralloc.devices.allocator.consumable_capacity import CapacityError, Charge, charge_for
from dralloc.devices.allocator.headroom import Room
from dralloc.devices.allocator.ledger import Ledger
from dralloc.devices.allocator.outcome import RESULTS_MAX
from dralloc.devices.allocator.requests import Alternative
from dralloc.devices.allocator.supply import DeviceCandidate, Supply
from dralloc.devices.share_terms import capacities_of
from dralloc.kube.resource_v1 import DeviceCapacity
from dralloc.primitives.quantity import INT64_MAX, NANOS, Quantity, quantity_like

# Amounts of the capacities that are asked for, in their order.
Amounts = tuple[int, ...]


class Gift(NamedTuple):
    """What a device gives for a request, and what the request consumes of it for that."""

    amounts: Amounts
    charge: Charge


class Givers:
    """The devices that can give something for a request, in the order in which it takes them."""

    def __init__(
        self, alternative: Alternative, supply: Supply, ledger: Ledger, candidates: Iterator[DeviceCandidate]
    ) -> None:
        self._alternative = alternative
        self._supply = supply
        self._ledger = ledger
        self._source = candidates
        self._totals = alternative.criteria.asked or {}

    @property
    def totals(self) -> Amounts:
        return tuple([total.nanos for total in self._totals.values()])

    @cached_property
    def _givers(self) -> Sequence[tuple[DeviceCandidate, Amounts]]:
        """The devices with the most that they give."""
        found = ((candidate, self.gift(candidate, self.totals)) for candidate in self._source)
        return [(candidate, self._most(candidate, gift)) for candidate, gift in found if gift is not None]

    def _most(self, candidate: DeviceCandidate, gift: Gift) -> Amounts:
        """A device may give its remainder, too."""
        if self._supply.terms(*candidate) is None:
            return gift.amounts
        free = self._free(candidate)
        return tuple([max(amount, free[name]) for name, amount in zip(self._totals, gift.amounts, strict=True)])

    @cached_property
    def _indices(self) -> Mapping[int, int]:
        return {candidate.position: index for index, (candidate, _) in enumerate(self._givers)}

    def sizes(self, results: int) -> Iterator[int]:
        """The numbers of devices to try. Fewer cannot reach the totals; `results` are those that the claim has."""
        most = min(self._alternative.count, RESULTS_MAX - results, len(self._givers))
        columns = list(zip(*(amounts for _, amounts in self._givers), strict=True))
        for size in range(1, most + 1):
            sums = [sum(nlargest(size, column)) for column in columns]
            if all(have >= total for have, total in zip(sums, self.totals, strict=True)):
                yield from range(size, most + 1)
                return

    def candidates(
        self, size: int, slot: int, after: DeviceCandidate | None, missing: Amounts, own: int
    ) -> Iterator[DeviceCandidate]:
        """The devices to try for a slot; `own` are those that the request has."""
        if slot == size - 1:
            for candidate, most in self._givers:
                if not own >> candidate.position & 1 and _reaches(most, missing):
                    yield candidate
            return
        start = 0 if after is None else self._indices[after.position] + 1
        enough = self._enough_from(start, size - slot, missing, own)
        for index in range(start, len(self._givers)):
            if enough[index - start]:
                yield self._givers[index][0]

    def _enough_from(self, start: int, slots: int, missing: Amounts, own: int) -> list[bool]:
        """For each device from `start` on: whether it, `slots - 2` devices after it and one more can give what is missing."""
        enough = [True] * (len(self._givers) - start)
        for column, lacking in enumerate(missing):
            gives = [0 if own >> candidate.position & 1 else most[column] for candidate, most in self._givers]
            # The most that a device before each one gives, and what the devices after it give.
            before = list(accumulate(gives, max, initial=-1))
            after = _Largest(slots - 1)
            for index in reversed(range(start, len(gives))):
                if gives[index] + after.most_with(before[index]) < lacking:
                    enough[index - start] = False
                after.add(gives[index])
        return enough

    def mask_after(self, candidate: DeviceCandidate) -> int:
        """The positions of the devices after one of them."""
        return sum(1 << found.position for found, _ in self._givers[self._indices[candidate.position] + 1 :])

    # --- What a device gives ------------------------------------------------------------------------------------

    def gift(self, candidate: DeviceCandidate, missing: Amounts) -> Gift | None:
        """None if the device can give nothing of what is missing."""
        strip, bit = candidate
        charge = self._supply.stock(self._alternative, strip).matches.charges[bit]
        if self._supply.is_shareable(candidate):
            found = self._charge(capacities_of(strip.slice.devices[bit]), self._free(candidate), missing)
            if found is None:
                return None
            charge = found
        amounts = self.given(candidate, charge)
        is_useful = any(give > 0 and lacking > 0 for give, lacking in zip(amounts, missing, strict=True))
        return Gift(amounts, charge) if is_useful else None

    def given(self, candidate: DeviceCandidate, charge: Charge) -> Amounts:
        """What the device gives to a request that consumes this of it: all that it has, if it is allocated once, or if nothing
        of the capacity is ever consumed."""
        capacities = capacities_of(candidate.strip.slice.devices[candidate.bit])
        consumed = dict(zip(capacities, charge.nanos, strict=True)) if self._supply.is_shareable(candidate) else {}
        return tuple(
            [
                capacity.value.nanos if name not in consumed or _consumes_nothing(capacity) else consumed[name]
                for name, capacity in ((name, capacities[name]) for name in self._totals)
            ]
        )

    def _free(self, candidate: DeviceCandidate) -> dict[str, int]:
        free = self._ledger.free.get(candidate.position) or self._supply.free(candidate)
        return dict(zip(candidate.strip.slice.devices[candidate.bit].capacity, free, strict=False))

    def _charge(
        self, capacities: Mapping[str, DeviceCapacity], free: Mapping[str, int], missing: Amounts
    ) -> Charge | None:
        asked: dict[str, Quantity] = {}
        for (name, total), lacking in zip(self._totals.items(), missing, strict=True):
            amount = self._amount(capacities[name], free[name], quantity_like(total, max(lacking, 0)))
            if amount is None:
                return None
            asked[name] = amount
        criteria = self._alternative.criteria
        charge = charge_for(capacities, asked, fractional_ranges=criteria.fractional_ranges)
        return charge if isinstance(charge, Charge) else None

    def _amount(self, capacity: DeviceCapacity, free: int, wanted: Quantity) -> Quantity | None:
        """What to ask for: the wanted amount, or the most that is left; None if the policy allows nothing of it."""
        fractional_ranges = self._alternative.criteria.fractional_ranges
        # If nothing is missing, the least: a strategy can demand that each share takes some.
        for amount in (wanted,) if wanted else (wanted, _LEAST):
            try:
                charge = charge_for({_ANY: capacity}, {_ANY: amount}, fractional_ranges=fractional_ranges)
            except CapacityError:
                return None
            if isinstance(charge, Charge) and charge.nanos[0] <= free:
                return amount
        return Room({_ANY: capacity}, (free,), fractional_ranges=fractional_ranges).largest_request(_ANY)


_ANY: Final = "capacity"
_LEAST: Final = Quantity.of(1)


def _consumes_nothing(capacity: DeviceCapacity) -> bool:
    return capacity.request_policy is not None and bool(capacity.request_policy.zero_consumption)


def after_gift(missing: Amounts, gift: Amounts) -> Amounts:
    return tuple([max(lacking - give, 0) for lacking, give in zip(missing, gift, strict=True)])


def _reaches(amounts: Amounts, missing: Amounts) -> bool:
    return all(give >= lacking for give, lacking in zip(amounts, missing, strict=True))


class _Largest:
    """The largest of some amounts, at most `count`."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._heap: list[int] = []
        self._sum = 0

    def add(self, amount: int) -> None:
        if len(self._heap) < self._count:
            heappush(self._heap, amount)
            self._sum += amount
        elif amount > self._heap[0]:
            self._sum += amount - heapreplace(self._heap, amount)

    def most_with(self, other: int) -> int:
        """The largest sum of `count` amounts of which one may be the other; less than nothing if there are too few."""
        lacking = self._count - len(self._heap)
        if lacking == 0:
            return max(self._sum, self._sum - self._heap[0] + other)
        return self._sum + other if lacking == 1 and other >= 0 else -INT64_MAX * NANOS
