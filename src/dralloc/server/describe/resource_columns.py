"""Table columns for resource claims, slices, classes and taint rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from dralloc.primitives.quantity import Quantity, QuantityError
from dralloc.server.describe.table_columns import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    WIDE,
    Cell,
    Column,
    at,
    field,
    time_since,
)
from dralloc.server.documents.json_documents import Document

GROUP: Final = "resource.k8s.io"

# Beyond this number, items are counted instead of listed.
LISTED_MAX: Final = 3


def _state(claim: Document, _: datetime) -> Cell:
    states = []
    if at(claim, "metadata", "deletionTimestamp"):
        states.append("deleted")
    if at(claim, "status", "allocation") is not None:
        states.append("allocated")
        if at(claim, "status", "reservedFor"):
            states.append("reserved")
    elif not states:
        states.append("pending")
    return ",".join(states)


def _results(claim: Document) -> list[Any]:
    return at(claim, "status", "allocation", "devices", "results") or []


def _devices(claim: Document, _: datetime) -> Cell:
    """The allocated devices, with the number of shares if there are several."""
    shares = Counter(f"{result.get('pool')}/{result.get('device')}" for result in _results(claim))
    return _listed((name if count == 1 else f"{name} (x{count})" for name, count in shares.items()), "devices")


def _shares(claim: Document, _: datetime) -> Cell:
    return sum(1 for result in _results(claim) if result.get("shareID"))


def _consumed(claim: Document, _: datetime) -> Cell:
    """The consumed capacity, summed over all devices of the claim."""
    total: dict[str, Quantity] = {}
    for result in _results(claim):
        for name, amount in (result.get("consumedCapacity") or {}).items():
            try:
                total[name] = total.get(name, Quantity.ZERO) + Quantity.parse(amount)
            except QuantityError:
                continue
    return _listed((f"{name}={amount}" for name, amount in sorted(total.items())), "capacities")


def _reserved_for(claim: Document, _: datetime) -> Cell:
    consumers = at(claim, "status", "reservedFor") or []
    if len(consumers) <= LISTED_MAX:
        return _listed((f"{_resource(consumer)}/{consumer.get('name')}" for consumer in consumers), "consumers")
    counts = Counter(map(_resource, consumers))
    return ",".join(f"{count} {resource}" for resource, count in counts.items())


def _resource(consumer: Mapping[str, Any]) -> str:
    group = consumer.get("apiGroup")
    return f"{consumer.get('resource')}.{group}" if group else str(consumer.get("resource"))


def _allocated_on(claim: Document, _: datetime) -> Cell:
    """The node of the claim's devices, if it is a single one."""
    if at(claim, "status", "allocation") is None:
        return NONE
    terms = at(claim, "status", "allocation", "nodeSelector", "nodeSelectorTerms")
    if not terms:
        return "<all>"
    fields = terms[0].get("matchFields") or []
    names = [
        name
        for requirement in fields
        if requirement.get("key") == "metadata.name"
        for name in requirement.get("values") or ()
    ]
    return _listed(names, "nodes") if names else "<selected>"


def _claim_requests(claim: Document, _: datetime) -> Cell:
    return _requests(at(claim, "spec", "devices", "requests"))


def _template_requests(template: Document, _: datetime) -> Cell:
    return _requests(at(template, "spec", "spec", "devices", "requests"))


def _requests(requests: Any) -> Cell:
    """The requests, such as `gpu=2:gpu.example.com`; alternatives are separated by `|`."""
    return _listed((f"{request.get('name')}={_alternatives(request)}" for request in requests or ()), "requests")


def _alternatives(request: Mapping[str, Any]) -> str:
    # v1beta1 has no `exactly`: its fields are those of the request.
    exact = request.get("exactly") or request
    return "|".join(map(_wanted, request.get("firstAvailable") or (exact,)))


def _wanted(request: Mapping[str, Any]) -> str:
    count = "all" if request.get("allocationMode") == "All" else request.get("count", 1)
    if request.get("allocationMode") == "AggregatedCapacity":
        count = f"<={count}"
    return f"{count}:{request.get('deviceClassName')}"


def _slice_devices(resource_slice: Document, _: datetime) -> Cell:
    return len(at(resource_slice, "spec", "devices") or ())


def _shareable(resource_slice: Document, _: datetime) -> Cell:
    """The number of devices that allow multiple allocations."""
    devices = at(resource_slice, "spec", "devices") or ()
    return sum(1 for device in devices if {**device, **(device.get("basic") or {})}.get("allowMultipleAllocations"))


def _tainted(resource_slice: Document, _: datetime) -> Cell:
    devices = at(resource_slice, "spec", "devices") or ()
    return sum(1 for device in devices if {**device, **(device.get("basic") or {})}.get("taints"))


def _slice_of_pool(resource_slice: Document, _: datetime) -> Cell:
    pool = at(resource_slice, "spec", "pool") or {}
    return f"{pool.get('generation', 0)} ({pool.get('resourceSliceCount', 0)} slices)"


def _available_on(resource_slice: Document, _: datetime) -> Cell:
    spec = resource_slice.get("spec") or {}
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    if spec.get("allNodes"):
        return "<all>"
    return "<per device>" if spec.get("perDeviceNodeSelection") else "<selected>"


def _class_selectors(device_class: Document, _: datetime) -> Cell:
    selectors = at(device_class, "spec", "selectors") or ()
    return _listed((str(at(selector, "cel", "expression")) for selector in selectors), "selectors")


def _tainted_devices(rule: Document, _: datetime) -> Cell:
    """The devices that the rule taints; none without a selector."""
    selector = at(rule, "spec", "deviceSelector")
    if selector is None:
        return NONE
    parts = [f"{name}={selector[name]}" for name in ("driver", "pool", "device") if selector.get(name)]
    return ",".join(parts) or "<all>"


def _taint(rule: Document, _: datetime) -> Cell:
    taint = at(rule, "spec", "taint") or {}
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key', '')}{value}:{taint.get('effect', '')}"


def _evicting(rule: Document, _: datetime) -> Cell:
    conditions = at(rule, "status", "conditions") or ()
    return next((str(c.get("status")) for c in conditions if c.get("type") == "EvictionInProgress"), NONE)


def _listed(texts: Iterable[str], what: str) -> str:
    found = list(texts)
    if not found:
        return NONE
    return ",".join(found) if len(found) <= LISTED_MAX else f"{len(found)} {what}"


def _answer_of(request: Document) -> tuple[str, str | None]:
    """The state of a request for the status of pools, and the time of its answer."""
    for condition in at(request, "status", "conditions") or []:
        if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True":
            return condition["type"], condition.get("lastTransitionTime")
    return "Pending", None


def _answered_pools(request: Document) -> list[Any] | None:
    """The listed pools; None while there is no answer, or if it failed."""
    return (at(request, "status", "pools") or []) if _answer_of(request)[0] == "Complete" else None


def _sum_of(member: str) -> Callable[[Document, datetime], Cell]:
    def cell(request: Document, _: datetime) -> Cell:
        pools = _answered_pools(request)
        return "-" if pools is None else str(sum(pool.get(member) or 0 for pool in pools))

    return cell


def _pool_errors(request: Document, _: datetime) -> Cell:
    pools = _answered_pools(request)
    return "-" if pools is None else str(sum(bool(pool.get("validationError")) for pool in pools))


def _pool_count(request: Document, _: datetime) -> Cell:
    return at(request, "status", "poolCount") or 0


def _answer(request: Document, _: datetime) -> Cell:
    state, pools = _answer_of(request)[0], _answered_pools(request)
    count = at(request, "status", "poolCount") or 0
    return state if pools is None or count <= len(pools) else f"{state} ({len(pools)}/{count} pools)"


def _answered_since(request: Document, now: datetime) -> Cell:
    state, at_time = _answer_of(request)
    return time_since(at_time, now) if state == "Complete" and at_time else UNKNOWN


RESOURCE_COLUMNS: Final[Mapping[tuple[str, str], tuple[Column, ...]]] = {
    (GROUP, "ResourceClaim"): (
        NAME,
        Column("State", _state, "Whether the claim is pending, allocated, reserved or being deleted."),
        Column("Devices", _devices, "The allocated devices, by pool and name."),
        Column("Shares", _shares, "The number of allocated shares of devices.", type="integer"),
        Column("Consumed", _consumed, "The consumed capacity, summed over all devices."),
        Column("Reserved For", _reserved_for, "Who may use the devices."),
        AGE,
        Column("Node", _allocated_on, "Where the devices are.", WIDE),
        Column("Requests", _claim_requests, "The claim's requests: count and device class.", WIDE),
    ),
    (GROUP, "ResourceClaimTemplate"): (
        NAME,
        AGE,
        Column("Requests", _template_requests, "The requests of its claims: count and device class.", WIDE),
    ),
    (GROUP, "ResourceSlice"): (
        NAME,
        Column("Node", field("spec", "nodeName", absent=""), "The node that the devices belong to."),
        Column("Driver", field("spec", "driver", absent=""), "The driver that manages the devices."),
        Column("Pool", field("spec", "pool", "name", absent=""), "The pool that the devices are in."),
        Column("Devices", _slice_devices, "The number of devices in the slice.", type="integer"),
        AGE,
        Column("Shareable", _shareable, "The number of devices that allow multiple allocations.", WIDE, "integer"),
        Column("Tainted", _tainted, "The number of tainted devices.", WIDE, "integer"),
        Column("Generation", _slice_of_pool, "The pool's generation, and its number of slices.", WIDE),
        Column("Available On", _available_on, "The nodes that can use the devices.", WIDE),
    ),
    (GROUP, "DeviceClass"): (
        NAME,
        AGE,
        Column(
            "Extended Resource",
            field("spec", "extendedResourceName"),
            "The extended resource name of the class.",
            WIDE,
        ),
        Column("Selectors", _class_selectors, "The selectors of the class.", WIDE),
    ),
    (GROUP, "ResourcePoolStatusRequest"): (
        NAME,
        Column("Driver", field("spec", "driver"), "The driver whose pools are asked about."),
        Column("Total", _sum_of("totalDevices"), "Devices of the listed pools."),
        Column("Available", _sum_of("availableDevices"), "Devices that can be allocated."),
        Column("Allocated", _sum_of("allocatedDevices"), "Devices that claims use."),
        Column("Unavailable", _sum_of("unavailableDevices"), "Devices that cannot be allocated."),
        Column("Errors", _pool_errors, "Listed pools with an error."),
        Column("Pools", _pool_count, "Pools that match."),
        Column("Status", _answer, "Pending, Complete or Failed."),
        Column("Completed", _answered_since, "Time since the answer."),
    ),
    (GROUP, "DeviceTaintRule"): (
        NAME,
        Column("Devices", _tainted_devices, "The devices that are tainted."),
        Column("Taint", _taint, "The taint: key, value and effect."),
        AGE,
        Column("Evicting", _evicting, "Whether pods are being evicted because of the taint.", WIDE),
    ),
}
