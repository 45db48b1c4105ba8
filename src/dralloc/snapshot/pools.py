"""A pool's slices, and what of them one node sees: its `Layout`.

Kubernetes decides per node which slices count, whether the pool is complete, and whether it makes sense. Nodes that
see the same slices share one layout, so most of that work is done once per pool and not once per node.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from dralloc.api.resource_v1 import CounterSet
from dralloc.devices.compatibility_groups import Groups, admit
from dralloc.devices.counters import CounterId, amounts_of
from dralloc.devices.identity import PoolId
from dralloc.devices.pool_generation import newest
from dralloc.devices.published_slice import PublishedSlice
from dralloc.snapshot.node_selectors import NodeFacts
from dralloc.snapshot.pool_usage import PoolUsage
from dralloc.snapshot.slices import IndexedSlice, bits_of, newest_indexed


class Visibility(NamedTuple):
    """The features that decide which slices are looked at."""

    partitionable_devices: bool
    compatibility_groups: bool

    def hides(self, indexed: IndexedSlice) -> bool:
        if not self.partitionable_devices and indexed.needs_partitionable_devices:
            return True
        return not self.compatibility_groups and indexed.has_compatibility_groups


class PoolStatus(Enum):
    READY = "ready"
    # The driver is publishing it: some slices are missing, or there are too many.
    INCOMPLETE = "incomplete"
    # Its slices contradict each other.
    INVALID = "invalid"


@dataclass(frozen=True, eq=False)
class Layout:
    """A pool as one node sees it. Only a ready pool has devices; slices are given by their index in the pool."""

    status: PoolStatus
    slices: tuple[int, ...] = ()
    # Slices of the same generation that are not for the node; their devices draw from the same counters.
    elsewhere: tuple[int, ...] = ()
    counters: Mapping[CounterId, int] = field(default_factory=dict)
    has_binding_conditions: bool = False
    fault: str = ""


@dataclass(frozen=True, eq=False)
class PoolSlices:
    """All slices of a pool, of every generation and for every node, by name."""

    pool_id: PoolId
    slices: tuple[IndexedSlice, ...] = ()

    def with_slice(self, indexed: IndexedSlice) -> PoolSlices:
        index, found = self._find(indexed.name)
        return PoolSlices(self.pool_id, (*self.slices[:index], indexed, *self.slices[index + found :]))

    def without_slice(self, name: str) -> PoolSlices:
        index, found = self._find(name)
        return PoolSlices(self.pool_id, (*self.slices[:index], *self.slices[index + found :]))

    def slice(self, name: str) -> IndexedSlice | None:
        index, found = self._find(name)
        return self.slices[index] if found else None

    def _find(self, name: str) -> tuple[int, bool]:
        index = bisect_left(self.slices, name, key=lambda indexed: indexed.name)
        return index, index < len(self.slices) and self.slices[index].name == name

    # --- One node's view --------------------------------------------------------------------------------------

    def layout(self, node: NodeFacts, visibility: Visibility) -> Layout | None:
        """The pool as the node sees it; None where it has nothing for the node, or a newer generation is on its way.

        Raises NodeSelectorError where a slice's selector has no meaning.
        """
        relevant = [index for index in self._candidates(node) if self._is_relevant(index, node, visibility)]
        if not relevant:
            return None
        current = tuple(newest(relevant, self._generation_at))
        key = (current, visibility)
        if key not in self._layouts:
            self._layouts[key] = self._lay_out(current, visibility)
        return self._layouts[key]

    def _generation_at(self, index: int) -> int:
        return self.slices[index].generation

    @cached_property
    def _layouts(self) -> dict[tuple[tuple[int, ...], Visibility], Layout | None]:
        return {}

    def _candidates(self, node: NodeFacts) -> Iterator[int]:
        yield from self._by_node_name.get(node.name, ())
        yield from self._by_node_name.get("", ())

    @cached_property
    def _by_node_name(self) -> Mapping[str, list[int]]:
        placed: dict[str, list[int]] = {}
        for index, indexed in enumerate(self.slices):
            placed.setdefault(indexed.node_name, []).append(index)
        return placed

    def _is_relevant(self, index: int, node: NodeFacts, visibility: Visibility) -> bool:
        indexed = self.slices[index]
        return not visibility.hides(indexed) and indexed.is_for(node)

    def _lay_out(self, relevant: tuple[int, ...], visibility: Visibility) -> Layout | None:
        """The layout of these slices, which have one generation; the first of them says how many there must be."""
        first = self.slices[relevant[0]]
        wanted = first.source.spec.pool.resource_slice_count
        elsewhere: tuple[int, ...] = ()
        # Where the node's own slices make up the number, Kubernetes looks no further, not even for newer ones.
        if len(relevant) != wanted:
            if max(self._generations) > first.generation:
                return None
            mates = self._generations[first.generation]
            # Which the others are matters only to counters. A pool may span thousands of nodes, each of which asks.
            elsewhere = self._others(relevant, mates, visibility) if self._has_counters else ()
            if (len(relevant) + len(elsewhere) if self._has_counters else len(mates)) != wanted:
                return Layout(
                    PoolStatus.INCOMPLETE, fault="is being updated: it has not as many slices as it announces"
                )
        return self._validate(tuple(sorted(relevant)), elsewhere, visibility)

    def _others(self, relevant: tuple[int, ...], mates: list[int], visibility: Visibility) -> tuple[int, ...]:
        """The rest of the generation. Slices that a gate hides are counted, but for those with compatibility groups."""
        known = frozenset(relevant)
        hides_groups = not visibility.compatibility_groups
        return tuple(
            index
            for index in mates
            if index not in known and not (hides_groups and self.slices[index].has_compatibility_groups)
        )

    @cached_property
    def _generations(self) -> Mapping[int, list[int]]:
        generations: dict[int, list[int]] = {}
        for index, indexed in enumerate(self.slices):
            generations.setdefault(indexed.generation, []).append(index)
        return generations

    @cached_property
    def _has_counters(self) -> bool:
        """Whether any slice has counters, or a device that draws from them."""
        return any(indexed.has_counters or indexed.counting for indexed in self.slices)

    def _validate(self, relevant: tuple[int, ...], elsewhere: tuple[int, ...], visibility: Visibility) -> Layout:
        offering = tuple(index for index in relevant if not self.slices[index].has_counters)
        fault = self._duplicate_device(offering)
        counters: dict[CounterId, int] = {}
        if not fault and visibility.partitionable_devices:
            sets = self._counter_sets((*relevant, *elsewhere))
            counters = amounts_of(sets)
            names = {counter_set.name for counter_set in sets}
            fault = "has two counter sets of one name" if len(names) < len(sets) else ""
            fault = fault or self._missing_counter((*offering, *elsewhere), names, counters)
        if fault:
            return Layout(PoolStatus.INVALID, fault=fault)
        has_binding_conditions = any(self.slices[index].binding for index in offering)
        return Layout(PoolStatus.READY, offering, elsewhere, counters, has_binding_conditions)

    def _duplicate_device(self, offering: tuple[int, ...]) -> str:
        seen: set[str] = set()
        for index in offering:
            indexed = self.slices[index]
            if len(indexed.bit_of) < len(indexed.devices) or not seen.isdisjoint(indexed.bit_of):
                return "has two devices of one name"
            seen.update(indexed.bit_of)
        return ""

    def _missing_counter(self, indices: tuple[int, ...], sets: set[str], counters: Mapping[CounterId, int]) -> str:
        for index in indices:
            indexed = self.slices[index]
            for bit in bits_of(indexed.counting):
                device = indexed.devices[bit]
                for use in device.consumes_counters:
                    if use.counter_set not in sets:
                        return f"lacks the counter set {use.counter_set} that device {device.name} draws from"
                    for name in use.counters:
                        if (use.counter_set, name) not in counters:
                            return f"lacks the counter {use.counter_set}/{name} that device {device.name} draws from"
        return ""

    # --- Counters ---------------------------------------------------------------------------------------------

    def _counter_sets(self, indices: Iterable[int]) -> list[CounterSet]:
        return [
            counter_set for index in indices for counter_set in self.slices[index].source.spec.shared_counters or ()
        ]

    @cached_property
    def current_with_counters(self) -> tuple[PublishedSlice, ...]:
        """What the slices with counters of the newest generation declare. Empty for most pools."""
        current = newest_indexed(self.slices) if self._has_counters else ()
        return tuple(indexed.published for indexed in current if indexed.has_counters or indexed.counting)

    def counters_left(self, layout: Layout, usage: PoolUsage) -> dict[CounterId, int]:
        """What devices in use, wherever they are, leave of the counters. Each draws once, however many share it."""
        left = dict(layout.counters)
        for indexed, bit in self._drawing(layout, usage):
            for counter_id, amount in indexed.draws[bit]:
                left[counter_id] -= amount
        return left

    def groups_in_use(self, layout: Layout, usage: PoolUsage) -> dict[str, Groups]:
        """By counter set, the compatibility groups that are common to the devices in use that draw from it."""
        in_use: dict[str, Groups] = {}
        for indexed, bit in self._drawing(layout, usage):
            for counter_set, groups in indexed.groups[bit]:
                # Devices in use that do not go together leave no common group; then none can join them but their like.
                in_use[counter_set] = admit(in_use.get(counter_set), groups) or frozenset()
        return in_use

    def _drawing(self, layout: Layout, usage: PoolUsage) -> Iterator[tuple[IndexedSlice, int]]:
        """The devices in use that draw from counters; none where counters are not looked at."""
        for index in (*layout.slices, *layout.elsewhere) if layout.counters else ():
            indexed = self.slices[index]
            for bit in bits_of((usage.dedicated[index] | usage.shared[index]) & indexed.counting):
                yield indexed, bit
