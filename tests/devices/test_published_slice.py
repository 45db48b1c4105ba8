"""What slices declare about devices and counters, and which slice decides."""

from __future__ import annotations

from dralloc.devices.counters import CounterId
from dralloc.devices.identity import PoolId
from dralloc.devices.published_slice import (
    PublishedDevice,
    PublishedSlice,
    counters_of,
    current_slices,
    draws_together,
    find_device,
)
from dralloc.primitives.quantity import NANOS
from dralloc.testing.builders import DRIVER, POOL, device, resource_slice

SLOTS = CounterId("card", "slots")


def nic(bandwidth: str, generation: int) -> PublishedSlice:
    shareable = device("nic", shareable=True, capacity={"bandwidth": bandwidth})
    return PublishedSlice.of(resource_slice(f"nics-{generation}", shareable, generation=generation))


def test_a_shareable_device_declares_its_capacity() -> None:
    found = nic("10", generation=1)
    assert (found.pool_id, found.generation, found.has_counters) == (PoolId(DRIVER, POOL), 1, False)
    assert found.devices == {"nic": PublishedDevice(is_shareable=True, capacity={"bandwidth": 10 * NANOS})}


def test_a_device_that_is_not_shareable_declares_no_capacity() -> None:
    found = PublishedSlice.of(resource_slice("s", device("gpu", capacity={"memory": "80Gi"})))
    assert found.devices == {"gpu": PublishedDevice()}


def test_the_newest_slice_that_names_a_device_decides() -> None:
    slices = [nic("40", generation=2), nic("10", generation=1)]
    found = find_device(slices, "nic")
    assert found is not None
    assert found.capacity == {"bandwidth": 40 * NANOS}
    assert find_device([*slices, PublishedSlice.of(resource_slice("new", generation=3))], "nic") == found
    assert find_device(slices, "gpu") is None


def test_counters_and_draws_count_by_the_newest_generation_alone() -> None:
    def partitions(generation: int, slots: str) -> list[PublishedSlice]:
        half = device("half", draws={"card": {"slots": slots}})
        return [
            PublishedSlice.of(resource_slice("c", counters={"card": {"slots": "8"}}, generation=generation, of=2)),
            PublishedSlice.of(resource_slice("d", half, generation=generation, of=2)),
        ]

    current = current_slices([*partitions(1, "4"), *partitions(2, "3")])
    assert [published.generation for published in current] == [2, 2]
    assert counters_of(current) == {SLOTS: 8 * NANOS}
    assert draws_together(current, ["half", "unknown"]) == {SLOTS: 3 * NANOS}
    assert not draws_together([], ["half"])
