"""Which devices of a pool one more request can get, and what blocks the others, by the allocator's own checks.

The request that is asked for requires nothing: any class, no tolerations. The capacity that shares leave is a matter of
`headroom`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from dralloc.devices.allocator.candidate_devices import DeviceCriteria
from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.ledger import Ledger, draw_counters
from dralloc.devices.allocator.requests import Alternative, ClaimDemand, Demand, RequestDemand
from dralloc.devices.allocator.supply import DeviceCandidate, Supply
from dralloc.devices.counters import CounterId
from dralloc.devices.node_selectors import NodeFacts
from dralloc.devices.slices import IndexedSlice, bits_of
from dralloc.devices.snapshot import NodeView, Snapshot, Strip, VisiblePool
from dralloc.devices.taints import repels, text_of_taint
from dralloc.kube.request_name import RequestName
from dralloc.kube.resource_v1 import DeviceClaim, DeviceClass
from dralloc.primitives.quantity import quantity_like

# More than a slice can have.
DEVICES_MAX: Final = 1 << 20


class BlockCause(Enum):
    COUNTERS = "counters"
    TAINTS = "taints"
    # Incomplete, invalid, superseded, or for no node.
    POOL = "pool"
    NODE = "node"
    POLICY = "request policy"
    FEATURES = "feature gates"


class Block(NamedTuple):
    """Why a device that is not full cannot be allocated."""

    cause: BlockCause
    reason: str


class PoolAvailability:
    """The devices of a ready pool, as one node sees it."""

    def __init__(self, snapshot: Snapshot, node: NodeFacts, pool: VisiblePool, features: Features) -> None:
        self._snapshot = snapshot
        self._node = node
        self._features = features
        self._pool = pool
        self._offering = frozenset(pool.slices.slices[index] for index in pool.layout.slices)

    @cached_property
    def _supply(self) -> Supply:
        view = NodeView(self._node, (self._pool,))
        return Supply(self._snapshot, view, _demand_for_anything(self._features))

    def blocks(self, indexed: IndexedSlice) -> dict[int, Block]:
        """What blocks devices of the slice that are not in use as a whole, by bit. A request can get all others."""
        if indexed not in self._offering:
            block = Block(BlockCause.POOL, "the slice is not in use: the pool has a newer generation")
            return dict.fromkeys(range(len(indexed.devices)), block)
        if self._is_unrestricted(indexed):
            return {}
        strip = next(strip for strip in self._supply.strips if strip.slice is indexed)
        usable = self._supply.stock(_demand_for_anything(self._features).alternatives[0], strip).usable
        blocks = {bit: self._exclusion(strip, bit) for bit in bits_of(indexed.everything & ~usable)}
        for bit in bits_of(usable & indexed.counting):
            if not draw_counters(self._supply, Ledger(), DeviceCandidate(strip, bit)):
                blocks[bit] = Block(BlockCause.COUNTERS, self._shortage(indexed, bit))
        return blocks

    def _is_unrestricted(self, indexed: IndexedSlice) -> bool:
        """True if nothing but use can exclude a device of the slice, as with most slices."""
        if indexed.selects_per_device or self._features.is_experimental:
            return False
        if not self._features.device_gates_off.isdisjoint(indexed.gated):
            return False
        if next(indexed.taints_from(self._snapshot.rules), None) is not None:
            return False
        return not any(each.taints or each.consumes_counters or each.binding_conditions for each in indexed.devices)

    def _exclusion(self, strip: Strip, bit: int) -> Block:
        indexed, features = strip.slice, self._features
        rules = indexed.taints_from(self._snapshot.rules) if features.taint_rules else ()
        taints = (*indexed.devices[bit].taints, *(taint for mask, taint in rules if mask >> bit & 1))
        if features.device_taints and (repelling := [text_of_taint(taint) for taint in taints if repels(taint, ())]):
            return Block(BlockCause.TAINTS, f"taint {', '.join(repelling)}")
        if not features.binding_conditions and indexed.binding >> bit & 1:
            return Block(BlockCause.FEATURES, "binding conditions are off")
        gates = features.device_gates_off
        if (
            gate := next((gate for gate, mask in indexed.gated.items() if mask >> bit & 1 and gate in gates), "")
        ) != "":
            return Block(BlockCause.FEATURES, f"the feature {gate} is off")
        if not features.partitionable_devices and indexed.counting >> bit & 1:
            return Block(BlockCause.FEATURES, "partitionable devices are off")
        if not indexed.devices_for(self._node)[0] >> bit & 1:
            return Block(BlockCause.POOL, "the device is for no node that is known")
        return Block(BlockCause.NODE, "the node cannot skip node operations")

    def _shortage(self, indexed: IndexedSlice, bit: int) -> str:
        left = self._supply.counters(self._pool)
        if left is None:
            return "a counter of the pool is overcommitted by allocated devices"
        for use in indexed.devices[bit].consumes_counters:
            for name, counter in use.counters.items():
                has = left[CounterId(use.counter_set, name)]
                if has < counter.value.nanos:
                    said = f"needs {counter.value}, available {quantity_like(counter.value, has)}"
                    return f"insufficient counter {use.counter_set}/{name}: {said}"
        return "incompatible with devices in use: no compatibility group in common"

    def drawn_together(self, devices: Iterable[tuple[IndexedSlice, int]]) -> dict[CounterId, int]:
        """What unused devices draw that can be allocated together, the largest first."""
        left = self._supply.counters(self._pool)
        if left is None:
            return {}
        ledger = Ledger()
        index_of = {indexed: index for index, indexed in enumerate(self._pool.slices.slices)}
        sizes = [(sum(nanos for _, nanos in indexed.draws[bit]), indexed, bit) for indexed, bit in devices]
        for number, (_, indexed, bit) in enumerate(sorted(sizes, key=lambda each: -each[0])):
            # Positions differ, so that no device is taken for a share of another.
            strip = Strip(0, number * DEVICES_MAX, self._pool, index_of[indexed], indexed)
            mark = ledger.mark()
            if not draw_counters(self._supply, ledger, DeviceCandidate(strip, bit)):
                ledger.rollback(mark)
        return {counter_id: left[counter_id] - now for (_, counter_id), now in ledger.counters.items()}


@lru_cache(maxsize=64)
def _demand_for_anything(features: Features) -> Demand:
    criteria = DeviceCriteria.of_any_device(features, capacity=None)
    alternative = Alternative(
        number=0,
        name=RequestName("any"),
        claim=0,
        device_class=DeviceClass(),
        criteria=criteria,
        takes_all=False,
        count=1,
        is_admin=False,
        tolerations=(),
        constraints=(),
    )
    request = RequestDemand(alternative.name, 0, (alternative,), is_list=False)
    return Demand((ClaimDemand(DeviceClaim(), (request,)),), features)
