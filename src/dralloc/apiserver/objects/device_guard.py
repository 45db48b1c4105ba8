"""No device is given out twice, none beyond its capacity or its counters, whoever writes the allocation.

Schedulers decide on what they last saw. Two of them, or one that was restarted, can decide on the same device;
the second write is refused here with a conflict, and that scheduler looks again. Like Kubernetes, the server
accepts allocations of devices that nobody published: it guards what is given out, it does not judge it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dralloc.api.codec import decode
from dralloc.api.meta_v1 import ApiObject
from dralloc.api.registry import RESOURCE_CLAIM, RESOURCE_SLICE
from dralloc.api.resource_v1 import DeviceRequestAllocationResult, ResourceClaim, ResourceSlice
from dralloc.apiserver.http.statuses import conflict
from dralloc.apiserver.objects.api_resources import name_of, namespace_of, prefix_of
from dralloc.apiserver.objects.store_view import StoreView
from dralloc.apiserver.objects.write_guards import GuardLedger, Hold
from dralloc.devices.device_usage import FREE, DeviceUsage, counted_results
from dralloc.devices.identity import DeviceId, PoolId
from dralloc.store.interface import Store
from dralloc.store.records import Record, StoreEvent

Results = tuple[DeviceRequestAllocationResult, ...]
# A counter by its set and its name.
CounterId = tuple[str, str]


class DeviceGuard:
    """The gatekeeper of claims: follows claims and slices from the first allocation on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._usage: dict[DeviceId, DeviceUsage] = {}
        # The same devices by their pool.
        self._taken: defaultdict[PoolId, dict[str, None]] = defaultdict(dict)
        self._ledger = GuardLedger[Results](_results_of_record, self._add)
        self._capacities = _Capacities()
        self._following: list[StoreView] = []

    async def reserve(self, key: str, new: ApiObject, old: ApiObject | None) -> Hold | None:
        assert isinstance(new, ResourceClaim), "the guard of claims"
        if old is None or not isinstance(old, ResourceClaim) or old.status.allocation is not None:
            return None
        results = counted_results(new)
        if not results:
            return None
        await self._ready()
        self._check(key, results)
        return self._ledger.promise(key, results)

    async def stop(self) -> None:
        for following in self._following:
            await following.stop()

    async def _ready(self) -> None:
        if not self._following:
            self._following = [
                StoreView(self._store, prefix_of(RESOURCE_CLAIM), self._ledger),
                StoreView(self._store, prefix_of(RESOURCE_SLICE), self._capacities),
            ]
        for following in self._following:
            await following.ready()

    def _add(self, results: Results, sign: int) -> None:
        for result in results:
            device = _device(result)
            usage = self._usage.get(device, FREE).changed_by(result, sign)
            if usage.is_free:
                self._usage.pop(device, None)
                self._taken[device.pool_id].pop(device.device, None)
            else:
                self._usage[device] = usage
                self._taken[device.pool_id][device.device] = None

    def _check(self, key: str, results: Results) -> None:
        wanted: dict[DeviceId, DeviceUsage] = {}
        for result in results:
            device = _device(result)
            so_far = wanted.get(device, FREE)
            if not self._goes_with(result, device, self._usage.get(device, FREE)):
                self._refuse(key, f"device {device} is given to {self._holder(device)}")
            if not self._goes_with(result, device, so_far):
                self._refuse(key, f"device {device} is listed more than once, and not by shares of it alone")
            wanted[device] = so_far.changed_by(result, 1)
        for device, usage in wanted.items():
            if not usage.consumed:
                continue
            capacities, consumed = self._capacities.of(device) or {}, self._usage.get(device, FREE).consumed
            for name, amount in usage.consumed.items():
                if name in capacities and consumed.get(name, 0) + amount > capacities[name]:
                    self._refuse(key, f"device {device} has not that much {name} left")
        self._check_counters(key, [device for device in wanted if device not in self._usage])

    def _goes_with(self, result: DeviceRequestAllocationResult, device: DeviceId, usage: DeviceUsage) -> bool:
        """Whether a device in such use can be given out once more: only one that can be shared, and only by shares."""
        if usage.is_free:
            return True
        return not usage.dedicated and result.share_id is not None and self._capacities.of(device) is not None

    def _check_counters(self, key: str, wanted: Iterable[DeviceId]) -> None:
        """A device draws on its counters once, to however many claims it is given."""
        by_pool: defaultdict[PoolId, list[str]] = defaultdict(list)
        for device in wanted:
            if (pool := device.pool_id) in self._capacities.counting:
                by_pool[pool].append(device.device)
        for pool, names in by_pool.items():
            drawn = self._capacities.drawn(pool, names)
            taken = self._capacities.drawn(pool, self._taken[pool])
            available = self._capacities.counters(pool)
            for counter, amount in drawn.items():
                if counter in available and taken[counter] + amount > available[counter]:
                    self._refuse(key, f"counter {'/'.join(counter)} of pool {pool} has not that much left")

    def _holder(self, device: DeviceId) -> str:
        holders = self._ledger.keys_where(lambda results: any(_device(result) == device for result in results))
        key = next(iter(holders), None)
        return f"claim {namespace_of(RESOURCE_CLAIM, key)}/{name_of(key)}" if key else "another claim"

    def _refuse(self, key: str, why: str) -> None:
        raise conflict(RESOURCE_CLAIM.group, RESOURCE_CLAIM.plural, name_of(key), why)


@dataclass(frozen=True, slots=True)
class _PublishedCapacities:
    """Of one slice, in nanos: the capacities of its devices, what they draw, and what there is to draw.

    Devices that cannot be shared have None for their capacities: nobody consumes a part of them.
    """

    pool: PoolId
    generation: int
    devices: Mapping[str, Mapping[str, int] | None]
    draws: Mapping[str, Mapping[CounterId, int]]
    counters: Mapping[CounterId, int]

    @property
    def counts(self) -> bool:
        return bool(self.draws or self.counters)

    @classmethod
    def of(cls, published: ResourceSlice) -> _PublishedCapacities:
        spec = published.spec
        devices = {
            device.name: {name: capacity.value.nanos for name, capacity in device.capacity.items()}
            if device.allow_multiple_allocations
            else None
            for device in spec.devices or ()
        }
        draws = {
            device.name: {
                (consumption.counter_set, name): counter.value.nanos
                for consumption in device.consumes_counters
                for name, counter in consumption.counters.items()
            }
            for device in spec.devices or ()
            if device.consumes_counters
        }
        counters = {
            (counter_set.name, name): counter.value.nanos
            for counter_set in spec.shared_counters or ()
            for name, counter in counter_set.counters.items()
        }
        return cls(PoolId.of_slice(published), spec.pool.generation, devices, draws, counters)


class _Capacities:
    """What published devices hold. Of several slices that name a device, that of the newest generation counts."""

    def __init__(self) -> None:
        self._slices: dict[str, _PublishedCapacities] = {}
        self._pools: defaultdict[PoolId, set[str]] = defaultdict(set)
        # How many slices there are with counters, of the pools that have any.
        self.counting: Counter[PoolId] = Counter()

    def of(self, device: DeviceId) -> Mapping[str, int] | None:
        """The device's capacities in nanos; None where it cannot be shared. Of one that is not published nothing is known."""
        published = [self._slices[key] for key in self._pools.get(device.pool_id, ())]
        naming = [slice_ for slice_ in published if device.device in slice_.devices]
        newest = max(naming, key=lambda slice_: slice_.generation, default=None)
        return newest.devices[device.device] if newest else {}

    def drawn(self, pool: PoolId, devices: Iterable[str]) -> Counter[CounterId]:
        """What these devices draw together."""
        newest = self._newest(pool)
        total: Counter[CounterId] = Counter()
        for device in devices:
            draws = next((slice_.draws[device] for slice_ in newest if device in slice_.draws), {})
            total.update(draws)
        return total

    def counters(self, pool: PoolId) -> Mapping[CounterId, int]:
        """What the pool's devices can draw."""
        newest = self._newest(pool)
        return {counter: amount for slice_ in reversed(newest) for counter, amount in slice_.counters.items()}

    def _newest(self, pool: PoolId) -> list[_PublishedCapacities]:
        """The pool's slices with counters, the newest generation first."""
        published = (self._slices[key] for key in self._pools.get(pool, ()))
        counting = [slice_ for slice_ in published if slice_.counts]
        return sorted(counting, key=lambda slice_: -slice_.generation)

    def reset(self, records: Iterable[Record], revision: int) -> None:  # noqa: ARG002
        self._slices.clear()
        self._pools.clear()
        self.counting.clear()
        for record in records:
            self._learn(record.key, record)

    def apply(self, event: StoreEvent) -> None:
        self._learn(event.key, event.record)

    def _learn(self, key: str, record: Record | None) -> None:
        before = self._slices.pop(key, None)
        if before is not None:
            self._pools[before.pool].discard(key)
            self._count(before, -1)
        if record is not None:
            now = self._slices[key] = _PublishedCapacities.of(decode(record.value, ResourceSlice))
            self._pools[now.pool].add(key)
            self._count(now, 1)

    def _count(self, slice_: _PublishedCapacities, sign: int) -> None:
        if slice_.counts:
            self.counting[slice_.pool] += sign
            if not self.counting[slice_.pool]:
                del self.counting[slice_.pool]


def _results_of_record(record: Record) -> Results | None:
    # Most claims that are read are not allocated, and need not be decoded to know that.
    if b'"allocation":' not in record.value:
        return None
    return counted_results(decode(record.value, ResourceClaim)) or None


def _device(result: DeviceRequestAllocationResult) -> DeviceId:
    return DeviceId.of(result)
