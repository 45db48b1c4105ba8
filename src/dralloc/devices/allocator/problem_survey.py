"""A survey of a whole problem on one node, as masks over the node's total order: bit `p` is the device at position `p`.

The plain search evaluates devices as it reaches them and needs none of this. Pruning needs to know what lies ahead of every
request; the survey is made only if the plain search does not end soon.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from functools import cached_property
from itertools import accumulate

from dralloc.cel.errors import CelError
from dralloc.devices.allocator.attribute_constraints import Constraint, Values
from dralloc.devices.allocator.consumable_capacity import NO_CHARGE, Charge
from dralloc.devices.allocator.outcome import RESULTS_MAX
from dralloc.devices.allocator.requests import Alternative, Demand
from dralloc.devices.allocator.supply import DeviceCandidate, Supply
from dralloc.devices.counters import CounterId
from dralloc.devices.identity import PoolId
from dralloc.devices.share_terms import ShareTerms, capacities_of
from dralloc.devices.slices import bits_of

CounterKey = tuple[PoolId, CounterId]
Draws = tuple[tuple[CounterKey, int], ...]


class ProblemSurvey:
    def __init__(self, demand: Demand, supply: Supply) -> None:
        self.demand = demand
        self._supply = supply
        # By the number of the alternative.
        self.usable = [0] * len(demand.alternatives)
        self.faulty = [0] * len(demand.alternatives)
        self.candidates: dict[int, DeviceCandidate] = {}
        self._charges: list[dict[int, Charge]] = [{} for _ in demand.alternatives]
        for alternative in demand.alternatives:
            self._add_alternative(alternative)

    def _add_alternative(self, alternative: Alternative) -> None:
        number = alternative.number
        for strip in self._supply.strips:
            stock = self._supply.stock(alternative, strip)
            self.usable[number] |= stock.usable << strip.offset
            self.faulty[number] |= stock.faulty << strip.offset
            for bit in bits_of(stock.usable | stock.faulty):
                candidate = DeviceCandidate(strip, bit)
                self.candidates[candidate.position] = candidate
                if stock.usable >> bit & 1:
                    self._charges[number][candidate.position] = stock.matches.charges[bit]

    # --- Alternatives -------------------------------------------------------------------------------------------

    def wanted(self, alternative: Alternative) -> int:
        return self._supply.wanted(alternative)

    def _most(self, alternative: Alternative) -> int:
        """The number of devices that the alternative takes at most."""
        return alternative.count if alternative.is_aggregated else self.wanted(alternative)

    @cached_property
    def ahead(self) -> tuple[int, ...]:
        """For each request, the devices that it or a later request may evaluate; 0 after the last request."""
        looked_at = [
            mask_union(self.usable[found.number] | self.faulty[found.number] for found in request.alternatives)
            for request in self.demand.requests
        ]
        return tuple(accumulate(reversed(looked_at), lambda mask, more: mask | more, initial=0))[::-1]

    @cached_property
    def constraints_ahead(self) -> tuple[tuple[int, ...], ...]:
        """For each request, the numbers of the constraints that cover it or a later request."""
        found: dict[int, None] = {}
        ahead: list[tuple[int, ...]] = [()]
        for request in reversed(self.demand.requests):
            found.update((each.number, None) for option in request.alternatives for each in option.constraints)
            ahead.append(tuple(found))
        return tuple(reversed(ahead))

    @cached_property
    def counters_ahead(self) -> tuple[frozenset[CounterKey], ...]:
        """For each request, the counters that devices ahead consume."""
        return tuple(
            frozenset(key for draws, devices in self.drawing.items() if devices & mask for key, _ in draws)
            for mask in self.ahead
        )

    @cached_property
    def next_error(self) -> tuple[int, ...]:
        """For each request, the first one from it on where the plain search may meet a fatal error, or the end."""
        end = len(self.demand.requests)
        next_error = [end]
        for index in reversed(range(end)):
            may_fail = any(self.may_fail(found) for found in self.demand.requests[index].alternatives)
            next_error.append(index if may_fail else next_error[-1])
        return tuple(reversed(next_error))

    def may_fail(self, alternative: Alternative) -> bool:
        """True if the plain search may meet a fatal error while it serves the alternative."""
        if self.faulty[alternative.number] or any(map(self._cannot_derive, alternative.constraints)):
            return True
        if not alternative.takes_all or not alternative.constraints:
            return False
        # A violated constraint is fatal only on a device that can be taken otherwise. If the first device cannot be taken, the
        # search of the alternative ends there.
        everything = self._supply.everything_for(alternative)
        return bool(everything) and bool(self.usable[alternative.number] >> everything[0].position & 1)

    @cached_property
    def limited_claims(self) -> frozenset[int]:
        """Claims for which some choice of alternatives exceeds the maximum number of results."""
        most: dict[int, int] = {}
        for request in self.demand.requests:
            most[request.claim] = most.get(request.claim, 0) + max(map(self._most, request.alternatives), default=0)
        return frozenset(claim for claim, count in most.items() if count > RESULTS_MAX)

    @cached_property
    def order_matters(self) -> bool:
        """True if the order of equivalent devices matters: the limit of results can end the search of a request before it
        reaches a device with a fatal error."""
        return bool(self.limited_claims) and self.next_error[0] < len(self.demand.requests)

    @cached_property
    def allocations_matter(self) -> bool:
        """True if it matters how often a device is allocated: to a condition, or to the order where that matters."""
        alternatives = self.demand.alternatives
        return any(found.allocations is not None for found in alternatives) or (
            self.order_matters and self.demand.counts_allocations
        )

    @cached_property
    def can_become_possible(self) -> bool:
        """True if taking a device may make other requests possible: one requires that a device is allocated, or the first share
        of a device decides what later ones take."""
        alternatives = self.demand.alternatives
        return bool(self._terms) or any(
            found.allocations is not None and found.allocations.min for found in alternatives
        )

    @cached_property
    def representatives(self) -> tuple[int, ...]:
        """For each alternative, the number of the first one with the same request."""
        first: dict[Hashable, int] = {}
        return tuple(first.setdefault(self._request_key(found), found.number) for found in self.demand.alternatives)

    def _request_key(self, alternative: Alternative) -> Hashable:
        # Admin access excludes devices only within its claim.
        claim = alternative.claim if alternative.is_admin else None
        return (
            alternative.criteria,
            alternative.takes_all,
            alternative.count,
            alternative.constraints,
            alternative.preference,
            alternative.allocations,
            claim,
            self._supply.reach(alternative),
        )

    @cached_property
    def has_admin_access(self) -> bool:
        return any(alternative.is_admin for alternative in self.demand.alternatives)

    def everything(self, alternative: Alternative, slot: int) -> int:
        """The devices that an alternative which takes all has yet to take from `slot` on."""
        return mask_union(1 << candidate.position for candidate in self._supply.everything_for(alternative)[slot:])

    # --- Devices ------------------------------------------------------------------------------------------------

    def flat(self, masks: Iterable[tuple[int, int]]) -> int:
        """The masks of strips, given by strip number, as one mask over the total order."""
        return mask_union(mask << self._supply.strips[number].offset for number, mask in masks)

    @cached_property
    def shareable(self) -> int:
        return mask_union(1 << at for at, candidate in self.candidates.items() if self._supply.is_shareable(candidate))

    @cached_property
    def whole(self) -> int:
        """The devices that are taken whole."""
        return mask_union(1 << at for at in self.candidates) & ~self.shareable

    def charge(self, alternative: Alternative, position: int) -> Charge:
        return self._charges[alternative.number][position]

    def capacity_names(self, position: int) -> tuple[str, ...]:
        strip, bit = self.candidates[position]
        return tuple(strip.slice.devices[bit].capacity)

    @cached_property
    def free(self) -> dict[int, tuple[int, ...]]:
        """The capacity that is left, before the search, of devices that are shareable or have shares in use."""
        return {
            at: self._supply.free(candidate)
            for at, candidate in self.candidates.items()
            if self._supply.is_shareable(candidate) or self._supply.is_shared(candidate)
        }

    @cached_property
    def too_full(self) -> tuple[int, ...]:
        """For each alternative, the devices that have too little capacity left before the search."""
        return tuple(
            mask_union(
                1 << at
                for at in self._charges[alternative.number]
                if at in self.free and self.lacks_capacity(alternative, at, self.free[at])
            )
            for alternative in self.demand.alternatives
        )

    def lacks_capacity(self, alternative: Alternative, position: int, left: tuple[int, ...]) -> bool:
        """True if the device has too little capacity left. It will not have more later in a search: a device with share
        terms has room for everything that matches until its first share, which settles the terms for the later ones."""
        charge = self._charges[alternative.number][position]
        terms = self._terms.get(position)
        if terms is not None:
            if charge.is_partial:
                return False
            return terms.amounts(left, charge.nanos, charge.unasked) is None
        return any(have < take for have, take in zip(left, charge.nanos, strict=False))

    @cached_property
    def _terms(self) -> dict[int, ShareTerms]:
        """The devices of which a share takes what depends on other shares."""
        found = ((at, self._supply.terms(*candidate)) for at, candidate in self.candidates.items())
        return {at: terms for at, terms in found if terms is not None}

    def least_charge(self, alternative: Alternative, position: int) -> tuple[int, ...]:
        """What a share of the device takes at least, whatever other shares there are."""
        charge = self._charges[alternative.number][position]
        terms = self._terms.get(position)
        return charge.nanos if terms is None else terms.least(charge.nanos, charge.unasked)

    @cached_property
    def draws(self) -> dict[int, Draws]:
        """What devices consume of counters when they are taken; devices that consume nothing are left out."""
        return {at: draws for at, candidate in self.candidates.items() if (draws := self._draws_of(candidate))}

    def _draws_of(self, candidate: DeviceCandidate) -> Draws:
        strip, bit = candidate
        if not self.demand.features.partitionable_devices or not strip.slice.counting >> bit & 1:
            return ()
        if self._supply.is_shareable(candidate) and self._supply.is_shared(candidate):
            return ()
        return tuple(((strip.pool.pool_id, counter_id), amount) for counter_id, amount in strip.slice.draws[bit])

    @cached_property
    def drawing(self) -> dict[Draws, int]:
        """The devices that consume the same of the same counters."""
        devices: dict[Draws, int] = {}
        for position, draws in self.draws.items():
            devices[draws] = devices.get(draws, 0) | 1 << position
        return devices

    @cached_property
    def counters(self) -> dict[CounterKey, int]:
        """What is left of the counters before the search; less than nothing if a counter of the pool is overdrawn."""
        left: dict[CounterKey, int] = {}
        for position in self.draws:
            pool = self.candidates[position].strip.pool
            base = self._supply.counters(pool)
            for counter_id in pool.layout.counters:
                left[pool.pool_id, counter_id] = base[counter_id] if base is not None else -1
        return left

    # --- Constraints --------------------------------------------------------------------------------------------

    def values(self, constraint: Constraint, position: int) -> Values | None:
        """The values of a device. One that no other device has if they cannot be derived."""
        try:
            return self._supply.values(constraint, self.candidates[position])
        except CelError:
            self._underived.add(constraint)
            return constraint.unknown_values(position)

    def _cannot_derive(self, constraint: Constraint) -> bool:
        """True if the constraint's attribute cannot be derived from some device."""
        if not constraint.is_derived:
            return False
        self.devices_by_values(constraint)
        return constraint in self._underived

    def devices_by_values(self, constraint: Constraint) -> dict[Values, int]:
        """The devices by their values of the constraint's attribute, without those that can never satisfy it."""
        known = self._by_values.get(constraint)
        if known is None:
            known = self._by_values[constraint] = {}
            covered = (found for found in self.demand.alternatives if constraint in found.constraints)
            for position in bits_of(mask_union(self.usable[found.number] for found in covered)):
                values = self.values(constraint, position)
                if values is not None:
                    known[values] = known.get(values, 0) | 1 << position
        return known

    @cached_property
    def _underived(self) -> set[Constraint]:
        """Constraints with an attribute that cannot be derived from some device."""
        return set()

    @cached_property
    def _by_values(self) -> dict[Constraint, dict[Values, int]]:
        return {}

    # --- Equivalent devices -------------------------------------------------------------------------------------

    @cached_property
    def kinds(self) -> tuple[dict[int, int], ...]:
        """For each request, the kind of every device ahead. Devices of one kind are interchangeable from there on: this
        request and all later requests treat them equally."""
        kinds = dict(self._numbered((at, self._own_key(at)) for at in self.candidates))
        by_request = [kinds]
        seen: set[Hashable] = set()
        for request in reversed(self.demand.requests):
            for alternative in request.alternatives:
                reach = self._supply.reach(alternative)
                key = (
                    alternative.criteria,
                    alternative.is_admin,
                    alternative.takes_all,
                    alternative.constraints,
                    reach,
                )
                if key not in seen:
                    seen.add(key)
                    kinds = self._refined(kinds, alternative)
            by_request.append(kinds)
        return tuple(reversed(by_request))

    def _own_key(self, position: int) -> Hashable:
        """The properties of a device that matter to every request."""
        if self.order_matters:
            return position
        strip, bit = self.candidates[position]
        is_shareable = bool(self.shareable >> position & 1)
        pool_id = strip.pool.pool_id if strip.slice.counting >> bit & 1 else None
        groups = strip.slice.groups[bit] if pool_id is not None else ()
        terms = self._terms.get(position)
        allocations = self._supply.allocations(self.candidates[position]) if self.allocations_matter else 0
        return is_shareable, self.free.get(position), terms, self.draws.get(position), pool_id, groups, allocations

    def _refined(self, kinds: dict[int, int], alternative: Alternative) -> dict[int, int]:
        return dict(self._numbered((at, (kind, self._key_for(alternative, at))) for at, kind in kinds.items()))

    def _key_for(self, alternative: Alternative, position: int) -> Hashable:
        """The properties of a device that matter to one alternative."""
        if self.faulty[alternative.number] >> position & 1:
            return "faulty"
        if not self.usable[alternative.number] >> position & 1:
            return None
        # The order of devices decides whether a violated constraint is met, which is fatal, or never evaluated.
        order = position if alternative.takes_all and alternative.constraints else None
        charge = self.charge(alternative, position) if position in self.free else NO_CHARGE
        # What a device gives depends on its policies and, if it is allocated once, on its capacities.
        strip, bit = self.candidates[position]
        capacities = tuple(capacities_of(strip.slice.devices[bit]).items()) if alternative.is_aggregated else ()
        values = tuple(self.values(constraint, position) for constraint in alternative.constraints)
        return charge.nanos, charge.unasked, order, capacities, values

    @staticmethod
    def _numbered(entries: Iterator[tuple[int, Hashable]]) -> Iterator[tuple[int, int]]:
        numbers: dict[Hashable, int] = {}
        for position, signature in entries:
            yield position, numbers.setdefault(signature, len(numbers))


def mask_union(masks: Iterable[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union
