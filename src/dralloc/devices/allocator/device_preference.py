"""Which devices a request tries first (`devicePreference`), and how often they may be allocated already (`allocations`).

A preference orders the candidates of a request and nothing else: every device that first fit would try is tried. What is
available counts when the request is served: the claims of the cluster and the earlier requests of the pod have their part.
The order of a slice's devices depends on the usage of the pool, which caches it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from math import lcm

from dralloc.devices.allocator.ledger import Ledger
from dralloc.devices.allocator.requests import Alternative
from dralloc.devices.allocator.supply import DeviceCandidate, Stock, Supply
from dralloc.devices.slices import bits_of
from dralloc.devices.snapshot import Strip
from dralloc.kube.resource_v1 import MOST_AVAILABLE

# Whether the available amount comes after all others, the amount, and the number of allocations. The smallest is preferred.
_Rank = tuple[bool, int | Fraction, int]


def is_allocated_enough(alternative: Alternative, candidate: DeviceCandidate, supply: Supply, ledger: Ledger) -> bool:
    """True if the device is allocated as often, and as rarely, as the request's `allocations` require."""
    limits = alternative.allocations
    if limits is None:
        return True
    count = supply.allocations(candidate) + ledger.allocations.get(candidate.position, 0)
    return limits.admits(count)


class PreferredOrder:
    """The devices that match a request, in the order that it prefers when its first device is chosen. Its own devices do
    not change that: each of them is taken once, and those that follow are as before."""

    def __init__(self, alternative: Alternative, supply: Supply, ledger: Ledger) -> None:
        self._alternative = alternative
        self._supply = supply
        self._ledger = ledger

    def after(self, candidate: DeviceCandidate | None) -> Iterator[DeviceCandidate]:
        """The candidates after one of them, or all of them."""
        strips = self._supply.strips
        offsets = [strip.offset for strip in strips] if len(strips) > 1 else ()
        for position in self._positions_after(candidate):
            strip = strips[bisect_right(offsets, position) - 1] if offsets else strips[0]
            yield DeviceCandidate(strip, position - strip.offset)

    def mask_after(self, candidate: DeviceCandidate) -> int:
        """The positions of the devices after one of them."""
        return sum(1 << position for position in self._positions_after(candidate))

    def _positions_after(self, candidate: DeviceCandidate | None) -> Sequence[int]:
        return self._positions[self._positions.index(candidate.position) + 1 :] if candidate else self._positions

    @cached_property
    def _positions(self) -> Sequence[int]:
        strips, touched = self._supply.strips, self._ledger.allocations.keys() | self._ledger.free.keys()
        if len(strips) == 1 and not touched:
            return [bit for _, bit in self._unchanged(strips[0])]
        ranked = [
            (rank, strip.offset + bit)
            for strip in strips
            for rank, bit in self._unchanged(strip)
            if strip.offset + bit not in touched
        ]
        ranked += self._changed(touched)
        ranked.sort()
        return [position for _, position in ranked]

    def _unchanged(self, strip: Strip) -> Sequence[tuple[_Rank, int]]:
        """The devices of a strip as the claims of the cluster leave them, without those that have too little left."""
        alternative, usage = self._alternative, self._supply.usage(strip.pool)
        # A pool without usage has no object for it that would last.
        answers = usage.answers if usage.devices else strip.slice.answers
        key = ("order", strip.slice_index, alternative.criteria, alternative.preference)
        known: Sequence[tuple[_Rank, int]] | None = answers.get(key)
        if known is None:
            known = answers.keep(key, tuple(sorted(self._ranked(strip))))
        return known

    def _ranked(self, strip: Strip) -> Iterator[tuple[_Rank, int]]:
        supply = self._supply
        stock = supply.stock(self._alternative, strip)
        shared = supply.usage(strip.pool).shared[strip.slice_index]
        for bit in bits_of(stock.matches.matched):
            if not (shared >> bit & 1 and supply.lacks_capacity(stock, strip, bit)):
                candidate = DeviceCandidate(strip, bit)
                yield self._rank(stock, candidate, supply.free(candidate), supply.allocations(candidate)), bit

    def _changed(self, positions: Collection[int]) -> Iterator[tuple[_Rank, int]]:
        """The devices that earlier requests have taken."""
        ledger, supply = self._ledger, self._supply
        for strip in supply.strips:
            stock = supply.stock(self._alternative, strip)
            for position in positions:
                bit = position - strip.offset
                if 0 <= bit < len(strip.slice.devices) and stock.matches.matched >> bit & 1:
                    candidate = DeviceCandidate(strip, bit)
                    free = ledger.free.get(position) or supply.free(candidate)
                    allocations = supply.allocations(candidate) + ledger.allocations.get(position, 0)
                    yield self._rank(stock, candidate, free, allocations), position

    def _rank(self, stock: Stock, candidate: DeviceCandidate, free: Sequence[int], allocations: int) -> _Rank:
        """The least, over the capacities that the request asks for, of how often the device has the amount. Without an amount,
        what the request takes counts; a device of which it takes nothing has no end of it."""
        weights = self._weights
        available: list[int | Fraction]
        if weights:
            names = candidate.strip.slice.devices[candidate.bit].capacity
            available = [left * weights[name] for name, left in zip(names, free, strict=False) if name in weights]
        else:
            taken = stock.matches.charges[candidate.bit].nanos
            available = [Fraction(left, amount) for left, amount in zip(free, taken, strict=False) if amount > 0]
        least = min(available, default=0)
        if self._alternative.preference == MOST_AVAILABLE:
            return bool(available), -least, allocations
        return not available, least, -allocations

    @cached_property
    def _weights(self) -> dict[str, int]:
        """By capacity that is asked for, a factor for amounts of it, so that they can be compared with those of the others."""
        asked = {
            name: amount.nanos for name, amount in (self._alternative.criteria.asked or {}).items() if amount.nanos > 0
        }
        return {name: lcm(*asked.values()) // nanos for name, nanos in asked.items()}
