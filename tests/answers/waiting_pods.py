"""Pods that wait, each for one reason, and what an explanation says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dralloc.answers.explanation.report import Question
from dralloc.devices.allocator.features import Features
from dralloc.devices.node_selectors import NodeFacts
from dralloc.kube.device_parts import capacity
from dralloc.kube.resource_v1 import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dralloc.testing import builders as build
from dralloc.testing.builders import (
    allocation,
    alternative,
    claim,
    device,
    device_class,
    distinct,
    first_available,
    held,
    match,
    request,
    resource_slice,
    taint,
    taint_rule,
)
from tests.support.questions import question_of

MODEL = 'device.attributes["gpu.example.com"].model == "h100"'

NUMA = "gpu.example.com/numa"


def holder(name: str, *devices: str, consumed: str | None = None) -> ResourceClaim:
    """A claim that has these devices whole, or a share of each."""
    share = None if consumed is None else {"memory": consumed}
    results = (held(each, share_id=f"{name}-{each}" if share else None, consumed=share) for each in devices)
    return claim(name, allocation=allocation(*results))


def gpus(*names: str, **options: object) -> ResourceSlice:
    return resource_slice("gpus", *(device(name, **options) for name in names))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Case:
    id: str
    slices: tuple[ResourceSlice, ...]
    claims: tuple[ResourceClaim, ...]
    # What follows the subject in the first line, as far as it is ours to say, and the likeliest remedy.
    want: str
    remedy: str = ""
    allocated: tuple[ResourceClaim, ...] = ()
    rules: tuple[DeviceTaintRule, ...] = ()
    classes: tuple[DeviceClass, ...] = (device_class(),)
    features: Features = field(default_factory=Features)
    nodes: tuple[NodeFacts, ...] = (build.node(),)

    @property
    def question(self) -> Question:
        return question_of(
            claims=self.claims,
            classes={found.metadata.name: found for found in self.classes},
            features=self.features,
            slices=self.slices,
            allocated=self.allocated,
            rules=self.rules,
            nodes=self.nodes,
        )


def wants(**options: object) -> tuple[ResourceClaim, ...]:
    return (claim("claim", request(**options)),)  # type: ignore[arg-type]


SHARED = {"memory": "40Gi"}

STEPPED: Mapping[str, object] = {"memory": capacity("40Gi", default="1Gi", minimum="2Gi", step="2Gi", maximum="32Gi")}

CASES = [
    Case("a node without devices", (), wants(), "does not fit on node-a: no devices"),
    Case(
        "fewer devices than asked for",
        (gpus("gpu-0", "gpu-1"),),
        wants(count=3),
        "does not fit on node-a: 2 devices, 3 requested",
        "request 2 devices instead of 3 in request request",
    ),
    Case(
        "no device of the class, which was chosen for a reason",
        (gpus("gpu-0"),),
        wants(),
        "does not fit on node-a: no device of class gpu",
        classes=(device_class("gpu", 'device.driver == "nic.example.com"'), device_class("any")),
    ),
    Case(
        "no device that the selector takes",
        (gpus("gpu-0", attributes={"model": "a100"}),),
        wants(where=MODEL),
        'does not fit on node-a: no device matches device.attributes["gpu.example.com"].model == "h100"',
        'remove the selector device.attributes["gpu.example.com"].model == "h100" from request request',
    ),
    Case(
        "the only device in use",
        (gpus("gpu-0"),),
        wants(),
        "does not fit on node-a: the only device is in use",
        "release claim default/other",
        allocated=(holder("other", "gpu-0"),),
    ),
    Case(
        "all devices in use",
        (gpus("gpu-0", "gpu-1"),),
        wants(),
        "does not fit on node-a: all 2 devices are in use",
        "release claim default/one",
        allocated=(holder("one", "gpu-0"), holder("two", "gpu-1")),
    ),
    Case(
        "one device too few is free",
        (gpus("gpu-0", "gpu-1", "gpu-2"),),
        wants(count=2),
        "does not fit on node-a: only 1 of 2 devices: 2 in use",
        "request 1 device instead of 2 in request request",
        allocated=(holder("one", "gpu-0", "gpu-1"),),
    ),
    Case(
        "less capacity left than asked for",
        (gpus("gpu-0", "gpu-1", capacity=SHARED, shareable=True),),
        wants(capacity={"memory": "30Gi"}),
        "does not fit on node-a: insufficient memory: requested 30Gi, available 28Gi (gpu.example.com/pool-a/gpu-1)",
        "request 28Gi of memory instead of 30Gi in request request",
        allocated=(holder("one", "gpu-0", consumed="20Gi"), holder("two", "gpu-1", consumed="12Gi")),
    ),
    Case(
        "what is asked for is rounded up",
        (gpus("gpu-0", capacity=STEPPED, shareable=True),),
        wants(capacity={"memory": "7Gi"}),
        "does not fit on node-a: insufficient memory: requested 7Gi (rounded up to 8Gi), available 7Gi (gpu.example.com/pool-a/gpu-0)",
        "request 6Gi of memory instead of 7Gi in request request",
        allocated=(holder("one", "gpu-0", consumed="33Gi"),),
    ),
    Case(
        "nothing asked for takes everything",
        (gpus("gpu-0", capacity=SHARED, shareable=True),),
        wants(),
        "does not fit on node-a: insufficient memory: needs 40Gi, available 24Gi (gpu.example.com/pool-a/gpu-0)",
        "request at most 24Gi of memory in request request",
        allocated=(holder("one", "gpu-0", consumed="16Gi"),),
    ),
    Case(
        "more than any device has",
        (gpus("gpu-0", "gpu-1", capacity=SHARED, shareable=True),),
        wants(count=2, capacity={"memory": "80Gi"}),
        "does not fit on node-a: insufficient memory: requested 80Gi, the largest device has 40Gi (gpu.example.com/pool-a/gpu-0)",
        "request 40Gi of memory instead of 80Gi in request request",
    ),
    Case(
        "more than the policy gives out",
        (gpus("gpu-0", capacity=STEPPED, shareable=True),),
        wants(capacity={"memory": "36Gi"}),
        "does not fit on node-a: memory: requested 36Gi; at most 32Gi per claim (gpu.example.com/pool-a/gpu-0)",
        "request 32Gi of memory instead of 36Gi in request request",
    ),
    Case(
        "a capacity under a name that devices do not have",
        (gpus("gpu-0", capacity=SHARED, shareable=True),),
        wants(capacity={"gpu.example.com/memory": "8Gi"}),
        "does not fit on node-a: no device has the capacity gpu.example.com/memory",
        "request the capacity memory instead of gpu.example.com/memory in request request",
    ),
    Case(
        "counters that are used up",
        (
            resource_slice("counters", of=2, counters={"card": {"memory": "10Gi"}}),
            resource_slice(
                "parts",
                device("half-0", draws={"card": {"memory": "5Gi"}}),
                device("whole", draws={"card": {"memory": "10Gi"}}),
                of=2,
            ),
        ),
        wants(where='device.attributes["gpu.example.com"].?size.orValue("whole") == "whole"'),
        "does not fit on node-a: insufficient counter memory: needs 10Gi, available 5Gi (gpu.example.com/pool-a card); also 1 device: in use",
        "release claim default/one",
        allocated=(holder("one", "half-0"),),
    ),
    Case(
        "counters that are overdrawn",
        (
            resource_slice("counters", of=2, counters={"card": {"memory": "10Gi"}, "other": {"units": "1"}}),
            resource_slice(
                "parts",
                device("half-0", draws={"card": {"memory": "7Gi"}}),
                device("half-1", draws={"card": {"memory": "7Gi"}}),
                device("unit", draws={"other": {"units": "1"}}),
                of=2,
            ),
        ),
        wants(),
        "does not fit on node-a: 2 of 3 devices are in use; also 1 device: counter memory is overcommitted by allocated devices",
        "release claim default/one",
        allocated=(holder("one", "half-0"), holder("two", "half-1")),
    ),
    Case(
        "a taint of the device's own",
        (gpus("gpu-0", taints=[taint("broken", "fan")]),),
        wants(),
        "does not fit on node-a: untolerated taint broken=fan:NoSchedule",
        "tolerate the taint broken=fan:NoSchedule in request request",
    ),
    Case(
        "a taint by a rule",
        (gpus("gpu-0"),),
        wants(),
        "does not fit on node-a: untolerated taint drain:NoSchedule",
        "tolerate the taint drain:NoSchedule in request request",
        rules=(taint_rule("rule", taint("drain")),),
    ),
    Case(
        "most are in use, one is tainted",
        (resource_slice("gpus", device("a"), device("b"), device("c", taints=[taint("broken")])),),
        wants(),
        "does not fit on node-a: 2 of 3 devices are in use; also 1 device: untolerated taint broken:NoSchedule",
        "tolerate the taint broken:NoSchedule in request request",
        allocated=(holder("one", "a", "b"),),
    ),
    Case(
        "an attribute that a constraint needs",
        (gpus("gpu-0", "gpu-1"),),
        (claim("claim", request(count=2), constraints=[match(NUMA)]),),
        "does not fit on node-a: no device has the attribute gpu.example.com/numa that a constraint needs",
        "remove the constraint on gpu.example.com/numa from claim default/claim",
    ),
    Case(
        "devices that do not agree",
        (resource_slice("gpus", *(device(f"gpu-{at}", attributes={"numa": at // 2}) for at in range(6))),),
        (claim("claim", request(count=3), constraints=[match(NUMA)]),),
        "does not fit on node-a: only 2 of 3 devices have the same gpu.example.com/numa",
        "request 2 devices instead of 3 in request request",
    ),
    Case(
        "shares of one device where two different are asked for",
        (gpus("nic-0", attributes={"link": "up"}, capacity={"bandwidth": "10G"}, shareable=True),),
        (
            claim(
                "claim",
                request("a", capacity={"bandwidth": "1G"}),
                request("b", capacity={"bandwidth": "1G"}),
                constraints=[distinct("gpu.example.com/link")],
            ),
        ),
        "does not fit on node-a: no 2 devices have different values of gpu.example.com/link",
        "remove the constraint on gpu.example.com/link from claim default/claim",
    ),
    Case(
        "requests that compete for one device",
        (gpus("gpu-0", attributes={"model": "h100"}),),
        (claim("claim", request("a"), request("b", where=MODEL)),),
        "does not fit on node-a: requests a and b fit separately, but not together",
        "remove request a from claim default/claim",
    ),
    Case(
        "claims that compete for one device",
        (gpus("gpu-0"),),
        (claim("first", request()), claim("second", request())),
        "does not fit on node-a: claims default/first and default/second fit separately, but not together",
        "add 1 device like gpu.example.com/pool-a/gpu-0",
    ),
    Case(
        "a pod one claim of which fits nowhere",
        (gpus("gpu-0", "gpu-1", attributes={"model": "a100"}),),
        (claim("first", request()), claim("second", request(where=MODEL))),
        'does not fit on node-a: claim default/second: no device matches device.attributes["gpu.example.com"].model == "h100"',
        'remove the selector device.attributes["gpu.example.com"].model == "h100" from request request of claim default/second',
    ),
    Case(
        "alternatives none of which fits",
        (gpus("gpu-0", attributes={"model": "a100"}, capacity=SHARED, shareable=True),),
        (
            claim(
                "claim",
                first_available(
                    "gpu", alternative("new", where=MODEL), alternative("old", capacity={"memory": "20Gi"})
                ),
            ),
        ),
        "does not fit on node-a: no alternative of request gpu fits, nearest gpu/old: insufficient memory: requested 20Gi, available 15Gi (gpu.example.com/pool-a/gpu-0)",
        "request 15Gi of memory instead of 20Gi in request gpu/old",
        allocated=(holder("one", "gpu-0", consumed="25Gi"),),
    ),
    Case(
        "alternatives of which one lacks many devices and one a little memory",
        (gpus("gpu-0", "gpu-1", "gpu-2", "gpu-3", capacity=SHARED),),
        (
            claim(
                "claim",
                first_available("gpu", alternative("four", count=4), alternative("large", capacity={"memory": "44Gi"})),
            ),
        ),
        "does not fit on node-a: no alternative of request gpu fits, nearest gpu/large: insufficient memory: requested 44Gi, the largest device has 40Gi (gpu.example.com/pool-a/gpu-0)",
        "request 40Gi of memory instead of 44Gi in request gpu/large",
        allocated=(holder("one", "gpu-0", "gpu-1", "gpu-2"),),
    ),
    Case(
        "all devices, one of which is in use",
        (gpus("a", "b"),),
        wants(everything=True),
        "does not fit on node-a: not all 2 devices: 1 in use",
        "request 1 device instead of all in request request",
        allocated=(holder("one", "a"),),
    ),
    Case(
        "a pool that is being published",
        (resource_slice("one", device("a"), of=2),),
        wants(),
        "does not fit on node-a: pool gpu.example.com/pool-a is being updated: only 1 of 2 slices is published",
        "wait until all slices of pool gpu.example.com/pool-a are published",
    ),
    Case(
        "a pool that contradicts itself",
        (resource_slice("one", device("a"), device("a")),),
        wants(),
        "does not fit on node-a: pool gpu.example.com/pool-a is invalid: two devices have the same name",
    ),
    Case(
        "a pool whose newest generation is being published",
        (
            resource_slice("old", device("a"), of=2),
            resource_slice("new", device("a"), of=2, generation=2, node_name="node-b"),
        ),
        wants(),
        "does not fit on node-a: pool gpu.example.com/pool-a is being updated: of its newest generation there is only a part",
    ),
    Case(
        "a class that does not exist",
        (gpus("a"),),
        wants(device_class="gpus"),
        "cannot be allocated: device class gpus does not exist",
        "use class gpu instead of gpus in request request",
    ),
    Case(
        "a selector that fails on a device",
        (resource_slice("gpus", device("a"), device("b", attributes={"model": "h100"})),),
        wants(where=MODEL),
        "cannot be allocated: request selector #0: CEL runtime error: no such key: model; if it may be missing, read it with .?model.orValue(…) or check has(…) first (device gpu.example.com/pool-a/a)",
        'change the selector of request request to "model" in device.attributes["gpu.example.com"] && device.attributes["gpu.example.com"].model == "h100"',
    ),
    Case(
        "a class whose selector fails on a device",
        (resource_slice("gpus", device("a"), device("b", attributes={"model": "h100"})),),
        wants(),
        "cannot be allocated: class gpu: class selector #0: CEL runtime error: no such key: model; if it may be missing, read it with .?model.orValue(…) or check has(…) first (device gpu.example.com/pool-a/a)",
        'change the selector of class gpu to "model" in device.attributes["gpu.example.com"] && device.attributes["gpu.example.com"].model == "h100"',
        classes=(device_class("gpu", MODEL),),
    ),
    Case(
        "capacity with the feature off",
        (gpus("gpu-0", capacity=SHARED, shareable=True),),
        wants(capacity={"memory": "1Gi"}),
        "cannot be allocated: requests capacity, but the feature DRAConsumableCapacity is off",
        "enable the feature gate DRAConsumableCapacity",
        features=Features(consumable_capacity=False),
    ),
    Case(
        "partitions with the feature off",
        (
            resource_slice("counters", of=2, counters={"card": {"memory": "10Gi"}}),
            resource_slice("parts", device("half-0", draws={"card": {"memory": "5Gi"}}), of=2),
        ),
        wants(),
        "does not fit on node-a: devices consume counters, but the feature DRAPartitionableDevices is off",
        "enable the feature gate DRAPartitionableDevices",
        features=Features(partitionable_devices=False),
    ),
    Case(
        "more devices than a claim can hold",
        (gpus(*(f"gpu-{at}" for at in range(40))),),
        wants(count=40),
        "cannot be allocated: requests at least 40 devices; a claim can have 32",
        "request 32 devices instead of 40 in request request",
    ),
    Case(
        "alternatives, one with more devices than a claim can hold",
        (gpus("gpu-0"),),
        (claim("claim", first_available("gpu", alternative("many", count=40), alternative("few", count=2))),),
        "does not fit on node-a: no alternative of request gpu fits, nearest gpu/few: 1 device, 2 requested",
        "request 1 device instead of 2 in request gpu/few",
    ),
    Case(
        "nodes with different stories",
        (
            resource_slice("a", device("gpu-0"), pool="a"),
            resource_slice("b", device("gpu-0", taints=[taint("broken")]), pool="b", node_name="node-b"),
            resource_slice("c", device("gpu-0", taints=[taint("broken")]), pool="c", node_name="node-c"),
        ),
        wants(count=1),
        "does not fit on any of 3 nodes: 2 nodes: untolerated taint broken:NoSchedule; 1 node: the only device is in use",
        "tolerate the taint broken:NoSchedule in request request",
        allocated=(claim("other", allocation=allocation(held("gpu-0", pool="a"))),),
        nodes=(build.node("node-a"), build.node("node-b"), build.node("node-c")),
    ),
    Case(
        "few nodes that come near, and many that have nothing of the kind",
        (
            resource_slice("a", device("gpu-0", capacity=SHARED), pool="a"),
            resource_slice("b", device("nic-0"), driver="nic.example.com", pool="b", node_name="node-b"),
            resource_slice("c", device("nic-0"), driver="nic.example.com", pool="c", node_name="node-c"),
        ),
        wants(capacity={"memory": "44Gi"}),
        "does not fit on any of 3 nodes: 1 node: insufficient memory: requested 44Gi, the largest device has 40Gi; 2 nodes: no device of class gpu",
        "request 40Gi of memory instead of 44Gi in request request",
        classes=(device_class("gpu", 'device.driver == "gpu.example.com"'),),
        nodes=(build.node("node-a"), build.node("node-b"), build.node("node-c")),
    ),
    Case("no nodes", (gpus("gpu-0"),), wants(), "does not fit: there are no nodes", nodes=()),
]
