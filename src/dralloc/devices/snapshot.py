"""`Snapshot`: everything that an allocation depends on, updated by deltas.

    snapshot = Snapshot.of(slices=..., claims=..., rules=..., nodes=...)
    later = snapshot.with_claim(claim).without_slice("node-7-gpus")

A delta costs what it changes: one pool's slices, the usage of one claim's devices, one entry of an index. A node's
`view` is cached until the slices of a pool that it can see change; it does not depend on usage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from dralloc.devices.device_usage import counted_results
from dralloc.devices.identity import ClaimId, PoolId
from dralloc.devices.node_selectors import Anchor, NodeFacts, NodeSelectorError, anchors_of_node
from dralloc.devices.pool_usage import PoolUsage
from dralloc.devices.pools import Layout, PoolSlices, Visibility
from dralloc.devices.slices import IndexedSlice, Shapes
from dralloc.devices.taints import TaintRules
from dralloc.kube.resource_v1 import DeviceRequestAllocationResult, DeviceTaintRule, ResourceClaim, ResourceSlice
from dralloc.primitives.persistent_map import PersistentMap

__all__ = ["Snapshot"]

VIEWS_MAX: Final = 20_000

# By anchor and pool: the number of slices with that anchor.
_Placements = PersistentMap[Anchor, PersistentMap[PoolId, int]]


class VisiblePool(Struct, frozen=True, eq=False, gc=False):
    """A pool as one node sees it."""

    slices: PoolSlices
    layout: Layout

    @property
    def pool_id(self) -> PoolId:
        return self.slices.pool_id


class Strip(Struct, frozen=True, eq=False):
    """The devices of one slice in a node's order of devices: bit `i` is device number `offset + i`."""

    number: int
    offset: int
    pool: VisiblePool
    # The slice's index in its pool, for the masks of `PoolUsage`.
    slice_index: int
    slice: IndexedSlice


@dataclass(frozen=True, eq=False)
class NodeView:
    """The pools that a node can use, in the order in which the allocator tries them."""

    node: NodeFacts
    pools: tuple[VisiblePool, ...]
    # Set if a slice has an invalid node selector: then nothing can be allocated.
    fault: NodeSelectorError | None = None
    # True if there are pools for the node that it cannot use at all.
    hides_pools: bool = False

    @cached_property
    def strips(self) -> tuple[Strip, ...]:
        return tuple(strip for strips in self.strips_by_pool for strip in strips)

    @cached_property
    def strips_by_pool(self) -> tuple[tuple[Strip, ...], ...]:
        by_pool: list[tuple[Strip, ...]] = []
        number = offset = 0
        for pool in self.pools:
            strips: list[Strip] = []
            for index in pool.layout.slices:
                indexed = pool.slices.slices[index]
                strips.append(Strip(number, offset, pool, index, indexed))
                number, offset = number + 1, offset + len(indexed.devices)
            by_pool.append(tuple(strips))
        return tuple(by_pool)

    def placement(self, strip: Strip) -> tuple[int, int]:
        """The mask of the strip's devices that are for the node, and of those with invalid node selectors."""
        here, faults = self._placed(strip)
        return here, sum(1 << bit for bit in faults)

    def placement_faults(self, strip: Strip) -> Mapping[int, NodeSelectorError]:
        return self._placed(strip)[1]

    def _placed(self, strip: Strip) -> tuple[int, Mapping[int, NodeSelectorError]]:
        if strip.number not in self._placements:
            self._placements[strip.number] = strip.slice.devices_for(self.node)
        return self._placements[strip.number]

    @cached_property
    def _placements(self) -> dict[int, tuple[int, Mapping[int, NodeSelectorError]]]:
        return {}


class _CachedView(NamedTuple):
    """A cached view, and what it was computed from."""

    view: NodeView
    pools: PersistentMap[PoolId, PoolSlices]
    placements: _Placements
    candidates: tuple[PoolSlices, ...]


class _Caches:
    """Shared by all snapshots that descend from one. Caches only; everything here can be recomputed."""

    def __init__(self) -> None:
        self.shapes = Shapes()
        self.views: dict[tuple[str, Visibility], _CachedView] = {}


class Snapshot(Struct, frozen=True, eq=False):
    """The cluster at one moment, with nodes, pools of devices, and what allocated claims use. Changes return a new snapshot."""

    nodes: PersistentMap[str, NodeFacts] = field(default_factory=PersistentMap)
    pools: PersistentMap[PoolId, PoolSlices] = field(default_factory=PersistentMap)
    # The pool of each slice, by the slice's name.
    pool_of_slice: PersistentMap[str, PoolId] = field(default_factory=PersistentMap)
    placements: _Placements = field(default_factory=PersistentMap)
    usage: PersistentMap[PoolId, PoolUsage] = field(default_factory=PersistentMap)
    # Allocated claims only.
    claims: PersistentMap[ClaimId, ResourceClaim] = field(default_factory=PersistentMap)
    rules: TaintRules = field(default_factory=TaintRules)
    _caches: _Caches = field(default_factory=_Caches)

    @classmethod
    def of(
        cls,
        *,
        slices: Iterable[ResourceSlice] = (),
        claims: Iterable[ResourceClaim] = (),
        rules: Iterable[DeviceTaintRule] = (),
        nodes: Iterable[NodeFacts] = (),
    ) -> Snapshot:
        """A snapshot of these objects."""
        snapshot = cls(nodes=PersistentMap((node.name, node) for node in nodes))
        for resource_slice in slices:
            snapshot = snapshot.with_slice(resource_slice)
        for claim in claims:
            snapshot = snapshot.with_claim(claim)
        for rule in rules:
            snapshot = snapshot.with_rule(rule)
        return snapshot

    # --- Nodes and rules ------------------------------------------------------------------------------------

    def with_node(self, node: NodeFacts) -> Snapshot:
        """With the node, in place of one of the same name."""
        return replace(self, nodes=self.nodes.set(node.name, node))

    def without_node(self, name: str) -> Snapshot:
        """Without the node."""
        return replace(self, nodes=self.nodes.remove(name))

    def with_rule(self, rule: DeviceTaintRule) -> Snapshot:
        """With the DeviceTaintRule, in place of one of the same name."""
        return replace(self, rules=self.rules.with_rule(rule))

    def without_rule(self, name: str) -> Snapshot:
        """Without the DeviceTaintRule."""
        return replace(self, rules=self.rules.without_rule(name))

    # --- Slices -----------------------------------------------------------------------------------------------

    def with_slice(self, resource_slice: ResourceSlice) -> Snapshot:
        """With the slice added, or replacing the slice of the same name."""
        added = IndexedSlice(resource_slice, self._caches.shapes)
        known = self._slice(added.name)
        if known is None:
            return self._with_change(added.pool_id, None, added)
        if known.source.spec == resource_slice.spec:
            return self
        if known.pool_id == added.pool_id:
            return self._with_change(added.pool_id, known, added)
        return self._with_change(known.pool_id, known, None)._with_change(added.pool_id, None, added)

    def without_slice(self, name: str) -> Snapshot:
        """Without the slice."""
        known = self._slice(name)
        return self if known is None else self._with_change(known.pool_id, known, None)

    def _slice(self, name: str) -> IndexedSlice | None:
        pool_id = self.pool_of_slice.get(name)
        return None if pool_id is None else self.pools[pool_id].slice(name)

    def _with_change(self, pool_id: PoolId, removed: IndexedSlice | None, added: IndexedSlice | None) -> Snapshot:
        """With one slice of the pool removed, added or replaced."""
        before = self.pools.get(pool_id) or PoolSlices(pool_id)
        after, names = before, self.pool_of_slice
        if added is not None:
            after, names = before.with_slice(added), names.set(added.name, pool_id)
        elif removed is not None:
            after, names = before.without_slice(removed.name), names.remove(removed.name)
        usage = self.usage.get(pool_id)
        return replace(
            self,
            pools=self.pools.set(pool_id, after) if after.slices else self.pools.remove(pool_id),
            pool_of_slice=names,
            placements=self._placements_after(pool_id, removed, added),
            usage=self.usage.set(pool_id, usage.aligned_to(after.slices, before.slices)) if usage else self.usage,
        )

    def _placements_after(
        self, pool_id: PoolId, removed: IndexedSlice | None, added: IndexedSlice | None
    ) -> _Placements:
        was = removed.anchors if removed is not None else frozenset()
        now = added.anchors if added is not None else frozenset()
        placements = self.placements
        for anchor in was ^ now:
            filed = placements.get(anchor) or PersistentMap()
            count = filed.get(pool_id, 0) + (1 if anchor in now else -1)
            filed = filed.set(pool_id, count) if count else filed.remove(pool_id)
            placements = placements.set(anchor, filed) if filed else placements.remove(anchor)
        return placements

    # --- Claims -----------------------------------------------------------------------------------------------

    def with_claim(self, claim: ResourceClaim) -> Snapshot:
        """With the claim's usage, replacing its earlier usage. A claim that is not allocated uses nothing."""
        claim_id = ClaimId.of(claim)
        known = self.claims.get(claim_id)
        if known is not None and known.status.allocation == claim.status.allocation:
            return self if known == claim else replace(self, claims=self.claims.set(claim_id, claim))
        cleared = self if known is None else self.without_claim(claim_id)
        if claim.status.allocation is None:
            return cleared
        return replace(cleared, claims=cleared.claims.set(claim_id, claim), usage=cleared._usage_after(claim, 1))

    def without_claim(self, claim_id: ClaimId) -> Snapshot:
        """Without the claim: its devices are free again."""
        known = self.claims.get(claim_id)
        if known is None:
            return self
        return replace(self, claims=self.claims.remove(claim_id), usage=self._usage_after(known, -1))

    def _usage_after(self, claim: ResourceClaim, count: int) -> PersistentMap[PoolId, PoolUsage]:
        usage = self.usage
        by_pool: dict[PoolId, list[DeviceRequestAllocationResult]] = {}
        for result in counted_results(claim):
            by_pool.setdefault(PoolId.of_result(result), []).append(result)
        for pool_id, results in sorted(by_pool.items()):
            pool = self.pools.get(pool_id)
            slices = pool.slices if pool is not None else ()
            known = usage.get(pool_id) or PoolUsage.unused(slices)
            changed = known.changed_by(results, count, slices)
            usage = usage.set(pool_id, changed) if changed.devices else usage.remove(pool_id)
        return usage

    # --- Views of nodes -----------------------------------------------------------------------------------------

    def view(self, node: NodeFacts, visibility: Visibility) -> NodeView:
        """The pools that the node can use. The index by anchor skips pools that are only for other nodes."""
        views = self._caches.views
        key = (node.name, visibility)
        known = views.get(key)
        if known is not None and (known.view.node is node or known.view.node == node):
            if known.pools is self.pools and known.placements is self.placements:
                return known.view
            candidates = self._candidates(node)
            # PoolSlices compare by identity, so this is true if none of these pools has changed.
            view = known.view if known.candidates == candidates else _view_of(node, candidates, visibility)
        else:
            candidates = self._candidates(node)
            view = _view_of(node, candidates, visibility)
        if len(views) >= VIEWS_MAX:
            views.clear()
        views[key] = _CachedView(view, self.pools, self.placements, candidates)
        return view

    def only_node(self, pool_id: PoolId) -> str:
        """The name of the only node that can see the pool; empty if there may be others."""
        pool = self.pools.get(pool_id)
        return pool.only_node if pool is not None else ""

    def _candidates(self, node: NodeFacts) -> tuple[PoolSlices, ...]:
        filed = (self.placements.get(anchor) for anchor in anchors_of_node(node))
        pool_ids = {pool_id for entry in filed if entry is not None for pool_id in entry}
        return tuple(self.pools[pool_id] for pool_id in sorted(pool_ids))


def _view_of(node: NodeFacts, candidates: tuple[PoolSlices, ...], visibility: Visibility) -> NodeView:
    try:
        layouts = [(slices, slices.layout(node, visibility)) for slices in candidates]
    except NodeSelectorError as fault:
        return NodeView(node, (), fault)
    pools = [VisiblePool(slices, layout) for slices, layout in layouts if layout is not None]
    # Pools whose devices have binding conditions come last. The sort is stable, so each group stays ordered by name.
    ordered = tuple(sorted(pools, key=lambda pool: pool.layout.has_binding_conditions))
    return NodeView(node, ordered, hides_pools=len(pools) < len(candidates))
