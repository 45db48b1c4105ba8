"""Explanations: the line that people read first, and the change that would help, for small worlds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from dralloc.allocator.explanation.report import Explanation, Question, Verdict, explain
from dralloc.allocator.explanation.text import headline, lines
from dralloc.allocator.features import Features
from dralloc.api.resource_v1 import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dralloc.snapshot.cluster import Snapshot
from dralloc.snapshot.node_selectors import Node
from dralloc.testing import builders as build
from dralloc.testing.builders import (
    allocation,
    alternative,
    capacity,
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
    # What follows the subject in the first line, and the nearest miss.
    want: str
    miss: str = ""
    allocated: tuple[ResourceClaim, ...] = ()
    rules: tuple[DeviceTaintRule, ...] = ()
    classes: tuple[DeviceClass, ...] = (device_class(),)
    features: Features = field(default_factory=Features)
    nodes: tuple[Node, ...] = (build.node(),)

    @property
    def question(self) -> Question:
        return Question(
            claims=self.claims,
            classes={found.metadata.name: found for found in self.classes},
            features=self.features,
            snapshot=Snapshot.of(slices=self.slices, claims=self.allocated, rules=self.rules, nodes=self.nodes),
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
        "does not fit on node-a: 2 devices, 3 asked",
        "ask for 2 devices instead of 3 in request request",
    ),
    Case(
        "no device of the class",
        (gpus("gpu-0"),),
        wants(),
        "",
        classes=(device_class("gpu", 'device.driver == "nic.example.com"'), device_class("any")),
    ),
    Case("no device that the selector takes", (gpus("gpu-0", attributes={"model": "a100"}),), wants(where=MODEL), ""),
    Case("the only device in use", (gpus("gpu-0"),), wants(), "", allocated=(holder("other", "gpu-0"),)),
    Case(
        "all devices in use",
        (gpus("gpu-0", "gpu-1"),),
        wants(),
        "",
        allocated=(holder("one", "gpu-0"), holder("two", "gpu-1")),
    ),
    Case(
        "one device too few is free",
        (gpus("gpu-0", "gpu-1", "gpu-2"),),
        wants(count=2),
        "",
        allocated=(holder("one", "gpu-0", "gpu-1"),),
    ),
    Case(
        "less capacity left than asked for",
        (gpus("gpu-0", "gpu-1", capacity=SHARED, shareable=True),),
        wants(capacity={"memory": "30Gi"}),
        "",
        allocated=(holder("one", "gpu-0", consumed="20Gi"), holder("two", "gpu-1", consumed="12Gi")),
    ),
    Case(
        "what is asked for is rounded up",
        (gpus("gpu-0", capacity=STEPPED, shareable=True),),
        wants(capacity={"memory": "7Gi"}),
        "",
        allocated=(holder("one", "gpu-0", consumed="33Gi"),),
    ),
    Case(
        "nothing asked for takes everything",
        (gpus("gpu-0", capacity=SHARED, shareable=True),),
        wants(),
        "",
        allocated=(holder("one", "gpu-0", consumed="16Gi"),),
    ),
    Case(
        "more than any device has",
        (gpus("gpu-0", "gpu-1", capacity=SHARED, shareable=True),),
        wants(count=2, capacity={"memory": "80Gi"}),
        "",
    ),
    Case(
        "more than the policy gives out",
        (gpus("gpu-0", capacity=STEPPED, shareable=True),),
        wants(capacity={"memory": "36Gi"}),
        "",
    ),
    Case(
        "a capacity under a name that devices do not have",
        (gpus("gpu-0", capacity=SHARED, shareable=True),),
        wants(capacity={"gpu.example.com/memory": "8Gi"}),
        "",
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
        "",
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
        "",
        allocated=(holder("one", "half-0"), holder("two", "half-1")),
    ),
    Case("a taint of the device's own", (gpus("gpu-0", taints=[taint("broken", "fan")]),), wants(), ""),
    Case("a taint by a rule", (gpus("gpu-0"),), wants(), "", rules=(taint_rule("rule", taint("drain")),)),
    Case(
        "most are in use, one is tainted",
        (resource_slice("gpus", device("a"), device("b"), device("c", taints=[taint("broken")])),),
        wants(),
        "",
        allocated=(holder("one", "a", "b"),),
    ),
    Case(
        "an attribute that a constraint asks for",
        (gpus("gpu-0", "gpu-1"),),
        (claim("claim", request(count=2), constraints=[match(NUMA)]),),
        "",
    ),
    Case(
        "devices that do not agree",
        (resource_slice("gpus", *(device(f"gpu-{at}", attributes={"numa": at // 2}) for at in range(6))),),
        (claim("claim", request(count=3), constraints=[match(NUMA)]),),
        "",
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
        "",
    ),
    Case(
        "requests that compete for one device",
        (gpus("gpu-0", attributes={"model": "h100"}),),
        (claim("claim", request("a"), request("b", where=MODEL)),),
        "",
    ),
    Case(
        "claims that compete for one device",
        (gpus("gpu-0"),),
        (claim("first", request()), claim("second", request())),
        "",
    ),
    Case(
        "a pod one claim of which fits nowhere",
        (gpus("gpu-0", "gpu-1", attributes={"model": "a100"}),),
        (claim("first", request()), claim("second", request(where=MODEL))),
        "",
    ),
    Case(
        "alternatives none of which fits",
        (gpus("gpu-0", attributes={"model": "a100"}, capacity=SHARED, shareable=True),),
        (
            claim(
                "claim",
                first_available("gpu", alternative("new", where=MODEL), alternative("old", capacity={"memory": "20Gi"})),
            ),
        ),
        "",
        allocated=(holder("one", "gpu-0", consumed="25Gi"),),
    ),
    Case("all devices, one of which is in use", (gpus("a", "b"),), wants(everything=True), "", allocated=(holder("one", "a"),)),
    Case("a pool that is being published", (resource_slice("one", device("a"), of=2),), wants(), ""),
    Case("a pool that contradicts itself", (resource_slice("one", device("a"), device("a")),), wants(), ""),
    Case(
        "a pool whose newest generation is being published",
        (
            resource_slice("old", device("a"), of=2),
            resource_slice("new", device("a"), of=2, generation=2, node_name="node-b"),
        ),
        wants(),
        "",
    ),
    Case("a class that does not exist", (gpus("a"),), wants(device_class="gpus"), ""),
    Case(
        "a selector that fails on a device",
        (resource_slice("gpus", device("a"), device("b", attributes={"model": "h100"})),),
        wants(where=MODEL),
        "",
    ),
    Case(
        "a class whose selector fails on a device",
        (resource_slice("gpus", device("a"), device("b", attributes={"model": "h100"})),),
        wants(),
        "",
        classes=(device_class("gpu", MODEL),),
    ),
    Case(
        "capacity with the feature off",
        (gpus("gpu-0", capacity=SHARED, shareable=True),),
        wants(capacity={"memory": "1Gi"}),
        "",
        features=Features(consumable_capacity=False),
    ),
    Case(
        "partitions with the feature off",
        (
            resource_slice("counters", of=2, counters={"card": {"memory": "10Gi"}}),
            resource_slice("parts", device("half-0", draws={"card": {"memory": "5Gi"}}), of=2),
        ),
        wants(),
        "",
        features=Features(partitionable_devices=False),
    ),
    Case("more devices than a claim can hold", (gpus(*(f"gpu-{at}" for at in range(40))),), wants(count=40), ""),
    Case(
        "alternatives, one with more devices than a claim can hold",
        (gpus("gpu-0"),),
        (claim("claim", first_available("gpu", alternative("many", count=40), alternative("few", count=2))),),
        "",
    ),
    Case(
        "nodes with different stories",
        (
            resource_slice("a", device("gpu-0"), pool="a"),
            resource_slice("b", device("gpu-0", taints=[taint("broken")]), pool="b", node_name="node-b"),
            resource_slice("c", device("gpu-0", taints=[taint("broken")]), pool="c", node_name="node-c"),
        ),
        wants(count=1),
        "",
        allocated=(claim("other", allocation=allocation(held("gpu-0", pool="a"))),),
        nodes=(build.node("node-a"), build.node("node-b"), build.node("node-c")),
    ),
    Case("no nodes", (gpus("gpu-0"),), wants(), "", nodes=()),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_first_line_says_why(case: Case) -> None:
    explanation = explain(case.question)
    assert headline(explanation, "it") == f"it {case.want}"


def show() -> None:
    for case in CASES:
        e = explain(case.question)
        print(case.id); print("   ", headline(e,"it")); print("   ", e.misses[0].change.text if e.misses else "-")
