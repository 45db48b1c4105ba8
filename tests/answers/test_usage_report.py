"""Who holds how much of which device, what is free, and what would still fit."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import structs

from dralloc.answers.cluster_objects import ClusterObjects
from dralloc.answers.device_report import DeviceReport, DeviceState, PoolReport, hardware_by_driver, portion
from dralloc.answers.engine import Engine
from dralloc.answers.placements import PodPlacement
from dralloc.answers.usage_report import closed_nodes, usage_report
from dralloc.devices.allocator.allocate import AllocationProblem, allocate
from dralloc.devices.allocator.availability import BlockCause
from dralloc.devices.allocator.features import Features
from dralloc.devices.allocator.outcome import Allocated
from dralloc.devices.allocator.requests import compile_demand
from dralloc.devices.snapshot import Snapshot
from dralloc.kube.core_v1 import Node, NodeSpec, Taint
from dralloc.kube.device_parts import attribute, capacity
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.resource_v1 import Device, DeviceCapacity, DeviceRequest, ResourceClaim, ResourceSlice
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.quantity import Quantity
from dralloc.testing import builders as build
from dralloc.testing.builders import allocation, claim, device, held, resource_slice
from tests.support.plain_pools import World
from tests.support.random_capacity import with_capacity_features
from tests.support.random_worlds import random_world

STEPPED = {"memory": capacity("40Gi", default="1Gi", minimum="2Gi", step="4Gi")}


def report(
    slices: list[ResourceSlice], *claims: ResourceClaim, features: Features | None = None
) -> tuple[PoolReport, ...]:
    snapshot = Snapshot.of(slices=slices, claims=claims, nodes=[build.node()])
    return usage_report(snapshot, features or Features())


@pytest.mark.parametrize(
    ("memory", "used", "state"),
    [
        pytest.param(capacity("80Gi"), "80Gi", DeviceState.FULL, id="all consumed"),
        pytest.param(capacity("80Gi"), "81919Mi", DeviceState.SHARED, id="nearly all consumed"),
        pytest.param(
            capacity("80Gi", default="1Gi", minimum="1Gi"),
            "81000Mi",
            DeviceState.FULL,
            id="the rest is below the minimum",
        ),
        pytest.param(
            capacity("80Gi", default="1Gi", minimum="0"), "80Gi", DeviceState.SHARED, id="the policy names zero"
        ),
        pytest.param(
            capacity("80Gi", default="1Gi", valid=["0", "1Gi"]), "80Gi", DeviceState.SHARED, id="zero is a valid value"
        ),
        pytest.param(capacity("80Gi", default="1Gi"), "80Gi", DeviceState.FULL, id="the policy does not name zero"),
    ],
)
def test_a_shared_device_is_full_only_when_no_share_fits(memory: DeviceCapacity, used: str, state: DeviceState) -> None:
    gpu = device("gpu-0", capacity={"memory": memory}, shareable=True)
    [pool] = report([resource_slice("s", gpu)], share("a", "gpu-0", used))
    assert pool.devices[0].state is state


@given(part=st.integers(0, 2000), whole=st.integers(0, 2000), of=st.integers(2, 100))
def test_all_is_shown_only_for_the_whole(part: int, whole: int, of: int) -> None:
    shown = portion(part, whole, of)
    assert 0 <= shown <= of
    assert (shown == of) == (0 < whole <= part)
    assert (shown == 0) == (part == 0 or whole == 0)


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
        pytest.param(device("d"), (claim("c", allocation=allocation(held("d"))),), DeviceState.FULL, id="dedicated"),
        pytest.param(
            device("d", capacity={"memory": "4Gi"}, shareable=True),
            (share("a", "d", "4Gi"),),
            DeviceState.FULL,
            id="nothing left",
        ),
        pytest.param(
            device("d", capacity={"memory": capacity("4Gi", default="0")}, shareable=True),
            (share("a", "d", "4Gi"),),
            DeviceState.SHARED,
            id="nothing left, and nothing is what a request gets by default",
        ),
        pytest.param(
            device("d", capacity={"memory": capacity("4Gi", default="5Gi", minimum="5Gi")}, shareable=True),
            (),
            DeviceState.BLOCKED,
            id="the policy allows only more than there is",
        ),
        pytest.param(
            device("d", capacity={"memory": capacity("40Gi", default="2Gi", minimum="2Gi")}, shareable=True),
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


def test_a_shared_device_is_full_where_sharing_is_off() -> None:
    gpu = device("d", capacity={"memory": "4Gi"}, shareable=True)
    [pool] = report([resource_slice("s", gpu)], share("a", "d", "1Gi"), features=Features(consumable_capacity=False))
    assert pool.devices[0].state is DeviceState.FULL
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


def cards(*taken: str) -> tuple[PoolReport, ...]:
    """Two cards, each whole or in halves."""
    names = [(card, part) for card in ("x", "y") for part in ("whole", "half-0", "half-1")]
    parts = [
        device(f"{card}-{part}", capacity={"memory": amount}, draws={card: {"memory": amount}})
        for card, part in names
        if (amount := "40Gi" if part == "whole" else "20Gi")
    ]
    sets = {"x": {"memory": "40Gi"}, "y": {"memory": "40Gi"}}
    slices = [resource_slice("counters", of=2, counters=sets), resource_slice("parts", *parts, of=2)]
    return report(slices, *(claim(f"c-{name}", allocation=allocation(held(name))) for name in taken))


def test_partitions_of_a_card_that_is_taken_are_blocked_by_counters() -> None:
    [pool] = cards("x-whole", "y-half-0")
    assert {each.device_id.device: each.state.value for each in pool.devices} == {
        "x-whole": "full",
        "x-half-0": "blocked",
        "x-half-1": "blocked",
        "y-whole": "blocked",
        "y-half-0": "full",
        "y-half-1": "free",
    }
    [_, blocked, *_] = pool.devices
    assert blocked.block == (
        BlockCause.COUNTERS,
        "insufficient counter x/memory: needs 20Gi, available 0",
    )
    assert (str(blocked.capacities[0].free), blocked.capacities[0].largest) == ("0", None)


def test_hardware_never_counts_overlapping_partitions_twice() -> None:
    for taken, used, available in ((), 0, 80), (("x-whole", "y-half-0"), 60, 20):
        [amount] = [each for pool in cards(*taken) for each in pool.hardware]
        told = [str(amount.quantity(nanos)) for nanos in (amount.value, amount.used, amount.available)]
        assert told == ["80Gi", f"{used}Gi" if used else "0", f"{available}Gi"]


def test_counters_that_the_slices_of_two_nodes_share_count_once() -> None:
    slices = [
        resource_slice("counters", of=3, all_nodes=True, counters={"card": {"memory": "10Gi"}}),
        *(
            resource_slice(
                f"parts-{name}", device(f"d-{name}", draws={"card": {"memory": "4Gi"}}), of=3, node_name=name
            )
            for name in ("node-a", "node-b")
        ),
    ]
    snapshot = Snapshot.of(slices=slices, nodes=[build.node("node-a"), build.node("node-b")])
    [amount] = hardware_by_driver(usage_report(snapshot, Features())).values()
    assert (str(amount.quantity(amount.value)), amount.name) == ("10Gi", "memory")


@pytest.mark.parametrize(
    ("slices", "cause", "reason"),
    [
        pytest.param(
            [resource_slice("s", device("x", taints=[build.taint("broken", "fan")]))],
            BlockCause.TAINTS,
            "taint broken=fan:NoSchedule",
            id="taint",
        ),
        pytest.param(
            [resource_slice("s", device("x"), of=2)],
            BlockCause.POOL,
            "the pool is being updated: only 1 of 2 slices is published",
            id="incomplete pool",
        ),
        pytest.param(
            [resource_slice("s", device("x"), device("x"))],
            BlockCause.POOL,
            "the pool is invalid: two devices have the same name",
            id="invalid pool",
        ),
        pytest.param(
            [resource_slice("s", device("x"), node_name="nowhere")],
            BlockCause.NODE,
            "there is no node nowhere",
            id="unknown node",
        ),
        pytest.param(
            [resource_slice("s", device("x", node_name="nowhere"), device("y", node_name="node-a"), per_device=True)],
            BlockCause.POOL,
            "the device is for no node that is known",
            id="unknown node of a device",
        ),
    ],
)
def test_a_blocked_device_says_why(slices: list[ResourceSlice], cause: BlockCause, reason: str) -> None:
    [pool] = report(slices)
    assert pool.devices[0].state is DeviceState.BLOCKED
    assert pool.devices[0].block == (cause, reason)


def test_devices_of_nodes_that_take_no_pods_are_blocked() -> None:
    snapshot = Snapshot.of(slices=[resource_slice("s", device("x"))], nodes=[build.node()])
    [pool] = usage_report(snapshot, Features(), {"node-a": "node is unschedulable"})
    assert pool.devices[0].block == (BlockCause.NODE, "node is unschedulable")


@pytest.mark.slow
@pytest.mark.fuzz
@given(seed=st.integers(0, 2**32))
def test_what_is_called_available_is_given_and_one_more_is_refused(seed: int) -> None:
    world = numbered(random_world(seed))
    features = world.features.of_scheduler()
    snapshot = Snapshot.of(slices=world.slices, claims=world.allocated, rules=world.rules, nodes=[world.node])

    def is_given(found: DeviceReport, asked: dict[str, Quantity] | None = None) -> bool:
        amounts = {name: str(amount) for name, amount in asked.items()} if asked is not None else None
        wanted = claim("wanted", only(found, amounts))
        demand = compile_demand([wanted], {"any": build.device_class("any")}, features)
        return isinstance(allocate(AllocationProblem(demand, world.node, snapshot)), Allocated)

    for pool in usage_report(snapshot, world.features):
        for found in pool.devices:
            zeros = {each.name: Quantity.ZERO for each in found.capacities}
            if found.state is DeviceState.GONE:
                continue
            assert found.state.is_open or not is_given(found), found
            if found.state is DeviceState.FULL:
                # Not by a rounded percentage: nothing more can be allocated, not the smallest amount.
                for each in found.capacities:
                    assert not is_given(found, {**zeros, each.name: Quantity.parse("1n")}), found
            if not features.consumable_capacity:
                assert found.state.is_open == is_given(found), found
                continue
            if found.state.is_open:
                assert is_given(found, zeros) or is_given(found), found
            for each in found.capacities:
                assert each.used + each.free == each.value or not found.state.is_open
                assert each.largest is None or Quantity.ZERO <= each.largest <= each.free
                most = each.largest if each.largest is not None else Quantity.ZERO
                assert each.largest is None or is_given(found, {**zeros, each.name: each.largest}), found
                assert not is_given(found, {**zeros, each.name: most + Quantity.of(1)}), found


@pytest.mark.slow
@pytest.mark.fuzz
@given(seed=st.integers(0, 2**32))
def test_what_is_called_available_beside_shares_with_strategies_is_given(seed: int) -> None:
    world = with_capacity_features(numbered(random_world(seed)), seed)
    features = world.features.of_scheduler()
    snapshot = Snapshot.of(slices=world.slices, claims=world.allocated, rules=world.rules, nodes=[world.node])
    assume(features.consumable_capacity)

    def is_served(found: DeviceReport, asked: dict[str, str] | None) -> bool:
        demand = compile_demand([claim("wanted", only(found, asked))], {"any": build.device_class("any")}, features)
        return isinstance(allocate(AllocationProblem(demand, world.node, snapshot)), Allocated)

    def is_given(found: DeviceReport, asked: dict[str, str]) -> bool:
        """True if a request for this, with little or nothing of the other capacities, is served."""
        others = [each.name for each in found.capacities if each.name not in asked]
        little = (dict(zip(others, amounts, strict=True)) for amounts in product((None, "0", "1"), repeat=len(others)))
        return any(
            is_served(found, {**asked, **{name: amount for name, amount in each.items() if amount is not None}})
            for each in little
        )

    for pool in usage_report(snapshot, world.features):
        for found in pool.devices:
            if found.state is not DeviceState.GONE:
                assert found.state.is_open or not is_served(found, None), found
            for each in found.capacities if found.state.is_open else ():
                if each.largest is not None:
                    assert is_given(found, {each.name: str(each.largest)}), (found, each)
                    assert not is_given(found, {each.name: str(each.largest + Quantity.of(1))}), (found, each)


@pytest.mark.slow
@pytest.mark.fuzz
@given(seed=st.integers(0, 2**32))
def test_the_scheduler_gives_what_is_called_available(seed: int) -> None:
    """With two nodes, one of which may be unschedulable or tainted, or may not exist."""
    random = Random(seed)
    world = replace(numbered(random_world(seed)), features=Features())
    objects = ClusterObjects(FeatureGates.defaults())
    for item in (*world.slices, *world.allocated, *world.rules, build.device_class("any"), *some_nodes(random)):
        objects.add(item)
    for pool in usage_report(objects.snapshot(), Features(), closed_nodes(objects.nodes)):
        for found in pool.devices:
            if found.state is DeviceState.GONE:
                continue
            asked = {each.name: str(each.largest) for each in found.capacities if each.largest is not None}
            wanted = claim("wanted", only(found, dict(list(asked.items())[:1]) if len(asked) < 2 else None))
            engine = Engine(objects, datetime(2026, 1, 1, tzinfo=UTC))
            engine.create(wanted)
            pod = engine.pod_for(wanted)
            pod = structs.replace(pod, spec=structs.replace(pod.spec, tolerations=()))
            is_placed = isinstance(engine.place(pod), PodPlacement)
            if found.state.is_open and len(found.capacities) < 2 and len(asked) == len(found.capacities):
                assert is_placed, found
            elif not found.state.is_open:
                assert not is_placed, found


def some_nodes(random: Random) -> list[Node]:
    kinds = [
        NodeSpec(),
        NodeSpec(),
        NodeSpec(unschedulable=True),
        NodeSpec(taints=(Taint(key="k", effect="NoSchedule"),)),
        NodeSpec(taints=(Taint(key="k", effect="PreferNoSchedule"),)),
        None,
    ]
    specs = {"node-a": random.choice(kinds[:-1]), "node-b": random.choice(kinds)}
    return [
        Node(metadata=ObjectMeta(name=name, labels={"zone": "z1"}), spec=spec)
        for name, spec in specs.items()
        if spec is not None
    ]


def only(found: DeviceReport, asked: dict[str, str] | None) -> DeviceRequest:
    """A request for this device."""
    driver = found.device_id.driver
    where = f'device.driver == "{driver}" && device.attributes["{driver}"].id == "{found.device_id}"'
    return build.request("r", device_class="any", where=(where,), capacity=asked)


def numbered(world: World) -> World:
    """The world with an attribute that tells its devices apart."""
    return replace(world, slices=tuple(map(_numbered_slice, world.slices)))


def _numbered_slice(item: ResourceSlice) -> ResourceSlice:
    spec = item.spec
    devices = tuple(
        structs.replace(
            each, attributes={**each.attributes, "id": attribute(f"{spec.driver}/{spec.pool.name}/{each.name}")}
        )
        for each in spec.devices or ()
    )
    return structs.replace(item, spec=structs.replace(spec, devices=devices or spec.devices))
