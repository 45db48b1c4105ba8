"""What is free in a pool."""

from __future__ import annotations

from msgspec.structs import replace

from dralloc.controllers.pool_status import count_pool, results_by_pool
from dralloc.devices.identity import PoolId
from dralloc.devices.taints import TaintRules
from dralloc.kube.resource_v1 import Device, DeviceAttribute, ResourceClaim
from dralloc.kube.resource_v1alpha3 import PoolStatus
from dralloc.testing.builders import DRIVER, POOL, allocation, claim, device, held, resource_slice, taint, taint_rule

ATTRIBUTE = f"{DRIVER}/profile"


def holding(*devices: object) -> ResourceClaim:
    made = claim("c")
    return replace(made, status=replace(made.status, allocation=allocation(*devices)))  # type: ignore[arg-type]


def counted(
    *devices: Device,
    used: tuple[str, ...] = (),
    rules: TaintRules | None = None,
    attribute: str | None = None,
    **more: object,
) -> PoolStatus:
    item = resource_slice("s", *devices, **more)  # type: ignore[arg-type]
    results = results_by_pool([holding(*map(held, used))] if used else [])
    return count_pool([item], results.get(PoolId(DRIVER, POOL), ()), rules or TaintRules(), attribute)


def numbers(pool: PoolStatus) -> tuple[int | None, ...]:
    """Total, allocated, available, unavailable."""
    return pool.total_devices, pool.allocated_devices, pool.available_devices, pool.unavailable_devices


def partition(name: str, kind: str, amount: str, counter_set: str = "gpu") -> Device:
    return device(name, attributes={"profile": kind}, draws={counter_set: {"memory": amount}})


def test_devices_are_allocated_available_or_unavailable() -> None:
    pool = counted(device("a"), device("b"), device("c", taints=[taint("broken")]), used=("a",))
    assert numbers(pool) == (3, 1, 1, 1)
    assert (pool.node_name, pool.generation, pool.resource_slice_count) == ("node-a", 1, 1)
    assert pool.partition_summary == ()
    assert pool.shareable_summary is None


def test_a_device_that_is_allocated_and_tainted_counts_once() -> None:
    assert numbers(counted(device("a", taints=[taint("broken")]), device("b"), used=("a",))) == (2, 1, 1, 0)


def test_rules_taint_devices_and_harmless_taints_do_not_count() -> None:
    rules = TaintRules().with_rule(taint_rule("r", taint("broken"), driver=DRIVER, device="b"))
    rules = rules.with_rule(taint_rule("harmless", taint("seen", effect="None")))
    assert numbers(counted(device("a"), device("b"), rules=rules)) == (2, 0, 1, 1)


def test_devices_that_are_no_longer_published_are_allocated_but_take_nothing() -> None:
    assert numbers(counted(device("a"), used=("gone",))) == (1, 1, 1, 0)


def test_an_incomplete_pool_has_no_counts() -> None:
    pool = counted(device("a"), of=2)
    assert (
        pool.validation_error
        == f"PoolIncomplete: pool {DRIVER}/{POOL} is incomplete: observed 1/2 slices at generation 1"
    )
    assert numbers(pool) == (None,) * 4


def test_a_pool_of_several_nodes_has_no_node() -> None:
    slices = [resource_slice(name, device(name), node_name=name, of=2) for name in ("a", "b")]
    assert count_pool(slices, (), TaintRules(), None).node_name is None


def test_partitions_by_type_are_measured_alone() -> None:
    devices = (partition("full", "Full", "2"), partition("half-0", "Half", "1"), partition("half-1", "Half", "1"))
    counters = {"gpu": {"memory": "2"}}
    pool = counted(*devices, attribute=ATTRIBUTE, counters=counters)
    assert [(each.type, each.total, each.allocatable) for each in pool.partition_summary] == [
        ("Full", 1, 1),
        ("Half", 2, 2),
    ]
    pool = counted(*devices, used=("half-0",), attribute=ATTRIBUTE, counters=counters)
    assert [(each.type, each.total, each.allocatable) for each in pool.partition_summary] == [
        ("Full", 1, 0),
        ("Half", 2, 1),
    ]
    assert numbers(pool) == (3, 1, 1, 1), "the full device cannot be had"
    assert counted(*devices, counters=counters).partition_summary == ()


def test_equal_partitions_of_different_devices_are_one_type() -> None:
    devices = (partition("a", "Half", "1", "gpu-0"), partition("b", "Half", "1", "gpu-1"))
    pool = counted(*devices, attribute=ATTRIBUTE, counters={"gpu-0": {"memory": "1"}, "gpu-1": {"memory": "1"}})
    assert [(each.total, each.allocatable) for each in pool.partition_summary] == [(2, 2)]


def test_errors_of_partitions_leave_the_counts() -> None:
    counters = {"gpu": {"memory": "3"}}
    untyped = replace(partition("b", "Half", "1"), attributes={"profile": DeviceAttribute(int=1)})
    for devices, told in (
        ((partition("a", "Half", "1"), untyped), "PartitionTypeMissing:"),
        ((partition("a", "Half", "1"), partition("b", "Half", "2")), "PartitionCostMismatch:"),
        (tuple(partition(f"d{number}", f"T{number}", "1") for number in range(33)), "PartitionSummaryOverCap:"),
    ):
        pool = counted(*devices, attribute=ATTRIBUTE, counters=counters)
        assert (pool.validation_error or "").startswith(told)
        assert pool.total_devices == len(devices)
        assert pool.partition_summary == ()


def test_shareable_devices_and_their_capacity() -> None:
    devices = [device(name, shareable=True, capacity={"memory": "10"}) for name in ("full", "part", "free")]
    results = results_by_pool(
        [
            holding(
                held("full", share_id="1", consumed={"memory": "10"}),
                held("part", share_id="2", consumed={"memory": "4"}),
            )
        ]
    )
    pool = count_pool([resource_slice("s", *devices)], results[PoolId(DRIVER, POOL)], TaintRules(), None)
    summary = pool.shareable_summary
    assert summary is not None
    assert (summary.fully_available_devices, summary.partially_available_devices) == (1, 1), (
        "a full device has nothing left"
    )
    assert [(each.name, str(each.total), str(each.consumed), str(each.available)) for each in summary.capacity] == [
        ("memory", "30", "14", "16")
    ]
