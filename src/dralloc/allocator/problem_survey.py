"""A whole problem on one node, as masks over the node's total order: bit `p` is the device at position `p`.

The plain search looks at devices as it comes to them and needs none of this. Pruning needs to know what lies ahead of
every request, so it is worked out when, and only when, the plain search does not come to an end soon.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from functools import cached_property
from itertools import accumulate

from dralloc.allocator.attribute_constraints import Constraint, Values
from dralloc.allocator.consumable_capacity import Charge
from dralloc.allocator.outcome import RESULTS_MAX
from dralloc.allocator.requests import Alternative, Demand
from dralloc.allocator.supply import Place, Supply
from dralloc.devices.counters import CounterId
from dralloc.devices.identity import PoolId
from dralloc.snapshot.slices import bits_of

CounterKey = tuple[PoolId, CounterId]
Draws = tuple[tuple[CounterKey, int], ...]


class Landscape:
    def __init__(self, demand: Demand, supply: Supply) -> None:
        self.demand = demand
        self._supply = supply
        # For each alternative, by its number.
        self.usable = [0] * len(demand.alternatives)
        self.faulty = [0] * len(demand.alternatives)
        self.places: dict[int, Place] = {}
        self._charges: list[dict[int, Charge]] = [{} for _ in demand.alternatives]
        for alternative in demand.alternatives:
            self._survey(alternative)

    def _survey(self, alternative: Alternative) -> None:
        number = alternative.number
        for strip in self._supply.strips:
            stock = self._supply.stock(alternative, strip)
            self.usable[number] |= stock.usable << strip.offset
            self.faulty[number] |= stock.faulty << strip.offset
            for bit in bits_of(stock.usable | stock.faulty):
                place = Place(strip, bit)
                self.places[place.position] = place
                if stock.usable >> bit & 1:
                    self._charges[number][place.position] = stock.offer.charges[bit]

    # --- Alternatives -------------------------------------------------------------------------------------------

    def wanted(self, alternative: Alternative) -> int:
        return self._supply.wanted(alternative)

    @cached_property
    def ahead(self) -> tuple[int, ...]:
        """For each request the devices that it or a later one may look at; nothing after the last."""
        looked_at = [
            mask_union(self.usable[found.number] | self.faulty[found.number] for found in request.alternatives)
            for request in self.demand.requests
        ]
        return tuple(accumulate(reversed(looked_at), lambda mask, more: mask | more, initial=0))[::-1]

    @cached_property
    def constraints_ahead(self) -> tuple[tuple[Constraint, ...], ...]:
        """For each request the constraints that it or a later one is covered by."""
        found: dict[Constraint, None] = {}
        ahead: list[tuple[Constraint, ...]] = [()]
        for request in reversed(self.demand.requests):
            found.update((each, None) for alternative in request.alternatives for each in alternative.constraints)
            ahead.append(tuple(found))
        return tuple(reversed(ahead))

    @cached_property
    def counters_ahead(self) -> tuple[frozenset[CounterKey], ...]:
        """For each request the counters that devices ahead draw from."""
        return tuple(
            frozenset(key for draws, devices in self.drawing.items() if devices & mask for key, _ in draws)
            for mask in self.ahead
        )

    @cached_property
    def horizon(self) -> tuple[int, ...]:
        """For each request the first one from there on where the plain search may meet a fault, or the end."""
        end = len(self.demand.requests)
        horizon = [end]
        for index in reversed(range(end)):
            may_fault = any(self.may_fault(found) for found in self.demand.requests[index].alternatives)
            horizon.append(index if may_fault else horizon[-1])
        return tuple(reversed(horizon))

    def may_fault(self, alternative: Alternative) -> bool:
        """Whether the plain search may meet a fault while it serves the alternative."""
        if self.faulty[alternative.number]:
            return True
        if not alternative.takes_all or not alternative.constraints:
            return False
        # A constraint is asked about a device only if that can be taken, so one that cannot be, and comes first, is the end.
        everything = self._supply.everything_for(alternative)
        return bool(everything) and bool(self.usable[alternative.number] >> everything[0].position & 1)

    @cached_property
    def limited_claims(self) -> frozenset[int]:
        """Claims for which some choice of alternatives passes the limit of results."""
        most: dict[int, int] = {}
        for request in self.demand.requests:
            most[request.claim] = most.get(request.claim, 0) + max(map(self.wanted, request.alternatives), default=0)
        return frozenset(claim for claim, count in most.items() if count > RESULTS_MAX)

    @cached_property
    def order_matters(self) -> bool:
        """Whether it matters which of two like devices comes first: where a limit can end a request's search early, and so
        before it comes to a device that ends the whole search."""
        return bool(self.limited_claims) and self.horizon[0] < len(self.demand.requests)

    @cached_property
    def twins(self) -> tuple[int, ...]:
        """For each alternative the number of the first one that asks for the same."""
        first: dict[Hashable, int] = {}
        return tuple(first.setdefault(self._wish(found), found.number) for found in self.demand.alternatives)

    def _wish(self, alternative: Alternative) -> Hashable:
        # What keeps admin access off a device is a matter of its claim.
        claim = alternative.claim if alternative.is_admin else None
        return alternative.profile, alternative.takes_all, alternative.count, alternative.constraints, claim

    @cached_property
    def has_admin_access(self) -> bool:
        return any(alternative.is_admin for alternative in self.demand.alternatives)

    def everything(self, alternative: Alternative, slot: int) -> int:
        """The devices that an alternative that takes all has yet to take."""
        return mask_union(1 << place.position for place in self._supply.everything_for(alternative)[slot:])

    # --- Devices ------------------------------------------------------------------------------------------------

    def flat(self, masks: Iterable[tuple[int, int]]) -> int:
        """One mask from the masks of strips, given with the strips' numbers."""
        return mask_union(mask << self._supply.strips[number].offset for number, mask in masks)

    @cached_property
    def shareable(self) -> int:
        return mask_union(1 << at for at, place in self.places.items() if self._supply.is_shareable(place))

    @cached_property
    def whole(self) -> int:
        """The devices that are given out whole."""
        return mask_union(1 << at for at in self.places) & ~self.shareable

    def charge(self, alternative: Alternative, position: int) -> Charge:
        return self._charges[alternative.number][position]

    def capacity_names(self, position: int) -> tuple[str, ...]:
        strip, bit = self.places[position]
        return tuple(strip.slice.devices[bit].capacity)

    @cached_property
    def free(self) -> dict[int, tuple[int, ...]]:
        """What is left of the devices whose capacity matters, before the search."""
        return {
            at: self._supply.free(place)
            for at, place in self.places.items()
            if self._supply.is_shareable(place) or self._supply.is_shared(place)
        }

    @cached_property
    def crowded(self) -> tuple[int, ...]:
        """For each alternative the devices that have too little left for it before the search begins."""
        return tuple(
            mask_union(
                1 << at
                for at, charge in self._charges[alternative.number].items()
                if any(have < take for have, take in zip(self.free.get(at, ()), charge.nanos, strict=False))
            )
            for alternative in self.demand.alternatives
        )

    @cached_property
    def draws(self) -> dict[int, Draws]:
        """What each device takes from counters when it is taken, for those that do."""
        return {at: draws for at, place in self.places.items() if (draws := self._draws_of(place))}

    def _draws_of(self, place: Place) -> Draws:
        strip, bit = place
        if not self.demand.features.partitionable_devices or not strip.slice.counting >> bit & 1:
            return ()
        if self._supply.is_shareable(place) and self._supply.is_shared(place):
            return ()
        return tuple(((strip.pool.pool_id, counter_id), amount) for counter_id, amount in strip.slice.draws[bit])

    @cached_property
    def drawing(self) -> dict[Draws, int]:
        """The devices that draw the same."""
        devices: dict[Draws, int] = {}
        for position, draws in self.draws.items():
            devices[draws] = devices.get(draws, 0) | 1 << position
        return devices

    @cached_property
    def counters(self) -> dict[CounterKey, int]:
        """What is left of the counters before the search. Of a pool that is overdrawn nothing can be drawn."""
        left: dict[CounterKey, int] = {}
        for position in self.draws:
            pool = self.places[position].strip.pool
            base = self._supply.counters(pool)
            for counter_id in pool.layout.counters:
                left[pool.pool_id, counter_id] = base[counter_id] if base is not None else -1
        return left

    # --- Constraints --------------------------------------------------------------------------------------------

    def values(self, constraint: Constraint, position: int) -> Values | None:
        return self._supply.values(constraint, self.places[position])

    def devices_by_values(self, constraint: Constraint) -> dict[Values, int]:
        """The devices that a constraint sees alike, without those that it never admits."""
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
    def _by_values(self) -> dict[Constraint, dict[Values, int]]:
        return {}

    # --- Likeness -----------------------------------------------------------------------------------------------

    @cached_property
    def kinds(self) -> tuple[dict[int, int], ...]:
        """For each request, the kind of every device ahead. Devices of one kind are interchangeable from there on:
        this request and all later ones treat them alike."""
        kinds = dict(self._numbered((at, self._nature(at)) for at in self.places))
        by_request = [kinds]
        seen: set[Hashable] = set()
        for request in reversed(self.demand.requests):
            for alternative in request.alternatives:
                outlook = (alternative.profile, alternative.is_admin, alternative.takes_all, alternative.constraints)
                if outlook not in seen:
                    seen.add(outlook)
                    kinds = self._refined(kinds, alternative)
            by_request.append(kinds)
        return tuple(reversed(by_request))

    def _nature(self, position: int) -> Hashable:
        """What matters of a device whichever request takes it."""
        if self.order_matters:
            return position
        strip, bit = self.places[position]
        is_shareable = bool(self.shareable >> position & 1)
        pool_id = strip.pool.pool_id if strip.slice.counting >> bit & 1 else None
        groups = strip.slice.groups[bit] if pool_id is not None else ()
        return is_shareable, self.free.get(position), self.draws.get(position), pool_id, groups

    def _refined(self, kinds: dict[int, int], alternative: Alternative) -> dict[int, int]:
        return dict(self._numbered((at, (kind, self._role(alternative, at))) for at, kind in kinds.items()))

    def _role(self, alternative: Alternative, position: int) -> Hashable:
        """What a device is to an alternative."""
        if self.faulty[alternative.number] >> position & 1:
            return "faulty"
        if not self.usable[alternative.number] >> position & 1:
            return None
        # Which of all devices comes first decides whether a violated constraint is a fault or is never looked at.
        order = position if alternative.takes_all and alternative.constraints else None
        nanos = self.charge(alternative, position).nanos if position in self.free else ()
        return nanos, order, tuple(self.values(constraint, position) for constraint in alternative.constraints)

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
