"""Nodes with equal keys get the same answer; nodes whose answers may differ have different keys."""

from __future__ import annotations

from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dralloc.devices.allocator.allocate import AllocationProblem, allocate
from dralloc.devices.allocator.diagnosis.diagnoser import Diagnoser
from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.node_equivalence import DeviceIdentity, NodeEquivalence
from dralloc.devices.allocator.outcome import Allocated
from dralloc.devices.allocator.requests import compile_demand
from dralloc.devices.node_selectors import NodeFacts
from dralloc.devices.snapshot import Snapshot
from dralloc.kube import device_parts as parts
from dralloc.kube.resource_v1 import Device, DeviceTaintRule, ResourceClaim, ResourceSlice
from dralloc.testing import builders as build
from dralloc.testing.builders import claim, device, request, resource_slice
from tests.support.random_worlds import random_world

UUID = 'device.attributes["gpu.example.com"].?uuid.orValue("") == "1"'


def keys(
    first: Device,
    second: Device,
    *,
    asks: ResourceClaim | None = None,
    allocated: tuple[ResourceClaim, ...] = (),
    rules: tuple[DeviceTaintRule, ...] = (),
    placed: dict[str, object] | None = None,
) -> tuple[Hashable, Hashable]:
    """The keys of two nodes with one device each."""
    slices = [
        resource_slice(name, found, pool=name, **{"node_name": name, **(placed or {})})  # type: ignore[arg-type]
        for name, found in (("a", first), ("b", second))
    ]
    demand = compile_demand([asks or claim("claim", request())], {"gpu": build.device_class()}, Features())
    equivalence = NodeEquivalence(demand, Snapshot.of(slices=slices, claims=allocated, rules=rules))
    return equivalence.key(build.node("a")), equivalence.key(build.node("b"))


def share(pool: str, amount: str) -> ResourceClaim:
    return claim(
        f"of-{pool}", allocation=build.allocation(build.held("d", pool=pool, share_id="s", consumed={"m": amount}))
    )


def test_names_and_serial_numbers_do_not_distinguish_nodes() -> None:
    one, other = keys(device("d", attributes={"uuid": "1"}), device("e", attributes={"uuid": "2"}))
    assert one == other


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(device("d"), device("d", shareable=True), id="shareable"),
        pytest.param(device("d", capacity={"m": "1"}), device("d", capacity={"m": "2"}), id="capacity"),
        pytest.param(device("d"), device("d", taints=[build.taint("t")]), id="taints"),
        pytest.param(device("d"), device("d", binding_conditions=("c",)), id="binding conditions"),
        pytest.param(
            device("d", attributes={"v": parts.version("1.0.0")}),
            device("d", attributes={"v": parts.version("nonsense")}),
            id="an attribute that makes no sense",
        ),
    ],
)
def test_what_a_request_can_read_distinguishes_nodes(one: Device, other: Device) -> None:
    first, second = keys(one, other)
    assert first != second


def test_an_attribute_that_a_selector_reads_distinguishes_nodes() -> None:
    first, second = keys(
        device("d", attributes={"uuid": "1"}),
        device("d", attributes={"uuid": "2"}),
        asks=claim("claim", request(where=UUID)),
    )
    assert first != second


def test_an_attribute_of_a_constraint_distinguishes_nodes() -> None:
    first, second = keys(
        device("d", attributes={"uuid": "1"}),
        device("d", attributes={"uuid": "2"}),
        asks=claim("claim", request(), constraints=[build.match("gpu.example.com/uuid")]),
    )
    assert first != second


def test_usage_distinguishes_nodes() -> None:
    shared = device("d", capacity={"m": "4"}, shareable=True)
    first, second = keys(shared, shared, allocated=(share("a", "1"), share("b", "1")))
    assert first == second
    first, second = keys(shared, shared, allocated=(share("a", "1"), share("b", "2")))
    assert first != second
    first, second = keys(shared, shared, allocated=(share("a", "1"),))
    assert first != second


def test_a_taint_rule_for_one_pool_distinguishes_nodes() -> None:
    first, second = keys(device("d"), device("d"), rules=(build.taint_rule("r", build.taint("t"), pool="a"),))
    assert first != second


def test_a_pool_that_several_nodes_see_is_equivalent_only_to_itself() -> None:
    first, second = keys(device("d"), device("d"), placed={"all_nodes": True})
    assert first == second


# --- Random problems --------------------------------------------------------------------------------------------------------


def elsewhere(resource_slice: ResourceSlice) -> ResourceSlice:
    """The same devices with other names, on another node."""
    spec = resource_slice.spec
    devices = tuple(
        replace(each, name=f"x-{each.name}", node_name="node-b" if each.node_name == "node-a" else each.node_name)
        for each in spec.devices or ()
    )
    return replace(
        resource_slice,
        metadata=replace(resource_slice.metadata, name=f"x-{resource_slice.metadata.name}"),
        spec=replace(
            spec,
            node_name="node-b" if spec.node_name == "node-a" else spec.node_name,
            pool=replace(spec.pool, name=f"x-{spec.pool.name}"),
            devices=devices or None,
        ),
    )


def used_elsewhere(claim: ResourceClaim) -> ResourceClaim:
    allocation = claim.status.allocation
    assert allocation is not None
    results = tuple(
        replace(result, pool=f"x-{result.pool}", device=f"x-{result.device}") for result in allocation.devices.results
    )
    return replace(
        claim,
        metadata=replace(claim.metadata, name=f"x-{claim.metadata.name}"),
        status=replace(
            claim.status, allocation=replace(allocation, devices=replace(allocation.devices, results=results))
        ),
    )


@pytest.mark.slow
@pytest.mark.fuzz
@given(seed=st.integers(0, 2**32), keeps_usage=st.booleans())
def test_equivalent_nodes_get_the_same_answer(seed: int, keeps_usage: bool) -> None:
    world = random_world(seed)
    other = NodeFacts("node-b", world.node.labels)
    snapshot = Snapshot.of(
        slices=[*world.slices, *map(elsewhere, world.slices)],
        claims=[*world.allocated, *(map(used_elsewhere, world.allocated) if keeps_usage else ())],
        rules=world.rules,
        nodes=[world.node, other],
    )
    demand = compile_demand(world.claims, world.classes, world.features)
    equivalence = NodeEquivalence(demand, snapshot)
    outcomes = [allocate(AllocationProblem(demand, node, snapshot)) for node in (world.node, other)]
    if equivalence.key(world.node) == equivalence.key(other):
        assert type(outcomes[0]) is type(outcomes[1])
        diagnoser = Diagnoser(demand, snapshot)
        is_ready = not any(map(diagnoser.survey.unready_pools, (world.node, other)))
        if is_ready and not isinstance(outcomes[0], Allocated):
            own = [diagnoser.reason(node, found).key for node, found in zip((world.node, other), outcomes, strict=True)]
            assert own[0] == own[1]


# --- Identity ---------------------------------------------------------------------------------------------------------


def test_device_identity_changes_with_what_the_node_sees_and_with_nothing_else() -> None:
    demand = compile_demand([claim("claim", request())], {"gpu": build.device_class()}, Features())
    identity, node = DeviceIdentity(demand), build.node("a")
    here = resource_slice("a", device("d"), node_name="a", pool="a")
    before = Snapshot.of(slices=[here, resource_slice("b", device("e"), node_name="b", pool="b")])
    elsewhere = before.with_claim(claim("other", allocation=build.allocation(build.held("e", pool="b"))))
    assert identity.key(node, elsewhere) == identity.key(node, before)
    used = before.with_claim(claim("own", allocation=build.allocation(build.held("d", pool="a"))))
    assert identity.key(node, used) != identity.key(node, before)


def test_nodes_that_reach_the_same_devices_have_one_device_identity() -> None:
    demand = compile_demand([claim("claim", request())], {"gpu": build.device_class()}, Features())
    fabric = Snapshot.of(slices=[resource_slice("fabric", device("port"), all_nodes=True)])
    identity = DeviceIdentity(demand)
    assert identity.key(build.node("a"), fabric) == identity.key(build.node("b"), fabric)
    assert identity.visible(build.node("a"), fabric).pools == tuple(fabric.pools)
