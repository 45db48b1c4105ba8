"""Answers each request once, from what the informers show, and deletes it when it expires."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import ObjectKey, key_of
from dralloc.controllers.controller_context import ControllerContext
from dralloc.controllers.controller_loop import Controller
from dralloc.controllers.planned_actions import PlannedActions
from dralloc.devices.counters import CounterId, amounts_of, draws_of
from dralloc.devices.device_usage import counted_results
from dralloc.devices.identity import PoolId
from dralloc.devices.published_slice import generation_of, newest_slices
from dralloc.devices.taints import TaintRules, repels
from dralloc.kube.meta_v1 import Condition
from dralloc.kube.resource_v1 import (
    Device,
    DeviceRequestAllocationResult,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from dralloc.kube.resource_v1alpha3 import (
    COMPLETE,
    DEFAULT_LIMIT,
    FAILED,
    PartitionTypeStatus,
    PoolStatus,
    ResourcePoolStatusRequest,
    ResourcePoolStatusRequestStatus,
    ShareableCapacityStatus,
    ShareableSummaryStatus,
)
from dralloc.kube.timestamps import print_timestamp, stated_time
from dralloc.primitives.errors import NotFound
from dralloc.primitives.quantity import NANOS, Quantity

NAME: Final = "resourcepoolstatusrequest-controller"
REQUESTS: Final = resource_for(ResourcePoolStatusRequest)
SLICES: Final = resource_for(ResourceSlice)
CLAIMS: Final = resource_for(ResourceClaim)
RULES: Final = resource_for(DeviceTaintRule)
LOOK_AGAIN_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class WriteAnswer:
    request: ResourcePoolStatusRequest
    status: ResourcePoolStatusRequestStatus


@dataclass(frozen=True, slots=True)
class DeleteRequest:
    request: ResourcePoolStatusRequest


class PoolStatusController(Controller[ObjectKey, WriteAnswer | DeleteRequest]):
    """Keys are requests. Changes of slices and claims change no answer."""

    queue_name: ClassVar[str] = "resourcepoolstatusrequest"
    workers: ClassVar[int] = 1

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._calls = context.calls(NAME)
        self._clock = context.clock
        self._metrics = context.metrics
        informers = context.informers
        self._requests = informers.informer_for(REQUESTS)
        self._slices, self._claims = informers.informer_for(SLICES), informers.informer_for(CLAIMS)
        self._rules = informers.informer_for(RULES) if "DRADeviceTaintRules" in context.gates else None
        self._requests.subscribe(self._on_request)

    def _on_request(
        self,
        before: ResourcePoolStatusRequest | None,  # noqa: ARG002
        after: ResourcePoolStatusRequest | None,
    ) -> None:
        if after is not None:
            self.queue.add(key_of(after))

    async def plan(self, key: ObjectKey) -> PlannedActions[WriteAnswer | DeleteRequest]:
        request = self._requests.get(key.name, "")
        if request is None or request.metadata.deletion_timestamp is not None:
            return PlannedActions()
        now, expires = self._clock.now(), expiry(request)
        if expires is not None and expires <= now:
            return PlannedActions((DeleteRequest(request),))
        if request.status is None:
            started_s = time.perf_counter()
            status = self._answer(request)
            if is_premature(request, status, now):
                return PlannedActions(look_again_s=LOOK_AGAIN_S)
            self._metrics.pool_status_duration.observe(request.spec.driver, value=time.perf_counter() - started_s)
            return PlannedActions((WriteAnswer(request, status),))
        return PlannedActions(look_again_s=(expires - now).total_seconds() if expires is not None else None)

    def _answer(self, request: ResourcePoolStatusRequest) -> ResourcePoolStatusRequestStatus:
        slices = [each for each in self._slices.all() if each.spec.driver == request.spec.driver]
        rules = TaintRules()
        for rule in self._rules.all() if self._rules is not None else ():
            rules = rules.with_rule(rule)
        slices.sort(key=lambda each: each.metadata.name)
        return answer(request, slices, results_by_pool(self._claims.all()), rules, self._clock.now())

    async def apply(self, action: WriteAnswer | DeleteRequest) -> None:
        request, key = action.request, key_of(action.request)
        if isinstance(action, DeleteRequest):
            await self._calls.delete_unchanged(REQUESTS, request)
            return
        driver = request.spec.driver
        self._metrics.pool_status_processed.add(driver)
        patch = {"metadata": {"uid": request.metadata.uid}, "status": action.status}
        try:
            await self._calls.patch(REQUESTS, key, patch, subresource="status")
        except NotFound:
            return
        except Exception:
            self._metrics.pool_status_errors.add(driver)
            raise


# --- Plan -----------------------------------------------------------------------------------------------------------
# The answer to a request for the status of pools, and when the request is deleted.


ANSWERED_TTL: Final = timedelta(hours=1)
PENDING_TTL: Final = timedelta(hours=24)
# Drivers that are publishing a pool get this time before it is reported as incomplete.
INCOMPLETE_WAIT: Final = timedelta(seconds=2)


def answer(
    request: ResourcePoolStatusRequest,
    slices: Sequence[ResourceSlice],
    results: Mapping[PoolId, Sequence[DeviceRequestAllocationResult]],
    rules: TaintRules,
    now: datetime,
) -> ResourcePoolStatusRequestStatus:
    """The status of the pools that the request asks for. `slices` are those of the driver."""
    spec = request.spec
    pools = newest_slices(slices)
    wanted = sorted(each for each in pools if spec.pool_name in (None, each.pool))
    listed = tuple(
        count_pool(pools[each], results.get(each, ()), rules, spec.default_partition_type_attribute)
        for each in wanted[: spec.limit or DEFAULT_LIMIT]
    )
    errors = sum(1 for each in listed if each.validation_error)
    message = f"Calculated status for {len(listed)} pools" + (f" ({errors} incomplete)" if errors else "")
    condition = Condition(
        type=COMPLETE,
        status="True",
        reason="CalculationComplete",
        message=message,
        last_transition_time=print_timestamp(now),
    )
    return ResourcePoolStatusRequestStatus(pool_count=len(wanted), pools=listed, conditions=(condition,))


def is_premature(request: ResourcePoolStatusRequest, status: ResourcePoolStatusRequestStatus, now: datetime) -> bool:
    """True if a pool is incomplete and may be complete in a moment."""
    created = stated_time(request.metadata.creation_timestamp)
    is_new = created is not None and now - created < INCOMPLETE_WAIT
    return is_new and any((each.validation_error or "").startswith(INCOMPLETE) for each in status.pools)


def expiry(request: ResourcePoolStatusRequest) -> datetime | None:
    """When the request is deleted; None if it has no time."""
    created = stated_time(request.metadata.creation_timestamp)
    if request.status is None:
        return created + PENDING_TTL if created is not None else None
    ended = (each for each in request.status.conditions if each.type in (COMPLETE, FAILED) and each.status == "True")
    answered = next((stated_time(each.last_transition_time) for each in ended), None) or created
    return answered + ANSWERED_TTL if answered is not None else None


# --- Pool counts ----------------------------------------------------------------------------------------------------
# What is free in a pool: its devices by state, partitions by type, and the capacity of devices that can be shared.
#
# A device is allocated, available or unavailable. Unavailable are devices that no claim uses and that cannot be
# allocated: they have a taint, or other devices use their counters.


SUMMARY_MAX: Final = 32
ERROR_LENGTH_MAX: Final = 256
INCOMPLETE: Final = "PoolIncomplete:"

T = TypeVar("T")
Results = Sequence[DeviceRequestAllocationResult]


class _SummaryError(Exception):
    """Why partitions or capacities cannot be summed up."""


def results_by_pool(claims: Iterable[ResourceClaim]) -> dict[PoolId, list[DeviceRequestAllocationResult]]:
    """What claims use in each pool."""
    found: dict[PoolId, list[DeviceRequestAllocationResult]] = {}
    for claim in claims:
        for result in counted_results(claim):
            found.setdefault(PoolId.of_result(result), []).append(result)
    return found


def count_pool(
    slices: Sequence[ResourceSlice], results: Results, rules: TaintRules, default_attribute: str | None
) -> PoolStatus:
    """The status of a pool, from the slices of its newest generation and what claims use of it."""
    first = slices[0].spec
    nodes = {each.spec.node_name for each in slices}
    pool_id = PoolId.of_slice(slices[0])
    pool = PoolStatus(
        driver=pool_id.driver,
        pool_name=pool_id.pool,
        node_name=next(iter(nodes)) or None if len(nodes) == 1 else None,
        generation=generation_of(slices[0]),
    )
    expected = max(each.spec.pool.resource_slice_count for each in slices)
    if len(slices) < expected:
        told = f"{INCOMPLETE} pool {pool_id} is incomplete: observed {len(slices)}/{expected} slices"
        return replace(pool, validation_error=_short(f"{told} at generation {first.pool.generation}"))
    return _Counts.of(slices, results, rules).complete(pool, default_attribute)


class _Counts(Struct, frozen=True):
    """A complete pool. `used` are the names of the devices in use, `left` what they leave of the pool's counters."""

    slices: Sequence[ResourceSlice]
    results: Results
    rules: TaintRules
    used: frozenset[str]
    left: Mapping[CounterId, int]

    @classmethod
    def of(cls, slices: Sequence[ResourceSlice], results: Results, rules: TaintRules) -> _Counts:
        used = frozenset(result.device for result in results)
        left = Counter(amounts_of(each for item in slices for each in item.spec.shared_counters or ()))
        for item in slices:
            for device in item.spec.devices or ():
                if device.name in used:
                    left.subtract(dict(draws_of(device)))
        return cls(slices, results, rules, used, left)

    @property
    def devices(self) -> Iterator[Device]:
        return (device for item in self.slices for device in item.spec.devices or ())

    def complete(self, pool: PoolStatus, default_attribute: str | None) -> PoolStatus:
        tainted = _tainted_names(self.devices, self.rules, PoolId.of_slice(self.slices[0]))
        idle = [device for device in self.devices if device.name not in self.used]
        blocked = [device for device in idle if device.name in tainted or not self._has_counters(device)]
        partitions, partition_error = _attempt(lambda: self._partitions(default_attribute))
        shareable, capacity_error = _attempt(self._shareable)
        error = partition_error or capacity_error
        return replace(
            pool,
            resource_slice_count=len(self.slices),
            total_devices=sum(1 for _ in self.devices),
            allocated_devices=len(self.used),
            available_devices=len(idle) - len(blocked),
            unavailable_devices=len(blocked),
            partition_summary=partitions or (),
            shareable_summary=shareable,
            validation_error=_short(error) if error else None,
        )

    def _has_counters(self, device: Device) -> bool:
        return all(self.left.get(counter, 0) >= nanos for counter, nanos in draws_of(device))

    # --- Partitions ---------------------------------------------------------------------------------------------

    def _partitions(self, default_attribute: str | None) -> tuple[PartitionTypeStatus, ...]:
        declared = any(each.spec.partition_type_attribute for each in self.slices)
        if not declared and default_attribute is None:
            return ()
        groups: dict[tuple[str, str], list[Device]] = {}
        for item in self.slices:
            attribute = item.spec.partition_type_attribute if declared else default_attribute
            for device in item.spec.devices or ():
                if attribute and device.consumes_counters:
                    kind = _type_of(device, attribute, item.spec.driver)
                    groups.setdefault((attribute, kind), []).append(device)
        if not any(each.spec.shared_counters for each in self.slices):
            raise _SummaryError("PartitionTypeMissing: the pool publishes no sharedCounters")
        if len(groups) > SUMMARY_MAX:
            raise _SummaryError(f"PartitionSummaryOverCap: {len(groups)} types, more than {SUMMARY_MAX}")
        return tuple(self._group(*key, devices) for key, devices in sorted(groups.items()))

    def _group(self, attribute: str, kind: str, devices: Sequence[Device]) -> PartitionTypeStatus:
        if len({_cost(device) for device in devices}) > 1:
            raise _SummaryError(f"PartitionCostMismatch: partitions of type {kind} consume different counters")
        left, count = dict(self.left), 0
        for device in devices:
            draws = draws_of(device)
            if device.name not in self.used and all(left.get(counter, 0) >= nanos for counter, nanos in draws):
                count += 1
                for counter, nanos in draws:
                    left[counter] -= nanos
        return PartitionTypeStatus(attribute=attribute, type=kind, total=len(devices), allocatable=count)

    # --- Devices that can be shared -----------------------------------------------------------------------------

    def _shareable(self) -> ShareableSummaryStatus | None:
        devices = [device for device in self.devices if device.allow_multiple_allocations]
        if not devices:
            return None
        totals: Counter[str] = Counter()
        for device in devices:
            totals.update({name: each.value.nanos for name, each in device.capacity.items()})
        if len(totals) > SUMMARY_MAX:
            raise _SummaryError(f"ShareableSummaryOverCap: {len(totals)} capacities, more than {SUMMARY_MAX}")
        consumed: Counter[str] = Counter()
        by_device: dict[str, Counter[str]] = {}
        for result in self.results:
            amounts = {name: amount.nanos for name, amount in result.consumed_capacity.items()}
            consumed.update(amounts)
            by_device.setdefault(result.device, Counter()).update(amounts)
        shared = [device for device in devices if device.name in self.used]
        return ShareableSummaryStatus(
            fully_available_devices=len(devices) - len(shared),
            partially_available_devices=sum(_has_left(device, by_device[device.name]) for device in shared),
            capacity=tuple(_capacity(name, totals[name], consumed[name]) for name in sorted(totals)),
        )


def _attempt(compute: Callable[[], T]) -> tuple[T | None, str]:
    """The summary, or the error that prevents it."""
    try:
        return compute(), ""
    except _SummaryError as error:
        return None, str(error)


def _tainted_names(devices: Iterable[Device], rules: TaintRules, pool_id: PoolId) -> frozenset[str]:
    from_rules = [each for each in rules.taints_in_pool(pool_id) if repels(each.taint, ())]
    on_all = any(each.device is None for each in from_rules)
    named = {each.device for each in from_rules}
    return frozenset(
        device.name
        for device in devices
        if on_all or device.name in named or any(repels(taint, ()) for taint in device.taints)
    )


def _type_of(device: Device, attribute: str, driver: str) -> str:
    domain, _, name = attribute.partition("/")
    found = device.attributes.get(attribute) or (device.attributes.get(name) if domain == driver else None)
    if found is None or found.string is None:
        raise _SummaryError(f"PartitionTypeMissing: device {device.name} has no string attribute {attribute}")
    return found.string


def _cost(device: Device) -> frozenset[tuple[str, int, int]]:
    """What a partition costs, wherever it is: the counter sets of equal devices have different names."""
    amounts = Counter((counter.counter, nanos) for counter, nanos in draws_of(device))
    return frozenset((name, nanos, count) for (name, nanos), count in amounts.items())


def _has_left(device: Device, consumed: Mapping[str, int]) -> bool:
    return all(consumed.get(name, 0) < each.value.nanos for name, each in device.capacity.items() if each.value.nanos)


def _capacity(name: str, total: int, consumed: int) -> ShareableCapacityStatus:
    return ShareableCapacityStatus(
        name=name, total=_amount(total), consumed=_amount(consumed), available=_amount(max(0, total - consumed))
    )


def _amount(nanos: int) -> Quantity:
    return Quantity.of(nanos // NANOS) if nanos % NANOS == 0 else Quantity.parse(f"{nanos}n")


def _short(text: str) -> str:
    return text.encode()[:ERROR_LENGTH_MAX].decode(errors="ignore")
