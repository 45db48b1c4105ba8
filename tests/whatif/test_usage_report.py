"""Who holds how much of which device, what is free, and what would still fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.allocator.features import Features
from dralloc.api.device_parts import capacity
from dralloc.api.resource_v1 import Device, ResourceClaim, ResourceSlice
from dralloc.primitives.quantity import Quantity
from dralloc.snapshot.cluster import Snapshot
from dralloc.testing import builders as build
from dralloc.testing.builders import allocation, claim, device, held, resource_slice
from dralloc.whatif.usage_report import DeviceState, PoolReport, usage_report
from tests.support.random_worlds import random_world

STEPPED = {"memory": capacity("40Gi", default="1Gi", minimum="2Gi", step="4Gi")}


def report(
    slices: list[ResourceSlice], *claims: ResourceClaim, features: Features | None = None
) -> tuple[PoolReport, ...]:
    snapshot = Snapshot.of(slices=slices, claims=claims, nodes=[build.node()])
    return usage_report(snapshot, features or Features())


def share(name: str, device: str, memory: str) -> ResourceClaim:
    return claim(name, allocation=allocation(held(device, share_id=f"s-{name}", consumed={"memory": memory})))


def test_shares_add_up_and_the_rest_is_rounded_to_the_policy() -> None:
    gpu = device("gpu-0", capacity=STEPPED, shareable=True)
    [pool] = report([resource_slice("s", gpu)], share("a", "gpu-0", "10Gi"), share("b", "gpu-0", "6Gi"))
    [found] = pool.devices
    [memory] = found.capacities
    assert found.state is DeviceState.SHARED
    assert [str(each) for each in (memory.value, memory.used, memory.free, memory.largest)] == [
        "40Gi",
        "16Gi",
        "24Gi",
        "22Gi",
    ]
    assert [(str(each.claim_id), str(each.consumed["memory"])) for each in found.holdings] == [
        ("default/a", "10Gi"),
        ("default/b", "6Gi"),
    ]


@pytest.mark.parametrize(
    ("gpu", "claims", "want"),
    [
        pytest.param(device("d"), (), DeviceState.FREE, id="free"),
        pytest.param(device("d"), (claim("c", allocation=allocation(held("d"))),), DeviceState.IN_USE, id="dedicated"),
        pytest.param(
            device("d", capacity={"memory": "4Gi"}, shareable=True),
            (share("a", "d", "4Gi"),),
            DeviceState.FULL,
            id="nothing left",
        ),
        pytest.param(
            device("d", capacity=STEPPED, shareable=True),
            (share("a", "d", "39Gi"),),
            DeviceState.FULL,
            id="less left than the least share",
        ),
        pytest.param(device("d", shareable=True), (share("a", "d", "0"),), DeviceState.SHARED, id="shared without end"),
        pytest.param(
            device("d"),
            (claim("c", allocation=allocation(held("d", admin=True))),),
            DeviceState.FREE,
            id="admin access takes nothing",
        ),
    ],
)
def test_the_state_of_a_device(gpu: Device, claims: tuple[ResourceClaim, ...], want: DeviceState) -> None:
    [pool] = report([resource_slice("s", gpu)], *claims)
    assert pool.devices[0].state is want
    assert len(pool.devices[0].holdings) == len(claims)


def test_a_shared_device_is_in_use_where_sharing_is_off() -> None:
    gpu = device("d", capacity={"memory": "4Gi"}, shareable=True)
    [pool] = report([resource_slice("s", gpu)], share("a", "d", "1Gi"), features=Features(consumable_capacity=False))
    assert pool.devices[0].state is DeviceState.IN_USE
    assert pool.devices[0].capacities[0].largest is None


def test_counters_show_what_devices_in_use_leave() -> None:
    slices = [
        resource_slice("counters", of=2, counters={"card": {"memory": "10Gi"}}),
        resource_slice(
            "parts",
            device("a", draws={"card": {"memory": "4Gi"}}),
            device("b", draws={"card": {"memory": "4Gi"}}),
            of=2,
        ),
    ]
    [pool] = report(slices, claim("c", allocation=allocation(held("a"))))
    assert [(each.counter_id, str(each.value), str(each.left)) for each in pool.counters] == [
        (("card", "memory"), "10Gi", "6Gi")
    ]


def test_pools_come_by_node_and_those_of_no_single_node_first() -> None:
    slices = [
        resource_slice("b", device("x"), pool="b", node_name="node-b"),
        resource_slice("a", device("x"), pool="a"),
        resource_slice("net", device("x"), pool="net", all_nodes=True),
    ]
    assert [(pool.node, pool.pool_id.pool) for pool in report(slices)] == [
        ("", "net"),
        ("node-a", "a"),
        ("node-b", "b"),
    ]


def test_pools_that_cannot_be_used_say_why() -> None:
    [pool] = report([resource_slice("one", device("x"), of=2)])
    assert pool.fault.startswith("is being updated")
    [pool] = report([resource_slice("one", device("x"), device("x"))])
    assert pool.fault == "is invalid: two devices have the same name"
    [pool] = report([resource_slice("one", device("x"), node_selector=build.node_selector(zone="nowhere"))])
    assert pool.fault == "is for no node that is known"


def test_devices_that_claims_hold_and_no_slice_has_are_not_forgotten() -> None:
    [pool] = report([], claim("leftover", allocation=allocation(held("gone"))))
    assert [(each.device_id.device, each.state) for each in pool.devices] == [("gone", DeviceState.GONE)]


def test_taints_of_rules_are_shown() -> None:
    snapshot = Snapshot.of(
        slices=[resource_slice("s", device("x", taints=[build.taint("own")]))],
        rules=[build.taint_rule("r", build.taint("ruled"), device="x")],
    )
    [pool] = usage_report(snapshot, Features())
    assert [taint.key for taint in pool.devices[0].taints] == ["own", "ruled"]


@pytest.mark.slow
@pytest.mark.fuzz
@given(seed=st.integers(0, 2**32))
def test_what_is_used_and_what_is_free_is_what_there_is(seed: int) -> None:
    world = random_world(seed)
    snapshot = Snapshot.of(slices=world.slices, claims=world.allocated, rules=world.rules, nodes=[world.node])
    for pool in usage_report(snapshot, world.features):
        for found in pool.devices:
            for each in found.capacities:
                assert each.used + each.free == each.value
                assert each.largest is None or Quantity.ZERO <= each.largest <= each.free
