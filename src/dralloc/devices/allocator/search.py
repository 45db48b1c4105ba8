"""The search: depth first, in Kubernetes' order, until the first complete solution.

Requests are served one after the other; each takes its devices in the node's total order, and a prioritized list tries
its alternatives as listed, each with everything that comes after it. Open choices are on an explicit stack: its depth is the
number of requested devices, which users control, so that Python's own stack must not be used for it.

A `Pruning` is asked about every state before it is explored. Without it this is the plain search that defines the answer;
with it the answer is the same and dead ends are left early (see `pruner`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from enum import Enum
from operator import sub
from typing import NamedTuple, Protocol

from dralloc.cel.errors import CelError
from dralloc.devices.allocator.aggregated_capacity import Givers, after_gift
from dralloc.devices.allocator.consumable_capacity import Charge
from dralloc.devices.allocator.device_preference import PreferredOrder, is_allocated_enough
from dralloc.devices.allocator.ledger import Ledger, Pick, draw_counters
from dralloc.devices.allocator.outcome import RESULTS_MAX
from dralloc.devices.allocator.requests import Alternative, Demand
from dralloc.devices.allocator.supply import DeviceCandidate, Supply
from dralloc.devices.share_terms import ShareTerms
from dralloc.devices.slices import bits_of
from dralloc.kube.resource_v1 import FIRST_FIT

# An alternative of a request, the number of devices that it takes, or a device.
Option = Alternative | int | DeviceCandidate


class SearchStatus(Enum):
    """How a search, or the exploration of one state, ended."""

    SOLVED = "solved"
    DEAD = "dead"
    # The claim would get more results than it may have, whichever devices it takes: only another alternative can help.
    # Some alternatives of the claim always do, because a claim that requests too many devices at its least is fatal.
    OVER_LIMIT = "over limit"
    OUT_OF_STEPS = "out of steps"


class Cursor(NamedTuple):
    """The next decision of a search: a request, the alternative chosen for it, and the slot to fill with a device."""

    request: int
    alternative: Alternative | None = None
    slot: int = 0
    # Devices of one request are taken in ascending order: only devices after this one are tried.
    after: DeviceCandidate | None = None
    # The order that the request prefers; None for the total order.
    order: PreferredOrder | Givers | None = None
    # The number of devices that give an aggregated capacity; 0 before it is chosen.
    size: int = 0

    @property
    def rest(self) -> int:
        """The devices that the request has not passed, and others, as a mask over the total order."""
        if self.after is None:
            return -1
        return -2 << self.after.position if self.order is None else self.order.mask_after(self.after)

    @property
    def chooses_size(self) -> bool:
        return self.alternative is not None and self.alternative.is_aggregated and not self.size


class Pruning(Protocol):
    """Which states to leave out: those without a solution where the plain search would meet no fatal error either."""

    def key(self, cursor: Cursor) -> Hashable:
        """Equal for two states only if exploring them ends the same way."""

    def recall(self, key: Hashable) -> SearchStatus | None:
        """How a state with this key ended, if one was explored."""

    def learn(self, key: Hashable, status: SearchStatus) -> None: ...

    def is_unsatisfiable(self, cursor: Cursor) -> bool:
        """True if a bound proves that the state has no solution."""

    def equivalence(self, cursor: Cursor, candidate: DeviceCandidate) -> Hashable:
        """Equal for two devices only if the second leads to no solution where the first leads to none."""


class ChoicePoint:
    """An open choice of an alternative or a device. `mark` is the state of the ledger before the choice."""

    __slots__ = ("cursor", "key", "limited", "mark", "options", "seen", "tried")

    def __init__(self, cursor: Cursor, mark: int, options: Iterator[Option], key: Hashable) -> None:
        self.cursor = cursor
        self.mark = mark
        self.options = options
        self.key = key
        self.tried = 0
        # The number of tried options that ended over the limit.
        self.limited = 0
        # The equivalence keys of the devices tried so far.
        self.seen: set[Hashable] = set()


class Search:
    def __init__(self, demand: Demand, supply: Supply, steps_max: int) -> None:
        self.ledger = Ledger(counts_allocations=demand.counts_allocations)
        self.steps = 0
        self._steps_max = steps_max
        self._requests = demand.requests
        self._supply = supply
        self._picker = DevicePicker(supply, self.ledger)
        self._choice_points: list[ChoicePoint] = []
        self._pruning: Pruning | None = None
        self._end = len(demand.requests)

    def run(self, pruning: Pruning | None = None) -> SearchStatus:
        """Leaves the first solution in the ledger. Raises SearchAborted where the search meets a fatal error."""
        return self.run_part(0, len(self._requests), pruning)

    def run_part(self, start: int, end: int, pruning: Pruning | None) -> SearchStatus:
        """Serves only requests[start:end]."""
        self._pruning = pruning
        self._end = end
        choice_points = self._choice_points
        try:
            status = self._open(Cursor(start))
            while status is None or status is SearchStatus.DEAD or status is SearchStatus.OVER_LIMIT:
                if not choice_points:
                    return SearchStatus.DEAD
                if self.steps > self._steps_max:
                    return SearchStatus.OUT_OF_STEPS
                status = self._advance(choice_points[-1], status)
            return status
        finally:
            # The options of an open choice refer to the search: without this, it would live until a garbage collection, and
            # the snapshot with it.
            choice_points.clear()

    def _advance(self, choice_point: ChoicePoint, status: SearchStatus | None) -> SearchStatus | None:
        """Tries the next option of the top choice point. `status` is how the last one ended."""
        chooses_device = choice_point.cursor.alternative is not None
        if status is SearchStatus.OVER_LIMIT:
            # Another device cannot help, another alternative can. More devices that give a capacity cannot, but with other
            # devices for earlier requests fewer might do.
            if chooses_device:
                return self._close(choice_point, SearchStatus.DEAD if choice_point.cursor.chooses_size else status)
            choice_point.limited += 1
        self.ledger.rollback(choice_point.mark)
        option = next(choice_point.options, None)
        if option is None:
            is_over = choice_point.limited == choice_point.tried > 0
            return self._close(choice_point, SearchStatus.OVER_LIMIT if is_over else SearchStatus.DEAD)
        choice_point.tried += 1
        self.steps += 1
        return self._choose(choice_point, option)

    def _close(self, choice_point: ChoicePoint, status: SearchStatus) -> SearchStatus:
        self._choice_points.pop()
        if self._pruning is not None:
            self._pruning.learn(choice_point.key, status)
        return status

    def _choose(self, choice_point: ChoicePoint, option: Option) -> SearchStatus | None:
        cursor = choice_point.cursor
        if isinstance(option, Alternative):
            self.ledger.put(self.ledger.chosen, cursor.request, option)
            return self._open(Cursor(cursor.request, option))
        if isinstance(option, int):
            return self._choose_size(cursor, option)
        if self._pruning is not None:
            equivalence = self._pruning.equivalence(cursor, option)
            if equivalence in choice_point.seen:
                return SearchStatus.DEAD
            choice_point.seen.add(equivalence)
        assert cursor.alternative is not None, "a candidate is an option only where an alternative is chosen"
        if cursor.size:
            return self._take_gift(cursor, cursor.alternative, option)
        if not self._picker.take(cursor.alternative, option):
            return SearchStatus.DEAD
        return self._open(Cursor(cursor.request, cursor.alternative, cursor.slot + 1, option, cursor.order))

    def _choose_size(self, cursor: Cursor, size: int) -> SearchStatus | None:
        assert isinstance(cursor.order, Givers), "only aggregated capacity has a choice of the number of devices"
        self.ledger.put(self.ledger.missing, cursor.request, cursor.order.totals)
        self.ledger.put(self.ledger.own, cursor.request, 0)
        return self._open(cursor._replace(size=size))

    def _take_gift(self, cursor: Cursor, alternative: Alternative, option: DeviceCandidate) -> SearchStatus | None:
        """Takes what a device gives. The last one must give all that is missing, and the others must not."""
        ledger, request, givers = self.ledger, cursor.request, cursor.order
        assert isinstance(givers, Givers), "aggregated capacity is given by devices"
        gift = givers.gift(option, ledger.missing[request])
        if gift is None or not self._picker.take(alternative, option, gift.charge):
            return SearchStatus.DEAD
        # The device may have given its remainder, too.
        charge = ledger.picks[len(ledger.picks) - 1].charge
        missing = after_gift(ledger.missing[request], givers.given(option, charge))
        if any(missing) is (cursor.slot == cursor.size - 1):
            return SearchStatus.DEAD
        ledger.put(ledger.missing, request, missing)
        ledger.put(ledger.own, request, ledger.own[request] | 1 << option.position)
        return self._open(cursor._replace(slot=cursor.slot + 1, after=option))

    def _open(self, cursor: Cursor) -> SearchStatus | None:
        """Pushes the choice at the cursor; if there is none, returns how the search ends there."""
        while True:
            if cursor.request == self._end:
                return SearchStatus.SOLVED
            request = self._requests[cursor.request]
            alternative = cursor.alternative
            if alternative is None:
                if request.is_list:
                    return self._push(cursor, iter(request.alternatives))
                alternative = request.alternatives[0]
                cursor = Cursor(cursor.request, alternative)
            if alternative.is_aggregated and not cursor.size:
                return self._push_sizes(cursor, alternative)
            wanted = cursor.size or self._supply.wanted(alternative)
            if alternative.takes_all and wanted == 0:
                return SearchStatus.DEAD
            if cursor.slot < wanted:
                break
            cursor = Cursor(cursor.request + 1)
        if self.ledger.recorded.get(request.claim, 0) + wanted - cursor.slot > RESULTS_MAX:
            return SearchStatus.OVER_LIMIT
        if alternative.preference != FIRST_FIT and cursor.order is None:
            cursor = cursor._replace(order=self._preferred_order(alternative))
        return self._push(cursor, self._candidates(alternative, cursor))

    def _push(self, cursor: Cursor, options: Iterator[Option]) -> SearchStatus | None:
        key: Hashable = None
        if self._pruning is not None:
            key = self._pruning.key(cursor)
            status = self._pruning.recall(key)
            if status is None and self._pruning.is_unsatisfiable(cursor):
                status = SearchStatus.DEAD
                self._pruning.learn(key, status)
            if status is not None:
                return status
        self._choice_points.append(ChoicePoint(cursor, self.ledger.mark(), options, key))
        return None

    def _push_sizes(self, cursor: Cursor, alternative: Alternative) -> SearchStatus | None:
        """Pushes the choice how many devices give an aggregated capacity."""
        order = self._preferred_order(alternative)
        candidates = self._candidates(alternative, cursor._replace(order=order, size=1))
        givers = Givers(alternative, self._supply, self.ledger, candidates)
        return self._push(cursor._replace(order=givers), self._sizes(alternative, givers))

    def _sizes(self, alternative: Alternative, givers: Givers) -> Iterator[int]:
        """The numbers of devices to try. A request that looks at all devices meets their errors, in the total order."""
        for strip in self._supply.strips:
            stock = self._supply.stock(alternative, strip)
            for bit in bits_of((stock.usable | stock.faulty) & ~self.ledger.taken_for(alternative, strip.number)):
                candidate = DeviceCandidate(strip, bit)
                if not is_allocated_enough(alternative, candidate, self._supply, self.ledger):
                    continue
                if stock.faulty >> bit & 1:
                    raise self._supply.fault(alternative, candidate)
                self._picker.check_values(alternative, candidate)
        yield from givers.sizes(self.ledger.recorded.get(alternative.claim, 0))

    # --- Devices ----------------------------------------------------------------------------------------------

    def _candidates(self, alternative: Alternative, cursor: Cursor) -> Iterator[DeviceCandidate]:
        """The devices to try, in order. Raises a device's fatal error when the search reaches the device."""
        if cursor.order is None:
            if alternative.takes_all:
                return self._of_everything(alternative, cursor.slot)
            return self._in_total_order(alternative, cursor.after)
        if isinstance(cursor.order, PreferredOrder):
            return self._in_preferred_order(alternative, cursor.order, cursor.after)
        missing, own = self.ledger.missing[cursor.request], self.ledger.own[cursor.request]
        return cursor.order.candidates(cursor.size, cursor.slot, cursor.after, missing, own)

    def _preferred_order(self, alternative: Alternative) -> PreferredOrder | None:
        if alternative.preference == FIRST_FIT:
            return None
        return PreferredOrder(alternative, self._supply, self.ledger)

    def _of_everything(self, alternative: Alternative, slot: int) -> Iterator[DeviceCandidate]:
        candidate = self._supply.everything_for(alternative)[slot]
        stock = self._supply.stock(alternative, candidate.strip)
        mask = stock.usable & ~self.ledger.taken_for(alternative, candidate.strip.number)
        if mask >> candidate.bit & 1 and is_allocated_enough(alternative, candidate, self._supply, self.ledger):
            yield candidate

    def _in_preferred_order(
        self, alternative: Alternative, order: PreferredOrder, after: DeviceCandidate | None
    ) -> Iterator[DeviceCandidate]:
        """Devices on which the request fails come last: it prefers every other."""
        for candidate in order.after(after):
            strip, bit = candidate
            usable = self._supply.stock(alternative, strip).usable & ~self.ledger.taken_for(alternative, strip.number)
            if usable >> bit & 1 and is_allocated_enough(alternative, candidate, self._supply, self.ledger):
                yield candidate
        for strip in self._supply.strips:
            faulty = self._supply.stock(alternative, strip).faulty
            for bit in bits_of(faulty & ~self.ledger.taken_for(alternative, strip.number)):
                candidate = DeviceCandidate(strip, bit)
                if is_allocated_enough(alternative, candidate, self._supply, self.ledger):
                    raise self._supply.fault(alternative, candidate)

    def _in_total_order(self, alternative: Alternative, after: DeviceCandidate | None) -> Iterator[DeviceCandidate]:
        strips, is_conditional = self._supply.strips, alternative.allocations is not None
        for number in range(after.strip.number if after is not None else 0, len(strips)):
            strip = strips[number]
            stock = self._supply.stock(alternative, strip)
            mask = (stock.usable | stock.faulty) & ~self.ledger.taken_for(alternative, number)
            if after is not None and after.strip is strip:
                mask &= -2 << after.bit
            while mask:
                lowest = mask & -mask
                mask ^= lowest
                bit = lowest.bit_length() - 1
                if is_conditional and not is_allocated_enough(
                    alternative, DeviceCandidate(strip, bit), self._supply, self.ledger
                ):
                    continue
                if stock.faulty & lowest:
                    raise self._supply.fault(alternative, DeviceCandidate(strip, bit))
                if not (stock.shared & lowest and self._supply.lacks_capacity(stock, strip, bit)):
                    yield DeviceCandidate(strip, bit)


# --- Device picker --------------------------------------------------------------------------------------------------
# Takes one device for a request: the checks that depend on earlier picks, in Kubernetes' order.
#
# Counters come first, then constraints, then capacity. The order matters only to a request for all devices: a
# constraint that is not satisfied ends its whole search, unless an earlier check has refused the device.


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
