"""Splitting pools into slices, and validation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.driver.devices import Pool, counter_set, device, taint
from dralloc.driver.slices import InvalidPools, check_pools, slices_of
from dralloc.kube.device_parts import capacity, request_policy, version
from dralloc.kube.resource_v1 import CapacityRequestPolicy, Device, DeviceCapacity, DeviceTaint, ResourceSliceSpec

DRIVER = "gpu.example.com"
NODE = "node-a"


def plain(count: int, start: int = 0) -> tuple[Device, ...]:
    return tuple(device(f"gpu-{number}") for number in range(start, start + count))


def tainted(count: int, start: int = 0) -> tuple[Device, ...]:
    return tuple(device(f"bad-{number}", taints=[taint("broken")]) for number in range(start, start + count))


def sizes(specs: tuple[ResourceSliceSpec, ...]) -> list[int]:
    return [len(spec.devices or ()) for spec in specs]


@dataclass(frozen=True)
class Case:
    id: str
    devices: tuple[Device, ...]
    want_sizes: list[int]


CASES = [
    Case(id="no devices: one empty slice says that the driver is alive", devices=(), want_sizes=[0]),
    Case(id="a full slice", devices=plain(128), want_sizes=[128]),
    Case(id="one more begins the next", devices=plain(129), want_sizes=[128, 1]),
    Case(id="with taints half as many fit", devices=tainted(65), want_sizes=[64, 1]),
    Case(id="one taint is enough", devices=(*plain(60), *tainted(1), *plain(60, 100)), want_sizes=[64, 57]),
    Case(id="a taint that comes late begins a slice", devices=(*plain(100), *tainted(1)), want_sizes=[100, 1]),
    Case(id="plain devices fill up again after it", devices=(*tainted(64), *plain(128)), want_sizes=[64, 128]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_devices_are_split_as_the_api_allows(case: Case) -> None:
    pool = Pool(name="p", devices=case.devices)
    assert sizes(slices_of(pool, DRIVER, NODE)) == case.want_sizes
    check_pools([pool], DRIVER, NODE)


@pytest.mark.slow
@given(st.lists(st.booleans(), max_size=400))
def test_splitting_keeps_order_and_bounds(costly: list[bool]) -> None:
    devices = tuple(
        device(f"d-{number}", taints=[taint("t")] if is_costly else []) for number, is_costly in enumerate(costly)
    )
    specs = slices_of(Pool(name="p", devices=devices), DRIVER, NODE)
    assert tuple(found for spec in specs for found in spec.devices or ()) == devices
    check_pools([Pool(name="p", devices=devices)], DRIVER, NODE)


def test_counter_sets_have_slices_of_their_own() -> None:
    sets = tuple(counter_set(f"card-{number}", memory="80Gi") for number in range(9))
    partition = device("half", draws={"card-0": {"memory": "40Gi"}}, attributes={"type.example.com/profile": "half"})
    pool = Pool(
        name="p",
        devices=(partition, *plain(64)),
        counters=sets,
        partition_type_attribute="type.example.com/profile",
    )
    specs = slices_of(pool, DRIVER, NODE)
    assert [len(spec.shared_counters or ()) for spec in specs] == [8, 1, 0, 0]
    assert sizes(specs) == [0, 0, 64, 1]
    assert [spec.partition_type_attribute for spec in specs] == [None, None, "type.example.com/profile", None]
    check_pools([pool], DRIVER, NODE)


def test_a_pool_with_another_placement_has_no_node_name() -> None:
    everywhere, here = Pool(name="net", all_nodes=True), Pool(name="local")
    assert [(spec.all_nodes, spec.node_name) for spec in slices_of(everywhere, DRIVER, NODE)] == [(True, None)]
    assert [(spec.all_nodes, spec.node_name) for spec in slices_of(here, DRIVER, NODE)] == [(None, NODE)]


def shared(memory: DeviceCapacity, policies: Mapping[str, CapacityRequestPolicy] | None = None) -> Pool:
    return Pool(name="p", devices=(device("d", capacity={"memory": memory}, shareable=True, policies=policies),))


@dataclass(frozen=True)
class FaultCase:
    id: str
    pools: tuple[Pool, ...]
    want: str


FAULTS = [
    FaultCase(
        id="a name that is there twice, even across slices",
        pools=(Pool(name="p", devices=(*plain(128), *plain(1))),),
        want="pool p: device gpu-0 is listed 2 times",
    ),
    FaultCase(
        id="a counter set that is there twice, even across slices",
        pools=(Pool(name="p", counters=tuple(counter_set(f"c{number % 8}", x=1) for number in range(9))),),
        want="pool p: counter set c0 is listed 2 times",
    ),
    FaultCase(
        id="a counter set that nobody has",
        pools=(Pool(name="p", devices=(device("d", draws={"card": {"memory": "1Gi"}}),)),),
        want="pool p: device d consumes counter set card, which the pool does not have",
    ),
    FaultCase(
        id="a counter that the set does not have",
        pools=(
            Pool(
                name="p", devices=(device("d", draws={"card": {"cores": 1}}),), counters=(counter_set("card", mem=1),)
            ),
        ),
        want="pool p: device d consumes counter cores, which counter set card does not have",
    ),
    FaultCase(id="a pool that is there twice", pools=(Pool(name="p"), Pool(name="p")), want="pool p is listed 2 times"),
    FaultCase(
        id="what a server would refuse",
        pools=(Pool(name="p", devices=(device("Not A Name"),)),),
        want="pool p, slice 0: spec.devices[0].name: Invalid value",
    ),
    FaultCase(
        id="a policy on a device that is not shared",
        pools=(
            Pool(name="p", devices=(device("d", capacity={"memory": capacity("8Gi", default="1Gi", step="1Gi")}),)),
        ),
        want="pool p, slice 0: spec.devices[0].capacity[memory]",
    ),
    FaultCase(
        id="a range without its beginning, with the argument of the builder",
        pools=(shared(capacity("8Gi", default="1Gi", step="1Gi")),),
        want="requestPolicy.validRange.min: Required value: required when validRange is set (device d: capacity(minimum=...))",
    ),
    FaultCase(
        id="a default outside the steps, with the argument of the builder",
        pools=(shared(capacity("8Gi", default="1500Mi", minimum="1Gi", step="1Gi")),),
        want="the step, 1Gi (device d: capacity(step=...))",
    ),
    FaultCase(
        id="a default that never fits",
        pools=(shared(capacity("16Gi", default="32Gi")),),
        want="pool p: device d, capacity memory: the default, 32Gi, is more than the whole amount, 16Gi",
    ),
    FaultCase(
        id="a default of a named policy that never fits",
        pools=(shared(capacity("16Gi", policy_name="half"), policies={"half": request_policy(default="32Gi")}),),
        want="the default, 32Gi, is more than the whole amount, 16Gi",
    ),
    FaultCase(
        id="a time that is none",
        pools=(
            Pool(name="p", devices=(device("d", taints=[DeviceTaint(key="k", effect="NoSchedule", time_added="x")]),)),
        ),
        want="pool p, slice 0: 'x' is not a timestamp",
    ),
]


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case.id)
def test_invalid_pools_are_found_before_anything_is_written(case: FaultCase) -> None:
    with pytest.raises(InvalidPools) as caught:
        check_pools(case.pools, DRIVER, NODE)
    assert case.want in str(caught.value)


def test_builders_convert_plain_values() -> None:
    made = device(
        "gpu-0",
        attributes={"model": "a100", "numa": 1, "ecc": True, "driver": version("1.2.3")},
        capacity={"memory": capacity("80Gi", default="10Gi", minimum="1Gi", maximum="40Gi", step="1Gi"), "ports": 4},
        shareable=True,
    )
    assert {name: (a.string, a.int, a.bool, a.version) for name, a in made.attributes.items()} == {
        "model": ("a100", None, None, None),
        "numa": (None, 1, None, None),
        "ecc": (None, None, True, None),
        "driver": (None, None, None, "1.2.3"),
    }
    policy = made.capacity["memory"].request_policy
    assert policy is not None
    assert policy.valid_range is not None
    assert (str(policy.default), str(policy.valid_range.min), str(policy.valid_range.max)) == ("10Gi", "1Gi", "40Gi")
    assert made.capacity["ports"].request_policy is None
    assert made.allow_multiple_allocations is True
    assert device("d").allow_multiple_allocations is None
