"""Taking one device for a request: the checks that depend on what was taken before, in Kubernetes' order.

Counters come first, then constraints, then capacity. The order matters only to a request for all devices, for which a
constraint that is not satisfied ends the whole search, if nothing before it has stopped the device.
"""

from __future__ import annotations

from operator import sub

from dralloc.allocator.consumable_capacity import Charge
from dralloc.allocator.ledger import Ledger, Pick
from dralloc.allocator.requests import Alternative
from dralloc.allocator.supply import Place, Supply
from dralloc.devices.compatibility_groups import admit


class Taking:
    def __init__(self, supply: Supply, ledger: Ledger) -> None:
        self._supply = supply
        self._ledger = ledger

    def take(self, alternative: Alternative, place: Place) -> bool:
        """Whether the device can be taken; what it takes is then in the ledger. Where not, the caller rolls back."""
        is_share = self._supply.is_shareable(place)
        if not self._draw(place, is_share) or not self._satisfy(alternative, place):
            return False
        charge = self._supply.stock(alternative, place.strip).offer.charges[place.bit]
        if not self._consume(place, charge, is_share):
            return False
        self._ledger.record(Pick(alternative, place, charge, is_share))
        return True

    def _draw(self, place: Place, is_share: bool) -> bool:
        """Draws from the pool's counters, for the first share of a device only."""
        strip, bit = place
        if not strip.slice.counting >> bit & 1:
            return True
        if is_share and (place.position in self._ledger.free or self._supply.is_shared(place)):
            return True
        base = self._supply.counters(strip.pool)
        if base is None or not self._join_groups(place):
            return False
        ledger = self._ledger
        for counter_id, amount in strip.slice.draws[bit]:
            key = (strip.pool.pool_id, counter_id)
            left = ledger.counters.get(key, base[counter_id]) - amount
            if left < 0:
                return False
            ledger.put(ledger.counters, key, left)
        return True

    def _join_groups(self, place: Place) -> bool:
        """Joins the devices that draw from the same counter sets, where all of them belong to a common group."""
        if not self._supply.features.compatibility_groups:
            return True
        ledger, (strip, bit) = self._ledger, place
        base = self._supply.groups(strip.pool)
        for counter_set, groups in strip.slice.groups[bit]:
            key = (strip.pool.pool_id, counter_set)
            common = admit(ledger.groups.get(key, base.get(counter_set)), groups)
            if common is None:
                return False
            ledger.put(ledger.groups, key, common)
        return True

    def _satisfy(self, alternative: Alternative, place: Place) -> bool:
        ledger = self._ledger
        for constraint in alternative.constraints:
            values = self._supply.values(constraint, place)
            after = None if values is None else constraint.after(ledger.states.get(constraint), values)
            if after is None:
                if alternative.takes_all:
                    raise self._supply.constraint_fault(alternative, place)
                return False
            ledger.put(ledger.states, constraint, after)
        return True

    def _consume(self, place: Place, charge: Charge, is_share: bool) -> bool:
        """Takes from the device's capacity. A device that is given out whole need only have enough left."""
        position = place.position
        free = self._ledger.free.get(position)
        if free is None:
            if not is_share and not self._supply.is_shared(place):
                return True
            free = self._supply.free(place)
        left = tuple(map(sub, free, charge.nanos))
        if left and min(left) < 0:
            return False
        if is_share:
            self._ledger.put(self._ledger.free, position, left)
        return True
