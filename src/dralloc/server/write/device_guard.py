"""The write guard against over-commit: refuses allocations that exceed a device, its capacity or its counters.

Schedulers decide from a cache. Two of them, or one that was restarted, can allocate the same device; the later
write gets a conflict, and its scheduler decides again. The rules are those of `dralloc.devices.overcommit`.

Like Kubernetes, the server accepts allocations of devices that are not published, with one exception: the slices of a node come and
go, with its kubelet and its drivers, and a slow scheduler may not know yet. If the driver has devices that share something, what is
allocated meanwhile could exceed it as soon as the slices are back, so it must be alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from dralloc.devices import overcommit
from dralloc.devices.device_usage import FREE, DeviceUsage, counted_results
from dralloc.devices.identity import DeviceId, PoolId
from dralloc.devices.published_slice import (
    PublishedDevice,
    PublishedSlice,
    current_slices,
    draws_together,
    find_device,
)
from dralloc.kube.codec import decode_again
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.registry import RESOURCE_CLAIM, RESOURCE_SLICE
from dralloc.kube.resource_v1 import DeviceRequestAllocationResult as Result
from dralloc.kube.resource_v1 import ResourceClaim, ResourceSlice
from dralloc.primitives.quantity import Quantity, quantity_like
from dralloc.server.http.statuses import conflict
from dralloc.server.read.api_resources import name_of, namespace_of, prefix_of
from dralloc.server.read.store_view import RecordIndex, StoreView
from dralloc.server.store.interface import Store
from dralloc.server.store.records import Record
from dralloc.server.write.write_guards import GuardedView, GuardLedger, Hold

Results = tuple[Result, ...]


class DeviceGuard:
    """Guards writes of claims. Views of claims and slices start with the first allocation."""

    def __init__(self, store: Store) -> None:
        # The drivers of which slices with counters, or with devices for several claims, were ever seen.
        with_counters, with_shares = set[str](), set[str]()
        self._slices = StoreView(store, (prefix_of(RESOURCE_SLICE),), lambda: _Slices(with_counters, with_shares))
        self._claims = GuardedView[_DevicesInUse, Results](
            store, prefix_of(RESOURCE_CLAIM), _DevicesInUse, fence="devices"
        )

    async def hold(self, key: str, new: ApiObject, old: ApiObject | None) -> Hold | None:
        assert isinstance(new, ResourceClaim), "the guard of claims"
        if old is None or not isinstance(old, ResourceClaim) or old.status.allocation is not None:
            return None
        results = counted_results(new)
        if not results:
            return None
        await self._slices.ready()
        await self._claims.ready()
        self._check(key, results)
        return self._claims.hold(key, results)

    async def stop(self) -> None:
        await self._slices.stop()
        await self._claims.stop()

    def _check(self, key: str, results: Results) -> None:
        slices, in_use = self._slices.index, self._claims.ledger.usage
        total: dict[DeviceId, DeviceUsage] = {}
        for result in results:
            device = DeviceId.of(result)
            total[device] = (total.get(device) or in_use.get(device, FREE)).changed_by(result, 1)
        for device, usage in total.items():
            published = slices.find(device) if usage.shares else None
            if usage.shares and published is None and device in in_use and slices.have_shares(device):
                self._refuse(key, f"device {device} is not published at the moment, and has other shares")
            if overcommit.is_overcommitted(usage, published):
                mine = [result for result in results if DeviceId.of(result) == device]
                self._check_overcommitted(key, device, mine, usage, published)
        self._check_counters(key, [device for device in total if device not in in_use])

    def _check_overcommitted(
        self, key: str, device: DeviceId, mine: Sequence[Result], usage: DeviceUsage, published: PublishedDevice | None
    ) -> None:
        """Refuse the claim, unless only capacities are exceeded of which it consumes nothing."""
        own = FREE
        for result in mine:
            own = own.changed_by(result, 1)
        if overcommit.is_allocated_twice(own, published):
            self._refuse(key, f"device {device} is allocated more than once by this claim")
        if overcommit.is_allocated_twice(usage, published):
            self._refuse(key, f"device {device} is already allocated to {self._holder(device)}")
        for name, excess in overcommit.exceeded_capacities(usage, published):
            if requested := own.consumed.get(name):
                model = next(result.consumed_capacity[name] for result in mine if name in result.consumed_capacity)
                self._refuse(key, f"device {device}: {_insufficient(name, requested, excess, model)}")
        for name in overcommit.divided_capacities(usage, published):
            why = "shares without a request for it are in use" if name in own.consumed else "other shares consume it"
            self._refuse(key, f"device {device}: {name} is consumed by all shares or by none, and {why}")

    def _check_counters(self, key: str, wanted: Iterable[DeviceId]) -> None:
        slices, devices = self._slices.index, self._claims.ledger.taken
        by_pool: defaultdict[PoolId, list[str]] = defaultdict(list)
        for device in wanted:
            if slices.have_counters(device):
                by_pool[device.pool_id].append(device.device)
        for pool, names in by_pool.items():
            current, taken = current_slices(slices.of_pool(pool)), devices.get(pool, {})
            if taken and (unknown := overcommit.undeclared(current, names)):
                self._refuse(
                    key, f"device {pool}/{unknown[0]} is not published at the moment, and others of its pool are in use"
                )
            for counter, excess in overcommit.exceeded_counters(current, names, {*taken, *names}).items():
                requested = draws_together(current, names)[counter]
                what = _insufficient(f"counter {counter}", requested, excess, Quantity.ZERO)
                self._refuse(key, f"pool {pool}: {what}")

    def _holder(self, device: DeviceId) -> str:
        claims = self._claims.ledger
        holders = claims.keys_where(lambda results: any(DeviceId.of(result) == device for result in results))
        key = next(iter(holders), None)
        return f"claim {namespace_of(RESOURCE_CLAIM, key)}/{name_of(key)}" if key else "another claim"

    def _refuse(self, key: str, why: str) -> None:
        raise conflict(RESOURCE_CLAIM.group, RESOURCE_CLAIM.plural, name_of(key), why)


class _DevicesInUse(GuardLedger[Results]):
    """The devices of stored claims and of allocations in progress."""

    def __init__(self) -> None:
        super().__init__(_results_of_record, self._add_devices)
        self.usage: dict[DeviceId, DeviceUsage] = {}
        # The names of the same devices by pool.
        self.taken: defaultdict[PoolId, dict[str, None]] = defaultdict(dict)

    def _add_devices(self, results: Results, sign: int) -> None:
        for result in results:
            device = DeviceId.of(result)
            usage = self.usage.get(device, FREE).changed_by(result, sign)
            if usage.is_free:
                self.usage.pop(device, None)
                self.taken[device.pool_id].pop(device.device, None)
            else:
                self.usage[device] = usage
                self.taken[device.pool_id][device.device] = None


class _Slices(RecordIndex):
    """What the stored slices declare."""

    def __init__(self, with_counters: set[str], with_shares: set[str]) -> None:
        self._by_key: dict[str, PublishedSlice] = {}
        self._pools: defaultdict[PoolId, dict[str, PublishedSlice]] = defaultdict(dict)
        self._with_counters = with_counters
        self._with_shares = with_shares

    def of_pool(self, pool: PoolId) -> Collection[PublishedSlice]:
        return self._pools[pool].values() if pool in self._pools else ()

    def find(self, device: DeviceId) -> PublishedDevice | None:
        return find_device(self.of_pool(device.pool_id), device.device)

    def have_counters(self, device: DeviceId) -> bool:
        """True if devices of its driver share counters."""
        return device.driver in self._with_counters

    def have_shares(self, device: DeviceId) -> bool:
        """True if its driver has devices that are allocated to several claims."""
        return device.driver in self._with_shares

    def _put(self, key: str, record: Record | None) -> None:
        before = self._by_key.pop(key, None)
        if before is not None:
            del self._pools[before.pool_id][key]
            if not self._pools[before.pool_id]:
                del self._pools[before.pool_id]
        if record is not None:
            now = self._by_key[key] = PublishedSlice.of(decode_again(record.value, ResourceSlice))
            self._pools[now.pool_id][key] = now
            if now.has_counters:
                self._with_counters.add(now.pool_id.driver)
            if any(device.is_shareable for device in now.devices.values()):
                self._with_shares.add(now.pool_id.driver)


def _insufficient(what: str, requested: int, excess: overcommit.Overcommit, model: Quantity) -> str:
    """The amounts are in nanos, and written in the notation of the model."""
    available = max(excess.offered - (excess.used - requested), 0)
    return (
        f"insufficient {what}: requested {quantity_like(model, requested)}, available {quantity_like(model, available)}"
    )


def _results_of_record(record: Record) -> Results | None:
    # Most claims are not allocated; decoding them is not needed to know that.
    if b'"allocation":' not in record.value:
        return None
    return counted_results(decode_again(record.value, ResourceClaim)) or None
