"""Takes one device for a request: the checks that depend on earlier picks, in Kubernetes' order.

Counters come first, then constraints, then capacity. The order matters only to a request for all devices: a constraint that
is not satisfied ends its whole search, unless an earlier check has refused the device.
"""

from __future__ import annotations

from operator import sub

from dralloc.allocator.consumable_capacity import Charge
from dralloc.allocator.ledger import Ledger, Pick
from dralloc.allocator.partitionable_devices import draw_counters
from dralloc.allocator.requests import Alternative
from dralloc.allocator.supply import DeviceCandidate, Supply
from dralloc.cel.errors import CelError
from dralloc.devices.share_terms import ShareTerms


class DevicePicker:
    def __init__(self, supply: Supply, ledger: Ledger) -> None:
        self._supply = supply
        self._ledger = ledger

    def take(self, alternative: Alternative, candidate: DeviceCandidate, charge: Charge | None = None) -> bool:
        """Takes the device and returns True. If False is returned, the caller must roll back the ledger.

        `charge` is what is consumed if the request and the device do not decide it.
        """
        is_share = self._supply.is_shareable(candidate)
        if not draw_counters(self._supply, self._ledger, candidate) or not self._satisfy(alternative, candidate):
            return False
        stock = self._supply.stock(alternative, candidate.strip)
        if charge is None:
            charge = stock.matches.charges[candidate.bit]
        # A device without shares has all of its capacity for a request that takes it whole.
        is_shared = stock.shared >> candidate.bit & 1
        terms = self._supply.terms(*candidate) if is_share else None
        if terms is not None:
            taken = self._consume_by(terms, candidate, charge)
            if taken is None:
                return False
            charge = taken
        elif (is_share or is_shared) and not self._consume(candidate, charge, is_share):
            return False
        self._ledger.record(Pick(alternative, candidate, charge, is_share))
        return True

    def check_values(self, alternative: Alternative, candidate: DeviceCandidate) -> None:
        """Raises SearchAborted if a derived attribute cannot be evaluated."""
        for constraint in alternative.constraints:
            try:
                self._supply.values(constraint, candidate)
            except CelError as error:
                raise self._supply.derived_fault(alternative, constraint, candidate, error) from None

    def _satisfy(self, alternative: Alternative, candidate: DeviceCandidate) -> bool:
        ledger = self._ledger
        for constraint in alternative.constraints:
            try:
                values = self._supply.values(constraint, candidate)
            except CelError as error:
                raise self._supply.derived_fault(alternative, constraint, candidate, error) from None
            after = None if values is None else constraint.after(ledger.states.get(constraint.number), values)
            if after is None:
                if alternative.takes_all:
                    raise self._supply.constraint_fault(alternative, candidate)
                return False
            ledger.put(ledger.states, constraint.number, after)
        return True

    def _consume_by(self, terms: ShareTerms, candidate: DeviceCandidate, charge: Charge) -> Charge | None:
        """Takes what a share consumes beside the others that the device has; None if it has no room for it."""
        position = candidate.position
        state = self._ledger.free.get(position) or self._supply.free(candidate)
        taken = terms.amounts(state, charge.nanos, charge.unasked)
        if taken is None:
            return None
        self._ledger.put(self._ledger.free, position, terms.after(state, taken))
        return charge.taking(taken, candidate.strip.slice.devices[candidate.bit].capacity.values())

    def _consume(self, candidate: DeviceCandidate, charge: Charge, is_share: bool) -> bool:
        """Takes from the device's capacity. A device that is taken whole only needs to have enough left."""
        position = candidate.position
        free = self._ledger.free.get(position)
        if free is None:
            free = self._supply.free(candidate)
        left = tuple(map(sub, free, charge.nanos))
        if left and min(left) < 0:
            return False
        if is_share:
            self._ledger.put(self._ledger.free, position, left)
        return True
