"""What blocks the devices of a pool, by the allocator's own checks on every node that sees them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import cached_property

from dralloc.allocator.availability import Block, BlockCause, PoolAvailability
from dralloc.allocator.features import Features
from dralloc.snapshot.cluster import Snapshot, VisiblePool
from dralloc.snapshot.node_selectors import Anchor, NodeFacts, NodeSelectorError, anchors_of_node
from dralloc.snapshot.pools import Layout, PoolSlices, PoolState
from dralloc.snapshot.slices import IndexedSlice


class NodeDirectory:
    """Finds the nodes that may see slices, without a look at all nodes for every pool."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._nodes = snapshot.nodes

    @cached_property
    def _by_anchor(self) -> dict[Anchor, list[NodeFacts]]:
        found: dict[Anchor, list[NodeFacts]] = {}
        for node in self._nodes.values():
            for anchor in anchors_of_node(node):
                found.setdefault(anchor, []).append(node)
        return found

    def nodes_for(self, slices: Iterable[IndexedSlice]) -> list[NodeFacts]:
        """By name. Some of them may see none of the slices."""
        anchors = {anchor for indexed in slices for anchor in indexed.anchors}
        found = {node.name: node for anchor in anchors for node in self._by_anchor.get(anchor, ())}
        return [found[name] for name in sorted(found)]


class PoolSurvey:
    """What blocks the devices of a pool. A device of a pool for several nodes is blocked if it is on every one of them."""

    def __init__(
        self,
        snapshot: Snapshot,
        slices: PoolSlices,
        features: Features,
        closed: Mapping[str, str],
        directory: NodeDirectory,
    ) -> None:
        self._snapshot = snapshot
        self._slices = slices
        self._features = features
        self._closed = closed
        self._directory = directory
        # What blocks devices on every node that was asked about their slice.
        self._blocks: dict[IndexedSlice, dict[int, Block]] = {}
        # What blocks devices of slices that no node was asked about.
        self._pool_block: Block | None = None
        self.fault = ""
        self.layout: Layout | None = None
        self.availability: PoolAvailability | None = None

    def block(self, indexed: IndexedSlice, bit: int) -> Block | None:
        known = self._blocks.get(indexed)
        return self._pool_block if known is None else known.get(bit)

    def look(self, node_name: str, current: list[IndexedSlice]) -> None:
        seen: set[Hashable] = set()
        for node, layout, fault in self._nodes_for(node_name, current):
            if layout is None:
                self.fault = self.fault or fault
                continue
            self.layout = self.layout or layout
            if reason := self._closed.get(node.name, ""):
                self._pool_block = self._pool_block or Block(BlockCause.NODE, reason)
                continue
            key = self._sameness(node, layout, current)
            if key in seen:
                continue
            seen.add(key)
            pool = VisiblePool(self._slices, layout)
            availability = PoolAvailability(self._snapshot, node, pool, self._features)
            self.availability = self.availability or availability
            self._ask(availability, current)
            if node_name or not any(self._blocks.values()):
                break
        if self.layout is not None:
            self.fault = ""
            return
        self.fault = self.fault or "is for no node that is known"
        self._pool_block = Block(BlockCause.POOL, f"the pool {self.fault}")

    def _ask(self, availability: PoolAvailability, current: Iterable[IndexedSlice]) -> None:
        for indexed in current:
            blocks, known = availability.blocks(indexed), self._blocks.get(indexed)
            if known is not None:
                # The first reason stays, unless it was only that the device is for other nodes.
                blocks = {
                    bit: block if known[bit].cause is BlockCause.POOL else known[bit]
                    for bit, block in blocks.items()
                    if bit in known
                }
            self._blocks[indexed] = blocks

    def _sameness(self, node: NodeFacts, layout: Layout, current: Iterable[IndexedSlice]) -> Hashable:
        """Equal for nodes that get the same answers."""
        placements = tuple(each.devices_for(node)[0] for each in current if each.selects_per_device)
        declared = node.declared_features if self._features.is_experimental else None
        return id(layout), placements, declared

    def _nodes_for(self, node_name: str, current: list[IndexedSlice]) -> Iterator[tuple[NodeFacts, Layout | None, str]]:
        """The nodes that can see the slices, with the pool as they see it, or what is wrong with it."""
        if node_name:
            nodes = [self._snapshot.nodes.get(node_name) or NodeFacts(node_name)]
        else:
            nodes = self._directory.nodes_for(current) if self._snapshot.nodes else [NodeFacts("")]
        for node in nodes:
            try:
                if node_name or any(indexed.is_for(node) for indexed in current):
                    yield node, *self._layout(node)
            except NodeSelectorError as error:
                yield node, None, str(error)

    def _layout(self, node: NodeFacts) -> tuple[Layout | None, str]:
        layout = self._slices.layout(node, self._features.visibility)
        if layout is None:
            return None, "is not in use: a newer generation is being published, or a feature that it needs is off"
        return (layout, "") if layout.status is PoolState.READY else (None, layout.fault)
