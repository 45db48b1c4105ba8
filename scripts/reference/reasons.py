"""docs/reference/reasons.md: why a pod or a claim gets no devices, with examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from dralloc.devices.allocator.diagnosis.reasons import Reason, ReasonCause
from dralloc.primitives.quantity import Quantity
from scripts.reference.markdown import table


def sample(cause: ReasonCause, **values: Any) -> Reason:
    return Reason(cause=cause, **values)


REASONS: Final[Sequence[tuple[Reason, str]]] = (
    (sample(ReasonCause.NO_DEVICES), "The node has no devices at all. Is the driver running there? `dralloc top devices`"),
    (sample(ReasonCause.POOL, subject="is incomplete"), "Slices of the pool are missing, or two devices have one name. This is temporary while a driver publishes; if it persists, check the driver."),
    (sample(ReasonCause.BINDING_CONDITIONS), "Turn `DRADeviceBindingConditions` on in the scheduler, or publish the devices without conditions."),
    (sample(ReasonCause.CLASS_SELECTOR, subject="gpu"), "No device on the node matches the selectors of the class. `dralloc cel` evaluates a selector on devices."),
    (sample(ReasonCause.CLAIM_SELECTOR, subject='device.attributes["gpu.example.com"].model == "a100"'), "No device matches the selectors of the request. A name that no device has is often a typo."),
    (sample(ReasonCause.FAULT, subject="no such key: model"), "A selector fails on a device. Guard it: `has(…)`, or `device.attributes[…].?name.orValue(…)`."),
    (sample(ReasonCause.NO_CAPACITY, subject="bandwidth"), "The devices do not have the requested capacity. Check its name."),
    (sample(ReasonCause.SIZE, subject="bandwidth", asked="30G", most=Quantity.parse("25G")), "No device is large enough, even if it is free. Request less."),
    (sample(ReasonCause.CAPACITY_LIMIT, subject="bandwidth", asked="30G", most=Quantity.parse("25G")), "No device is as large as the limit in `capacity.limits`. Lower the limit."),
    (sample(ReasonCause.NOT_CONSUMABLE, subject="bandwidth", asked="5G"), "The first user of the device took it without an amount (strategy `ConsumedOrNever`), so no amount can be requested until it is released."),
    (sample(ReasonCause.DIVIDED, subject="bandwidth"), "Some shares of the device consume this capacity and some do not, because its policy changed. No more shares until either kind is released."),
    (sample(ReasonCause.POLICY, subject="memory", asked="20Gi", most=Quantity.parse("16Gi")), "The capacity's request policy does not allow this amount. Request less, or several devices."),
    (sample(ReasonCause.IN_USE, lost=4, lost_at_all=4), "All devices that are not shareable are in use. Wait, add devices, or add an alternative to the request."),
    (sample(ReasonCause.CAPACITY, subject="bandwidth", asked="5G", most=Quantity.parse("2G")), "The shareable devices have too little capacity available. Request less, or wait until capacity is released."),
    (sample(ReasonCause.ALLOCATIONS, subject="at most 0"), "Devices are allocated more or less often than `allocations` of the request says."),
    (sample(ReasonCause.TOTAL, subject="bandwidth", asked="30G", most=Quantity.parse("25G"), wanted=4), "All devices together have too little available. Request less, or wait until capacity is released."),
    (sample(ReasonCause.COUNTERS, subject="memory", takes="20Gi", most=Quantity.parse("10Gi")), "Other partitions of the same device consume the counters that this one needs."),
    (sample(ReasonCause.OVERDRAWN, subject="memory"), "Devices in use consume more than the pool now has, because a driver reduced a counter. This ends when they are released."),
    (sample(ReasonCause.PARTITIONS_OFF), "Turn `DRAPartitionableDevices` on in the scheduler."),
    (sample(ReasonCause.FEATURE_OFF, subject="DRACapacityStrategies"), "The devices use a feature that the scheduler does not. Turn its gate on in the scheduler, or publish the devices without it."),
    (sample(ReasonCause.TAINT, subject="gpu.example.com/broken:NoExecute"), "Tolerate the taint in the request, or fix its cause."),
    (sample(ReasonCause.NODE_OPERATIONS), "The node agent is too old for the devices."),
    (sample(ReasonCause.NO_ATTRIBUTE, subject="gpu.example.com/numa"), "A constraint compares an attribute that no device has. Check its name."),
    (sample(ReasonCause.CONSTRAINT, subject="gpu.example.com/numa", wanted=2, asked="agree"), "No set of free devices satisfies the constraint. Request fewer devices, or remove it."),
    (sample(ReasonCause.LIMIT, asked="40"), "A claim can have at most 32 devices. Use several claims."),
    (sample(ReasonCause.TOGETHER, subject="requests gpu and nic"), "Each request fits alone, but they need the same devices."),
    (sample(ReasonCause.ERROR, subject="claim default/x: the class gpu does not exist"), "The claim cannot be allocated on any node until this is fixed."),
    (sample(ReasonCause.UNDECIDED, subject="not decided within 100000 steps"), "The search reached its step limit without an answer. The node is skipped; the pod is tried elsewhere, and again later."),
    (sample(ReasonCause.NODE, subject="insufficient cpu"), "The cause is not a device: labels, taints, cpu, memory, number of pods, or an unschedulable node."),
)  # fmt: skip


def reasons_page() -> Iterator[str]:
    assert {reason.cause for reason, _ in REASONS} == set(ReasonCause), "every cause is explained"
    yield "# Why a pod or a claim gets no devices"
    yield "The same reasons appear in the condition `PodScheduled` of a pod, in its event, in `dralloc explain`, `dralloc allocate` and on the web page: one for"
    yield "each group of nodes (`0/500 nodes are available: 480 nodes: …; 20 nodes: …`). `dralloc explain` also lists changes that would help."
    yield "With `-o json` a reason has its `cause`:"
    yield ""
    yield from table(
        ["cause", "example", "what helps"],
        ([f"`{reason.cause.value}`", str(reason), advice] for reason, advice in REASONS),
    )
