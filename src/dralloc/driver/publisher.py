"""Publishes the devices of a driver as slices, and repairs changes that others make.

A publisher owns all slices of a driver for one node, or all that belong to no node, and deletes those of other pools. So there must be
only one publisher for each scope.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace as replaced
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dralloc.client.api_calls import ApiCalls
from dralloc.client.informer import Informer
from dralloc.client.known_resources import resource_for
from dralloc.client.reflector import Reflector
from dralloc.client.typed_resource import ObjectKey, TypedResource, key_of
from dralloc.client.work_queue import Backoff, WorkQueue, work
from dralloc.driver.devices import Pool
from dralloc.driver.metrics import DriverMetrics
from dralloc.driver.slices import check_pools, slices_of
from dralloc.kube.codec import encode
from dralloc.kube.core_v1 import Node
from dralloc.kube.gated_fields import SLICE_FEATURES
from dralloc.kube.meta_v1 import OwnerReference
from dralloc.kube.resource_v1 import Device, ResourcePool, ResourceSlice, ResourceSliceSpec
from dralloc.node.kubelet import pool_plan
from dralloc.primitives.errors import Conflict, NotFound

SLICES: Final[TypedResource[ResourceSlice]] = resource_for(ResourceSlice)
NODES: Final[TypedResource[Node]] = resource_for(Node)

RETRY: Final = Backoff(first_s=0.05, most_s=60.0)


class SlicePublisher:
    """Publishes the slices of a driver for one node, or for no node if `node_name` is None."""

    def __init__(
        self,
        calls: ApiCalls,
        driver: str,
        *,
        node_name: str | None,
        metrics: DriverMetrics,
        on_problem: Callable[[Exception], None],
        may_write: Callable[[], bool] = lambda: True,
        repair_delay_s: float = 30.0,
    ) -> None:
        self._calls = calls
        self._driver = driver
        self._node_name = node_name
        # An empty node name selects slices without a node.
        self._scope = f"spec.driver={driver},spec.nodeName={node_name or ''}"
        self._metrics = metrics
        self._on_problem = on_problem
        self._may_write = may_write
        self._repair_delay_s = repair_delay_s
        self._wanted: dict[str, pool_plan.WantedPool] | None = None
        self._informer: Informer[ResourceSlice] = Informer({"pool": _pool_of})
        self._queue: WorkQueue[str] = WorkQueue(RETRY)
        # Pools after a failed write, whose slices are listed again.
        self._uncertain: set[str] = set()
        self._unwritten: set[str] = set()
        self._written = asyncio.Event()

    def publish(self, pools: Sequence[Pool]) -> None:
        """Publish exactly these pools; raises `InvalidPools` and changes nothing if they are not valid."""
        check_pools(pools, self._driver, self._node_name)
        self._wanted = {
            pool.name: pool_plan.WantedPool(
                slices=slices_of(pool, self._driver, self._node_name), generation=pool.generation
            )
            for pool in pools
        }
        self._written.clear()
        for name in self._wanted.keys() | {item.spec.pool.name for item in self._informer.all()}:
            self._unwritten.add(name)
            self._queue.add(name)

    async def written(self) -> None:
        """Wait until the last published pools are written."""
        await self._written.wait()

    async def run(self) -> None:
        """Publish and repair until cancelled. Raises HistoryChanged in a group."""
        reflector = Reflector(
            self._calls, SLICES, self._informer, field_selector=self._scope, on_problem=self._on_problem
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(reflector.run())
            # A plan from an incomplete list would create slices again.
            await self._informer.synced.wait()
            if self._wanted is not None:
                self._unwritten |= {item.spec.pool.name for item in self._informer.all()}
                for name in self._unwritten:
                    self._queue.add(name)
            self._informer.subscribe(self._schedule_repair)
            await work(self._queue, self._sync, self._fail)

    def _schedule_repair(self, before: ResourceSlice | None, after: ResourceSlice | None) -> None:
        for item in (before, after):
            if item is not None:
                self._queue.add_after(item.spec.pool.name, self._repair_delay_s)

    def _fail(self, pool: str, error: Exception) -> None:
        self._uncertain.add(pool)
        if not isinstance(error, Conflict | NotFound):
            self._on_problem(error)

    async def _sync(self, pool: str) -> None:
        pools = self._wanted
        if pools is None:
            return
        if not self._may_write():
            self._queue.add_after(pool, self._repair_delay_s)
            return
        for action in await self._plan(pool, pools.get(pool, pool_plan.WantedPool())):
            await self._apply(action, pools)
        self._uncertain.discard(pool)
        if self._wanted is pools:
            self._unwritten.discard(pool)
            if not self._unwritten:
                self._written.set()

    async def _plan(self, pool: str, wanted: pool_plan.WantedPool) -> tuple[pool_plan.SliceAction, ...]:
        existing = await self._list(pool) if pool in self._uncertain else tuple(self._informer.by("pool", pool))
        actions = pool_plan.plan_pool(wanted, existing)
        if self._node_name is not None and any(isinstance(action, pool_plan.CreateSlice) for action in actions):
            # Read each time: slices owned by a recreated node's old UID would be garbage-collected.
            node = await self._calls.get(NODES, ObjectKey("", self._node_name))
            return pool_plan.plan_pool(replaced(wanted, owner=_owner(node)), existing)
        return actions

    async def _list(self, pool: str) -> tuple[ResourceSlice, ...]:
        items, _ = await self._calls.list_all(SLICES, field_selector=self._scope)
        return tuple(item for item in items if item.spec.pool.name == pool)

    async def _apply(self, action: pool_plan.SliceAction, pools: dict[str, pool_plan.WantedPool]) -> None:
        match action:
            case pool_plan.DeleteSlice(item):
                await self._delete(item)
            case pool_plan.UpdateSlice(index, item):
                stored = await self._calls.replace(SLICES, item)
                self._store("update", stored)
                self._check_kept(index, item, stored, pools)
            case pool_plan.CreateSlice(index, item):
                stored = await self._calls.create(SLICES, item)
                self._store("create", stored)
                self._check_kept(index, item, stored, pools)

    async def _delete(self, item: ResourceSlice) -> None:
        try:
            await self._calls.delete_unchanged(SLICES, item)
            self._metrics.slice_writes.add(self._driver, "delete")
        except NotFound:
            pass
        self._informer.remove(key_of(item))

    def _store(self, verb: str, stored: ResourceSlice) -> None:
        """Put the result into the informer at once; a plan before the watch event would write it again.

        An answer that is late is older than what the informer shows: the slice may have been changed or deleted since.
        """
        self._metrics.slice_writes.add(self._driver, verb)
        if int(stored.metadata.resource_version) > self._informer.newest_revision:
            self._informer.put(stored)

    def _check_kept(
        self, index: int, written: ResourceSlice, stored: ResourceSlice, pools: dict[str, pool_plan.WantedPool]
    ) -> None:
        if pool_plan.is_as_wanted(written.spec, stored.spec):
            return
        pool = stored.spec.pool.name
        wanted = pools[pool]
        # Accept what the server stored, or it would be rewritten forever. The next `publish` tries again.
        kept = replace(stored.spec, pool=ResourcePool(name=pool))
        slices = (*wanted.slices[:index], kept, *wanted.slices[index + 1 :])
        problem = DroppedFields(pool, index, written.spec, stored.spec)
        if not problem.has_lost_counters:
            pools[pool] = replaced(wanted, slices=slices)
            self._on_problem(problem)
            return
        # Without their counters, partitions of one card would be allocated together. The slices with counters are written first, so
        # no partition was published yet.
        partitions = frozenset(device.name for each in wanted.slices for device in _partitions(each))
        pools[pool] = replaced(wanted, slices=tuple(_without(each, partitions) for each in slices))
        raise problem


def _partitions(spec: ResourceSliceSpec) -> Iterator[Device]:
    yield from (device for device in spec.devices or () if device.consumes_counters)


def _without(spec: ResourceSliceSpec, partitions: frozenset[str]) -> ResourceSliceSpec:
    kept = tuple(device for device in spec.devices or () if device.name not in partitions)
    return replace(spec, devices=kept or None, shared_counters=None)


def _pool_of(item: ResourceSlice) -> Iterator[str]:
    yield item.spec.pool.name


def _owner(node: Node) -> OwnerReference:
    return OwnerReference(
        api_version="v1", kind="Node", name=node.metadata.name, uid=node.metadata.uid, controller=True
    )


# --- Dropped fields -------------------------------------------------------------------------------------------------
# Finds fields of slices that the API server dropped, and the feature gates that are probably disabled.
#
# A server silently drops fields of disabled features. Without this check a driver would publish devices with
# another meaning, and would rewrite them forever.


class DroppedFields(Exception):
    """The API server stored a slice without some of its fields."""

    def __init__(self, pool: str, index: int, written: ResourceSliceSpec, stored: ResourceSliceSpec) -> None:
        self.pool = pool
        self.index = index
        self.fields = tuple(find_dropped(written, stored))
        self.gates = likely_gates(written, stored)
        self.has_lost_counters = not {"sharedCounters", "devices[].consumesCounters"}.isdisjoint(self.fields)
        reason = f"; feature gates that are probably disabled: {', '.join(self.gates)}" if self.gates else ""
        super().__init__(f"slice {index} of pool {pool} was stored without {', '.join(self.fields)}{reason}")


def find_dropped(written: ResourceSliceSpec, stored: ResourceSliceSpec) -> Iterator[str]:
    """The fields that differ; a field of devices is named once."""
    before, after = _tree(written), _tree(stored)
    for name in sorted(before.keys() | after.keys()):
        if name != "devices" and before.get(name) != after.get(name):
            yield name
    devices = {device["name"]: device for device in after.get("devices", ())}
    differing: dict[str, None] = {}
    for device in before.get("devices", ()):
        kept = devices.get(device["name"], {})
        differing |= dict.fromkeys(name for name in device if device[name] != kept.get(name))
    yield from (f"devices[].{name}" for name in differing)


def likely_gates(written: ResourceSliceSpec, stored: ResourceSliceSpec) -> tuple[str, ...]:
    """The gates of features that were written but not stored."""
    lost = (feature for feature in SLICE_FEATURES if feature.in_use(written) and not feature.in_use(stored))
    return tuple(dict.fromkeys(gate for feature in lost for gate in feature.gates))


def _tree(spec: ResourceSliceSpec) -> dict[str, Any]:
    return msgspec.json.decode(encode(spec), type=dict[str, Any])
