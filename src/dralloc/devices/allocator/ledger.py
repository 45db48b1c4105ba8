"""Everything that a search has taken so far, with one journal to undo it.

Each table is an ordinary dictionary that is read directly and written through `put`, which records the previous value.
`rollback` restores these values, newest first: the state after it is exactly the state at the mark.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeVar

from dralloc.devices.allocator.attribute_constraints import Values
from dralloc.devices.allocator.consumable_capacity import Charge
from dralloc.devices.allocator.requests import Alternative
from dralloc.devices.allocator.supply import DeviceCandidate, Supply
from dralloc.devices.counters import CounterId, Groups, admit
from dralloc.devices.identity import PoolId

K = TypeVar("K")
V = TypeVar("V")

_ABSENT: Final[Any] = object()


class Pick(NamedTuple):
    """A device, or a share of one, taken for an alternative."""

    alternative: Alternative
    candidate: DeviceCandidate
    charge: Charge
    is_share: bool


class Ledger:
    __slots__ = (
        "_counts_allocations",
        "_journal",
        "allocations",
        "chosen",
        "counters",
        "free",
        "groups",
        "missing",
        "own",
        "picks",
        "recorded",
        "states",
        "taken",
        "taken_by_claim",
    )

    def __init__(self, *, counts_allocations: bool = False) -> None:
        self._counts_allocations = counts_allocations
        self._journal: list[tuple[dict[Any, Any], Any, Any]] = []
        # Devices taken whole, as a mask for each strip: by any claim, and by claim.
        self.taken: dict[int, int] = {}
        self.taken_by_claim: dict[tuple[int, int], int] = {}
        # The capacity that shares taken by this search leave of a device, by the device's position in the total order.
        self.free: dict[int, tuple[int, ...]] = {}
        # How often a device is taken, by its position, where that matters. Admin access does not count.
        self.allocations: dict[int, int] = {}
        # What is left of the counters that devices were charged to.
        self.counters: dict[tuple[PoolId, CounterId], int] = {}
        # The compatibility groups that all devices of a counter set have in common.
        self.groups: dict[tuple[PoolId, str], Groups] = {}
        # By the number of the constraint.
        self.states: dict[int, Values] = {}
        # By request for aggregated capacity: what is missing of each capacity, and its devices as a mask of positions.
        self.missing: dict[int, tuple[int, ...]] = {}
        self.own: dict[int, int] = {}
        # The alternative chosen for each prioritized list.
        self.chosen: dict[int, Alternative] = {}
        self.picks: dict[int, Pick] = {}
        # The number of results of each claim.
        self.recorded: dict[int, int] = {}

    def mark(self) -> int:
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        journal = self._journal
        while len(journal) > mark:
            table, key, before = journal.pop()
            if before is _ABSENT:
                del table[key]
            else:
                table[key] = before

    def put(self, table: dict[K, V], key: K, value: V) -> None:
        self._journal.append((table, key, table.get(key, _ABSENT)))
        table[key] = value

    def taken_for(self, alternative: Alternative, strip: int) -> int:
        """Devices of a strip that earlier picks exclude. Admin access is excluded only by picks of its own claim."""
        if alternative.is_admin:
            return self.taken_by_claim.get((alternative.claim, strip), 0)
        return self.taken.get(strip, 0)

    def record(self, pick: Pick) -> None:
        """Records a pick whose counters, constraints and capacity are taken already."""
        claim = pick.alternative.claim
        self.put(self.picks, len(self.picks), pick)
        self.put(self.recorded, claim, self.recorded.get(claim, 0) + 1)
        if self._counts_allocations and not pick.alternative.is_admin:
            position = pick.candidate.position
            self.put(self.allocations, position, self.allocations.get(position, 0) + 1)
        if not pick.is_share:
            number, mask = pick.candidate.strip.number, 1 << pick.candidate.bit
            self.put(self.taken, number, self.taken.get(number, 0) | mask)
            self.put(self.taken_by_claim, (claim, number), self.taken_by_claim.get((claim, number), 0) | mask)


# --- Partitionable devices ------------------------------------------------------------------------------------------
# Partitionable devices (KEP-4815): devices of a pool that consume shared counters, and their compatibility groups.


def draw_counters(supply: Supply, ledger: Ledger, candidate: DeviceCandidate) -> bool:
    """Takes what the device consumes of its pool's counters; only the first share of a device consumes them.

    False if a counter has too little left, or the device's groups are incompatible with those of devices in use.
    """
    strip, bit = candidate
    if not strip.slice.counting >> bit & 1:
        return True
    if supply.is_shareable(candidate) and (candidate.position in ledger.free or supply.is_shared(candidate)):
        return True
    base = supply.counters(strip.pool)
    if base is None or not _join_groups(supply, ledger, candidate):
        return False
    for counter_id, amount in strip.slice.draws[bit]:
        key = (strip.pool.pool_id, counter_id)
        left = ledger.counters.get(key, base[counter_id]) - amount
        if left < 0:
            return False
        ledger.put(ledger.counters, key, left)
    return True


def _join_groups(supply: Supply, ledger: Ledger, candidate: DeviceCandidate) -> bool:
    """True if the device has a compatibility group in common with all devices of each of its counter sets."""
    if not supply.features.compatibility_groups:
        return True
    strip, bit = candidate
    base = supply.groups(strip.pool)
    for counter_set, groups in strip.slice.groups[bit]:
        key = (strip.pool.pool_id, counter_set)
        common = admit(ledger.groups.get(key, base.get(counter_set)), groups)
        if common is None:
            return False
        ledger.put(ledger.groups, key, common)
    return True
