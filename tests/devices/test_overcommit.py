"""Over-commit of devices, capacities and counters, as a table and against a brute force."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.devices.counters import CounterId
from dralloc.devices.device_usage import FREE, DeviceUsage
from dralloc.devices.overcommit import (
    Overcommit,
    exceeded_capacities,
    exceeded_counters,
    is_allocated_twice,
    is_overcommitted,
)
from dralloc.devices.published_slice import PublishedDevice, PublishedSlice
from dralloc.kube.resource_v1 import Device, DeviceRequestAllocationResult
from dralloc.primitives.quantity import NANOS
from dralloc.testing.builders import device, held, resource_slice

Results = Sequence[DeviceRequestAllocationResult]

WHOLE = held("d")
NIC = device("d", shareable=True, capacity={"bandwidth": "10"})
GPU = device("d", capacity={"bandwidth": "10"})


def share(amount: int) -> DeviceRequestAllocationResult:
    return held("d", share_id="s", consumed={"bandwidth": str(amount)})


def usage_of(results: Results) -> DeviceUsage:
    usage = FREE
    for result in results:
        usage = usage.changed_by(result, 1)
    return usage


def published(item: Device | None) -> PublishedDevice | None:
    return PublishedDevice.of(item) if item is not None else None


# --- Devices ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    id: str
    device: Device | None
    results: Results
    want: bool


CASES = [
    Case("a free device", GPU, (), want=False),
    Case("one claim for the whole device", GPU, (WHOLE,), want=False),
    Case("two claims for the whole device", GPU, (WHOLE, WHOLE), want=True),
    Case("the whole device and a share", NIC, (WHOLE, share(1)), want=True),
    Case("shares within the capacity", NIC, (share(4), share(6)), want=False),
    Case("shares beyond the capacity", NIC, (share(4), share(7)), want=True),
    Case("one share beyond the capacity", NIC, (share(11),), want=True),
    Case("one share of a device that is no longer shareable", GPU, (share(11),), want=False),
    Case("two shares of a device that is no longer shareable", GPU, (share(1), share(1)), want=True),
    Case("shares of an unpublished device have no limit", None, (share(100), share(100)), want=False),
    Case("an unpublished device has one user as a whole", None, (WHOLE, WHOLE), want=True),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_is_overcommitted(case: Case) -> None:
    assert is_overcommitted(usage_of(case.results), published(case.device)) is case.want


def test_exceeded_capacities_name_what_is_used_and_what_is_offered() -> None:
    found = dict(exceeded_capacities(usage_of((share(4), share(7))), published(NIC)))
    assert found == {"bandwidth": Overcommit(used=11 * NANOS, offered=10 * NANOS)}


def test_a_capacity_that_the_device_does_not_declare_has_no_limit() -> None:
    result = held("d", share_id="s", consumed={"other": "100"})
    assert not list(exceeded_capacities(usage_of((result,)), published(NIC)))


results = st.lists(st.one_of(st.just(WHOLE), st.integers(0, 12).map(share)), max_size=4)
devices = st.sampled_from([None, GPU, NIC])


@given(results, devices)
def test_overcommit_agrees_with_a_brute_force(given_out: Results, item: Device | None) -> None:
    is_shareable = item is None or bool(item.allow_multiple_allocations)
    excludes = any(
        first.share_id is None or second.share_id is None or not is_shareable
        for first, second in combinations(given_out, 2)
    )
    consumed = sum(result.consumed_capacity["bandwidth"].value for result in given_out if result.share_id)
    exceeds = item is NIC and consumed > 10
    usage = usage_of(given_out)
    assert is_allocated_twice(usage, published(item)) is excludes
    assert bool(list(exceeded_capacities(usage, published(item)))) is exceeds
    assert is_overcommitted(usage, published(item)) is (excludes or exceeds)


@given(results, devices)
def test_releasing_a_result_never_causes_overcommit(given_out: Results, item: Device | None) -> None:
    if given_out and is_overcommitted(usage_of(given_out[1:]), published(item)):
        assert is_overcommitted(usage_of(given_out), published(item))


# --- Counters -----------------------------------------------------------------------------------------------------

SLOTS, MEMORY = CounterId("card", "slots"), CounterId("card", "memory")
PARTITIONS = {"a": {"slots": 3}, "b": {"slots": 4, "memory": 2}, "c": {"memory": 3}, "d": {}}


def pool(slots: int, memory: int | None) -> list[PublishedSlice]:
    offered = {"slots": str(slots)} | ({} if memory is None else {"memory": str(memory)})
    partitions = [
        device(name, draws={"card": {counter: str(amount) for counter, amount in draws.items()}} if draws else None)
        for name, draws in PARTITIONS.items()
    ]
    return [
        PublishedSlice.of(resource_slice("counters", counters={"card": offered}, of=2)),
        PublishedSlice.of(resource_slice("devices", *partitions, of=2)),
    ]


def test_exceeded_counters_are_those_that_the_devices_draw_from() -> None:
    current = pool(slots=6, memory=4)
    both = Overcommit(used=7 * NANOS, offered=6 * NANOS)
    assert exceeded_counters(current, ["a"], ["a", "b"]) == {SLOTS: both}
    assert exceeded_counters(current, ["c"], ["a", "b"]) == {}
    assert exceeded_counters(current, ["b"], ["b"]) == {}
    assert exceeded_counters(current, ["d"], ["a", "b", "c", "d"]) == {}


names = st.frozensets(st.sampled_from([*PARTITIONS, "unknown"]))


@given(names, names, st.integers(0, 8), st.none() | st.integers(0, 6))
def test_exceeded_counters_agree_with_a_brute_force(
    mine: frozenset[str], others: frozenset[str], slots: int, memory: int | None
) -> None:
    in_use = mine | others
    want = {}
    for counter, offered in (("slots", slots), ("memory", memory)):
        used = sum(PARTITIONS.get(name, {}).get(counter, 0) for name in in_use)
        if offered is not None and used > offered and any(counter in PARTITIONS.get(name, {}) for name in mine):
            want[CounterId("card", counter)] = Overcommit(used * NANOS, offered * NANOS)
    assert exceeded_counters(pool(slots, memory), mine, in_use) == want
