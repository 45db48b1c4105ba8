"""The devices of a cluster in a few numbers: states, hardware, and what no typical request can use."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.answers.device_report import DeviceState
from dralloc.answers.usage_report import usage_report
from dralloc.answers.usage_summary import UsageSummarizer, UsageSummary
from dralloc.devices.allocator.features import Features
from dralloc.devices.identity import product_of
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.device_parts import capacity
from dralloc.kube.resource_v1 import ResourceClaim, ResourceSlice
from dralloc.testing import builders as build
from dralloc.testing.builders import allocation, claim, device, device_class, held, request, resource_slice
from tests.support.random_worlds import random_world

CLASSES = {
    "any": device_class("any"),
    "half": device_class("half", ('device.attributes["gpu.example.com"].part == "half"',)),
}


def summary(slices: list[ResourceSlice], *claims: ResourceClaim, node_group: str | None = None) -> UsageSummary:
    nodes = [build.node("node-a", zone="x"), build.node("node-b", zone="y")]
    snapshot = Snapshot.of(slices=slices, claims=claims, nodes=nodes)
    labels = {node.name: node.labels for node in nodes}
    reports = usage_report(snapshot, Features())
    return UsageSummarizer(Features(), CLASSES, claims).summary(reports, labels, node_group)


def amounts(found: UsageSummary, name: str = "memory") -> list[str]:
    """Total, used, available and unusable."""
    [group] = found.drivers
    [amount] = [each for each in group.hardware if each.name == name]
    parts = (amount.value, amount.used, amount.available, group.unusable[name])
    return [str(amount.quantity(part)) for part in parts]


def share(name: str, device: str, memory: str) -> ResourceClaim:
    asked = request("r", device_class="any", capacity={"memory": memory})
    return claim(name, asked, allocation=allocation(held(device, share_id=f"s-{name}", consumed={"memory": memory})))


def shareable(*names: str, **policy: Any) -> list[ResourceSlice]:
    memory = capacity("80Gi", **policy)
    return [resource_slice("s", *(device(name, capacity={"memory": memory}, shareable=True) for name in names))]


def test_what_is_less_than_every_typical_request_is_unusable() -> None:
    found = summary(shareable("x", "y"), share("a", "x", "30Gi"), share("b", "x", "30Gi"))
    # 20Gi of the first card, and 20Gi beside two requests on the second.
    assert amounts(found) == ["160Gi", "60Gi", "100Gi", "40Gi"]
    assert found.typical == 1


def test_the_request_that_uses_a_device_best_counts() -> None:
    found = summary(shareable("x", "y"), share("a", "x", "30Gi"), share("b", "x", "10Gi"))
    assert amounts(found) == ["160Gi", "40Gi", "120Gi", "0"]


def test_without_claims_the_default_of_the_policy_is_typical() -> None:
    assert amounts(summary(shareable("x"))) == ["80Gi", "0", "80Gi", "0"]
    assert amounts(summary(shareable("x", default="30Gi", minimum="30Gi"))) == ["80Gi", "0", "80Gi", "20Gi"]


@pytest.mark.parametrize(("count", "unusable"), [(2, "0"), (3, "80Gi")])
def test_a_request_for_several_devices_needs_them_on_one_node(count: int, unusable: str) -> None:
    slices = [resource_slice("s", *(device(name, capacity={"memory": "40Gi"}) for name in ("x", "y")))]
    assert amounts(summary(slices, claim("c", request("r", device_class="any", count=count))))[3] == unusable


@pytest.mark.parametrize(("wanted", "unusable"), [("half", "0"), ("whole", "20Gi")])
def test_partitions_that_no_typical_request_wants_are_unusable(wanted: str, unusable: str) -> None:
    def part(name: str, kind: str, memory: str) -> object:
        return device(name, attributes={"part": kind}, capacity={"memory": memory}, draws={"card": {"memory": memory}})

    parts = [part("w", "whole", "40Gi"), part("h0", "half", "20Gi"), part("h1", "half", "20Gi")]
    slices = [
        resource_slice("c", of=2, counters={"card": {"memory": "40Gi"}}),
        resource_slice("p", *parts, of=2),  # type: ignore[arg-type]
    ]
    where = (f'device.attributes["gpu.example.com"].part == "{wanted}"',)
    taken = claim("c", request("r", device_class="any", where=where), allocation=allocation(held("h0")))
    found = summary(slices, taken)
    assert amounts(found) == ["40Gi", "20Gi", "20Gi", unusable]
    [_, half] = found.classes
    assert (half.name, half.counts.total, half.counts.states) == ("half", 2, {DeviceState.FULL: 1, DeviceState.FREE: 1})


def test_groups_of_nodes_by_label() -> None:
    slices = [
        *(resource_slice(f"s-{name}", device("d"), pool=name, node_name=name) for name in ("node-a", "node-b")),
        resource_slice("net", device("d"), pool="net", all_nodes=True),
    ]
    found = summary(slices, node_group="zone")
    assert [(each.name, each.counts.total) for each in found.groups] == [("(several nodes)", 1), ("x", 1), ("y", 1)]
    assert [node.name for node in found.nodes] == ["node-a", "node-b"]


# --- By hardware --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "product"),
    [
        pytest.param({}, "", id="none"),
        pytest.param({"model": "x80"}, "x80", id="model"),
        pytest.param(
            {"model": "x80", "gpu.example.com/productName": "X 80 SXM"}, "X 80 SXM", id="the better one, qualified"
        ),
        pytest.param({"productName": ""}, "", id="empty"),
        pytest.param({"model": 80}, "", id="a number is no name"),
    ],
)
def test_the_product_of_a_device(attributes: dict[str, Any], product: str) -> None:
    assert product_of(device("x", attributes=attributes)) == product


def test_totals_are_by_driver_and_product() -> None:
    memory = {"memory": capacity("80Gi")}
    devices = [
        device(name, capacity=memory, shareable=True, attributes={"model": name[0]}) for name in ("a-0", "a-1", "b-0")
    ]
    found = summary([resource_slice("s", *devices)], share("one", "a-0", "80Gi"), share("two", "b-0", "30Gi"))
    told = {
        group.name: (
            group.counts.total,
            group.counts.states[DeviceState.FULL],
            [str(each.quantity(each.used)) for each in group.hardware],
        )
        for group in found.hardware
    }
    assert told == {"a": (2, 1, ["80Gi"]), "b": (1, 0, ["30Gi"])}
    assert [str(group.counts.largest["memory"]) for group in found.hardware] == ["80Gi", "50Gi"]


@pytest.mark.slow
@given(seed=st.integers(0, 2**32))
def test_the_products_of_a_driver_add_up_to_the_driver(seed: int) -> None:
    world = random_world(seed)
    snapshot = Snapshot.of(slices=world.slices, claims=world.allocated, rules=world.rules, nodes=[world.node])
    reports = usage_report(snapshot, world.features)
    found = UsageSummarizer(world.features, CLASSES, world.allocated).summary(reports, {})
    for driver in found.drivers:
        parts = [group for group in found.hardware if group.driver == driver.name]
        assert sum(group.counts.total for group in parts) == driver.counts.total
        for amount in driver.hardware:
            mine = [each for group in parts for each in group.hardware if each.name == amount.name]
            for member in ("value", "used", "available"):
                assert sum(getattr(each, member) for each in mine) == getattr(amount, member)
