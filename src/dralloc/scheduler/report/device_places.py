"""Where devices are, for reports that follow changes: by node, or by pool where devices are not part of one node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dralloc.devices.allocator.features import Features
from dralloc.devices.identity import PoolId
from dralloc.devices.node_selectors import NodeFacts
from dralloc.devices.pools import PoolState
from dralloc.devices.slices import IndexedSlice
from dralloc.devices.snapshot import VisiblePool
from dralloc.scheduler.contract import ClusterView
from dralloc.scheduler.state.change_log import EverythingChanged, NodeChanged, NodeLoaded
from dralloc.scheduler.state.node_state import NodeState

Place = str | PoolId


class LocalPool(NamedTuple):
    pool: VisiblePool
    slices: Sequence[IndexedSlice]


class PlacedPools(NamedTuple):
    """The pools of one place by driver, as the node `place` sees them. `node` is None if several nodes can use the devices."""

    place: NodeFacts
    node: NodeState | None
    pools: Mapping[str, list[LocalPool]]


class DevicePlaces:
    """The places of a view. A reader asks which of them changed."""

    def __init__(self, view: ClusterView, features: Features) -> None:
        self._view = view
        self._features = features
        self._next: int | None = None
        self._outdated: set[Place] = set()

    def start_over(self) -> None:
        """Everything counts as changed."""
        self._next = None

    def outdated(self, known: Iterable[Place]) -> Iterator[Place]:
        """The places that changed since a reader took them from here; all of them, and those that are known, at first. What a reader
        leaves is for the next one.
        """
        self._outdated |= self._changed(known)
        while self._outdated:
            yield self._outdated.pop()

    def _changed(self, known: Iterable[Place]) -> set[Place]:
        changes, since = self._view.changes, self._next
        entries = None if since is None else changes.since(since)
        self._next = changes.next
        changed: set[Place] = set()
        for entry in entries if entries is not None else (EverythingChanged(),):
            match entry:
                case EverythingChanged():
                    return {*known, *self._view.nodes, *self._pools_of_no_node()}
                case NodeChanged(name) | NodeLoaded(name):
                    changed.add(name)
                case _:
                    changed |= self._places_of(entry.pool_id)
        return changed

    def _places_of(self, pool_id: PoolId) -> set[Place]:
        pool = self._view.snapshot.pools.get(pool_id)
        return {each.node_name or pool_id for each in pool.slices} if pool is not None else {pool_id}

    def _pools_of_no_node(self) -> Iterator[PoolId]:
        for pool_id, pool in self._view.snapshot.pools.items():
            if not all(each.node_name for each in pool.slices):
                yield pool_id

    def devices_at(self, place: Place) -> PlacedPools | None:
        """The devices of ready pools; None if there are none."""
        return self._on_node(place) if isinstance(place, str) else self._in_pool(place)

    def _on_node(self, name: str) -> PlacedPools | None:
        node = self._view.nodes.get(name)
        if node is None:
            return None
        place, snapshot = node.offer.place, self._view.snapshot
        pools: dict[str, list[LocalPool]] = {}
        for pool in snapshot.view(place, self._features.visibility).pools:
            slices = [pool.slices.slices[index] for index in pool.layout.slices]
            local = [each for each in slices if each.node_name == name]
            if local and pool.layout.status is PoolState.READY:
                pools.setdefault(pool.pool_id.driver, []).append(LocalPool(pool, local))
        return PlacedPools(place, node, pools) if pools else None

    def _in_pool(self, pool_id: PoolId) -> PlacedPools | None:
        snapshot = self._view.snapshot
        slices = snapshot.pools.get(pool_id)
        anchored = [each for each in slices.slices if not each.node_name] if slices is not None else []
        for node in self._view.nodes.values() if anchored else ():
            place = node.offer.place
            pools = snapshot.view(place, self._features.visibility).pools
            pool = next((each for each in pools if each.pool_id == pool_id), None)
            if pool is None or pool.layout.status is not PoolState.READY:
                continue
            local = LocalPool(pool, [each for each in anchored if each in pool.slices.slices])
            return PlacedPools(place, None, {pool_id.driver: [local]})
        return None
