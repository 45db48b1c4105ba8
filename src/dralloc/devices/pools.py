"""The slices of a pool, and the `Layout` of the pool for one node: completeness, validity, counters.

Kubernetes decides for each node which slices count, and whether the pool is complete and valid. Nodes that see the same
slices share one layout, so most of this work is done once per pool instead of once per node.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from dralloc.devices.counters import CounterId, Groups, admit, amounts_of
from dralloc.devices.identity import PoolId
from dralloc.devices.node_selectors import NodeFacts
from dralloc.devices.pool_usage import PoolUsage
from dralloc.devices.published_slice import PublishedSlice, newest
from dralloc.devices.slices import IndexedSlice, bits_of, newest_indexed
from dralloc.kube.resource_v1 import CounterSet


class Visibility(NamedTuple):
    """The feature gates that hide slices."""

    partitionable_devices: bool
    compatibility_groups: bool

    def hides(self, indexed: IndexedSlice) -> bool:
        if not self.partitionable_devices and indexed.needs_partitionable_devices:
            return True
        return not self.compatibility_groups and indexed.has_compatibility_groups


class PoolState(Enum):
    READY = "ready"
    # The driver is publishing it: there are fewer or more slices than announced.
    INCOMPLETE = "incomplete"
    # Its slices contradict each other.
    INVALID = "invalid"


@dataclass(frozen=True, eq=False)
class Layout:
    """A pool as one node sees it. Only a ready pool has slices, given by their index in the pool."""

    status: PoolState
    slices: tuple[int, ...] = ()
    # Slices of the same generation for other nodes; their devices draw from the same counters.
    elsewhere: tuple[int, ...] = ()
    counters: Mapping[CounterId, int] = field(default_factory=dict)
    has_binding_conditions: bool = False
    fault: str = ""


@dataclass(frozen=True, eq=False)
class PoolSlices:
    """All slices of a pool, of every generation and for every node, ordered by name."""

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

    @cached_property
    def only_node(self) -> str:
        """The name of the only node that can see the pool; empty if there may be others."""
        names = {indexed.node_name for indexed in self.slices}
        return names.pop() if len(names) == 1 else ""

    # --- Layout for one node ----------------------------------------------------------------------------------

    def layout(self, node: NodeFacts, visibility: Visibility) -> Layout | None:
        """The pool as the node sees it; None if it has no slice for the node, or a newer generation is being published.

        Raises NodeSelectorError if the node selector of a slice is invalid.
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
        """The layout of slices of one generation. The first slice decides how many there must be, as in Kubernetes."""
        first = self.slices[relevant[0]]
        wanted = first.source.spec.pool.resource_slice_count
        elsewhere: tuple[int, ...] = ()
        # If the node's own slices are complete, Kubernetes ignores all others, even newer ones.
        if len(relevant) != wanted:
            if max(self._generations) > first.generation:
                return None
            same = self._generations[first.generation]
            # The slices for other nodes matter only for counters. A pool may span thousands of nodes.
            elsewhere = self._others(relevant, same, visibility) if self._has_counters else ()
            published = len(relevant) + len(elsewhere) if self._has_counters else len(same)
            if published != wanted:
                return Layout(PoolState.INCOMPLETE, fault=_incomplete(published, wanted))
        return self._validate(tuple(sorted(relevant)), elsewhere, visibility)

    def _others(self, relevant: tuple[int, ...], same: list[int], visibility: Visibility) -> tuple[int, ...]:
        """The other slices of the generation. Slices hidden by a gate count, except those with compatibility groups."""
        known = frozenset(relevant)
        hides_groups = not visibility.compatibility_groups
        return tuple(
            index
            for index in same
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
        """True if any slice has counters, or a device that draws from counters."""
        return any(indexed.has_counters or indexed.counting for indexed in self.slices)

    def _validate(self, relevant: tuple[int, ...], elsewhere: tuple[int, ...], visibility: Visibility) -> Layout:
        offering = tuple(index for index in relevant if not self.slices[index].has_counters)
        fault = self._duplicate_device(offering)
        counters: dict[CounterId, int] = {}
        if not fault and visibility.partitionable_devices:
            sets = self._counter_sets((*relevant, *elsewhere))
            counters = amounts_of(sets)
            names = {counter_set.name for counter_set in sets}
            fault = "is invalid: two counter sets have the same name" if len(names) < len(sets) else ""
            fault = fault or self._missing_counter((*offering, *elsewhere), names, counters)
        if fault:
            return Layout(PoolState.INVALID, fault=fault)
        has_binding_conditions = any(self.slices[index].binding for index in offering)
        return Layout(PoolState.READY, offering, elsewhere, counters, has_binding_conditions)

    def _duplicate_device(self, offering: tuple[int, ...]) -> str:
        seen: set[str] = set()
        for index in offering:
            indexed = self.slices[index]
            if len(indexed.bit_of) < len(indexed.devices) or not seen.isdisjoint(indexed.bit_of):
                return "is invalid: two devices have the same name"
            seen.update(indexed.bit_of)
        return ""

    def _missing_counter(self, indices: tuple[int, ...], sets: set[str], counters: Mapping[CounterId, int]) -> str:
        for index in indices:
            indexed = self.slices[index]
            for bit in bits_of(indexed.counting):
                device = indexed.devices[bit]
                for use in device.consumes_counters:
                    if use.counter_set not in sets:
                        return f"is invalid: device {device.name} draws from the unknown counter set {use.counter_set}"
                    for name in use.counters:
                        if (use.counter_set, name) not in counters:
                            return f"is invalid: device {device.name} draws from the unknown counter {use.counter_set}/{name}"
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
        """What devices in use, on any node, leave of the counters. A device draws once, however many claims share it."""
        left = dict(layout.counters)
        for indexed, bit in self._drawing(layout, usage):
            for counter_id, amount in indexed.draws[bit]:
                left[counter_id] -= amount
        return left

    def groups_in_use(self, layout: Layout, usage: PoolUsage) -> dict[str, Groups]:
        """By counter set, the common compatibility groups of the devices in use that draw from it."""
        in_use: dict[str, Groups] = {}
        for indexed, bit in self._drawing(layout, usage):
            for counter_set, groups in indexed.groups[bit]:
                # Incompatible devices in use leave no common group; then only devices without groups can join them.
                in_use[counter_set] = admit(in_use.get(counter_set), groups) or frozenset()
        return in_use

    def _drawing(self, layout: Layout, usage: PoolUsage) -> Iterator[tuple[IndexedSlice, int]]:
        """The devices in use that draw from counters; none if the layout has no counters."""
        for index in (*layout.slices, *layout.elsewhere) if layout.counters else ():
            indexed = self.slices[index]
            for bit in bits_of((usage.dedicated[index] | usage.shared[index]) & indexed.counting):
                yield indexed, bit


def _incomplete(published: int, announced: int) -> str:
    if published < announced:
        return f"is being updated: only {published} of {announced} slices {'is' if published == 1 else 'are'} published"
    return f"is being updated: {published} slices are published instead of {announced}"
