"""What is used of devices, as a tree for people and as values for machines: node, pool, device, who holds how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from dralloc.answers.device_report import (
    DeviceReport,
    DeviceState,
    HardwareAmount,
    Holding,
    PoolReport,
    hardware_by_driver,
    portion,
)
from dralloc.devices.allocator.availability import BlockCause
from dralloc.devices.allocator.headroom import CapacityReport
from dralloc.devices.taints import text_of_taint
from dralloc.kube.resource_v1 import Device

BAR_WIDTH: Final = 10
STATE_WIDTH: Final = max(len(state.value) for state in DeviceState)


def tree(reports: Iterable[PoolReport], *, is_wide: bool, with_bars: bool) -> Iterator[str]:
    shown: str | None = None
    for report in reports:
        if report.node != shown:
            shown = report.node
            yield shown or "(any node)"
        yield from (f"  {line}" for line in _pool_lines(report, is_wide=is_wide, with_bars=with_bars))
    if shown is None:
        yield "no devices"


def _pool_lines(report: PoolReport, *, is_wide: bool, with_bars: bool) -> Iterator[str]:
    states = Counter(device.state for device in report.devices)
    others = "".join(
        f", {states[state]} {state.value}" for state in DeviceState if state is not DeviceState.FREE and states[state]
    )
    fault = f", {report.fault}" if report.fault else ""
    yield f"{report.pool_id}: {states[DeviceState.FREE]} of {len(report.devices)} free{others}{fault}"
    for counter in report.counters:
        counter_set, name = counter.counter_id
        yield f"  counter {counter_set}/{name}: {counter.left} of {counter.value} left"
    width = max(len(device.device_id.device) for device in report.devices)
    for device in report.devices:
        yield from (f"  {line}" for line in _device_lines(device, width, is_wide=is_wide, with_bars=with_bars))


def _device_lines(report: DeviceReport, width: int, *, is_wide: bool, with_bars: bool) -> Iterator[str]:
    name = report.device_id.device.ljust(width)
    head = f"{name}  {report.state.value:<{STATE_WIDTH}}"
    capacities = [_capacity(report, capacity, with_bars=with_bars) for capacity in report.capacities] or [""]
    yield "  ".join(part for part in (head, capacities[0], _remark(report)) if part).rstrip()
    for capacity in capacities[1:]:
        yield f"{' ' * len(head)}  {capacity}"
    if is_wide and report.device.attributes:
        yield f"{' ' * width}  {', '.join(_attributes(report.device))}"
    for holding in report.holdings:
        yield f"{' ' * width}  {_holding(holding, is_wide=is_wide)}"


def _remark(report: DeviceReport) -> str:
    """What blocks the device, and its taints unless they do."""
    blocked = f"blocked by {report.block.cause.value}: {report.block.reason}" if report.block is not None else ""
    is_said = report.block is not None and report.block.cause is BlockCause.TAINTS
    taints = f"tainted {', '.join(map(text_of_taint, report.taints))}" if report.taints and not is_said else ""
    return "  ".join(part for part in (blocked, taints) if part)


def _capacity(device: DeviceReport, report: CapacityReport, *, with_bars: bool) -> str:
    bar = f"{_bar(report)} " if with_bars else ""
    used = f"{report.name} {bar}{report.used} of {report.value} used"
    if device.state is DeviceState.BLOCKED:
        return used
    is_open = report.largest is not None and not report.is_exhausted
    return f"{used}, {report.free} available, {f'fits up to {report.largest}' if is_open else 'no more fits'}"


def _bar(report: CapacityReport) -> str:
    filled = portion(report.used.nanos, report.value.nanos, BAR_WIDTH)
    return "█" * filled + "░" * (BAR_WIDTH - filled)


def _holding(holding: Holding, *, is_wide: bool) -> str:
    amounts = ", ".join(f"{name} {amount}" for name, amount in holding.consumed.items())
    how = " (admin access)" if holding.is_admin else ""
    text = f"{holding.claim_id}{f'  {amounts}' if amounts else ''}{how}"
    if not is_wide:
        return text
    share = f"  share {holding.share_id}" if holding.share_id else ""
    users = ", ".join(f"{reference.resource}/{reference.name}" for reference in holding.consumers)
    return f"{text}  request {holding.request}{share}  reserved for {users or 'no pod'}"


def _attributes(device: Device) -> Iterator[str]:
    for name, attribute in device.attributes.items():
        stated = (getattr(attribute, member) for member in attribute.__struct_fields__)
        yield f"{name}={next((value for value in stated if value is not None), '')}"


def plain_pool(report: PoolReport) -> dict[str, Any]:
    return {
        "driver": report.pool_id.driver,
        "pool": report.pool_id.pool,
        "nodeName": report.node or None,
        "fault": report.fault or None,
        "counters": [
            {
                "counterSet": counter.counter_id.counter_set,
                "name": counter.counter_id.counter,
                "value": str(counter.value),
                "left": str(counter.left),
            }
            for counter in report.counters
        ],
        "hardware": {name: plain_amount(amount) for (_, name), amount in hardware_by_driver([report]).items()},
        "devices": [_plain_device(device) for device in report.devices],
    }


def plain_amount(amount: HardwareAmount) -> dict[str, str]:
    return {
        "value": str(amount.quantity(amount.value)),
        "used": str(amount.quantity(amount.used)),
        "available": str(amount.quantity(amount.available)),
    }


def _plain_device(report: DeviceReport) -> dict[str, Any]:
    return {
        "name": report.device_id.device,
        "state": report.state.value,
        "blockedBy": None if report.block is None else report.block.cause.value,
        "reason": None if report.block is None else report.block.reason,
        "allowMultipleAllocations": report.is_shareable,
        "capacity": {
            capacity.name: {
                "value": str(capacity.value),
                "used": str(capacity.used),
                "free": str(capacity.free),
                "largestRequest": None if capacity.largest is None else str(capacity.largest),
            }
            for capacity in report.capacities
        },
        "taints": [text_of_taint(taint) for taint in report.taints],
        "holders": [_plain_holding(holding) for holding in report.holdings],
    }


def _plain_holding(holding: Holding) -> dict[str, Any]:
    return {
        "namespace": holding.claim_id.namespace,
        "claim": holding.claim_id.name,
        "request": holding.request,
        "shareID": holding.share_id,
        "consumedCapacity": {name: str(amount) for name, amount in holding.consumed.items()},
        "adminAccess": holding.is_admin,
        "reservedFor": [f"{reference.resource}/{reference.name}" for reference in holding.consumers],
    }
