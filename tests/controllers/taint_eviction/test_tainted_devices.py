"""Which devices have NoExecute taints, by slices and by rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dralloc.controllers.taint_eviction.tainted_devices import TaintedDevices, published_devices
from dralloc.devices.identity import DeviceId
from dralloc.kube.resource_v1 import (
    EFFECT_NONE,
    NO_EXECUTE,
    NO_SCHEDULE,
    DeviceTaint,
    DeviceTaintRule,
    ResourceSlice,
)
from dralloc.testing.builders import (
    DRIVER,
    POOL,
    device,
    resource_slice,
    taint,
    taint_rule,
)

ADDED = "2026-01-01T00:00:00Z"
FAULTY = DeviceTaint(key="faulty", value="yes", effect=NO_EXECUTE, time_added=ADDED)
GPU = DeviceId(DRIVER, POOL, "gpu-0")


def evicting(name: str, **selector: Any) -> DeviceTaintRule:
    return taint_rule(name, FAULTY, **selector)


@pytest.mark.parametrize(
    ("rule", "want"),
    [
        (evicting("r"), True),
        (evicting("r", driver=DRIVER), True),
        (evicting("r", driver="other"), False),
        (evicting("r", driver=DRIVER, pool=POOL, device="gpu-0"), True),
        (evicting("r", driver=DRIVER, pool=POOL, device="gpu-1"), False),
        (evicting("r", device="gpu-0"), True),
        (taint_rule("r", taint("x", effect=NO_SCHEDULE)), False),
        (taint_rule("r", taint("x", effect=EFFECT_NONE)), False),
        (replace(evicting("r"), spec=replace(evicting("r").spec, device_selector=None)), False),
    ],
    ids=[
        "an empty selector",
        "the driver",
        "another driver",
        "the device itself",
        "another device",
        "only the device's name",
        "the effect NoSchedule",
        "the effect None",
        "no selector",
    ],
)
def test_which_devices_a_rule_taints(rule: DeviceTaintRule, want: bool) -> None:
    tainted = TaintedDevices()
    tainted.put_rule(rule)
    assert tainted.is_tainted(GPU) == want
    tainted.remove_rule("r")
    assert not tainted


def test_a_changed_rule_replaces_its_earlier_version() -> None:
    tainted = TaintedDevices()
    tainted.put_rule(evicting("r"))
    tainted.put_rule(taint_rule("r", taint("x", effect=EFFECT_NONE)))
    assert not tainted.is_tainted(GPU)


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    tainted = TaintedDevices()
    old = resource_slice("old", device("gpu-0", taints=[FAULTY]))
    new = resource_slice("new", device("gpu-0"), device("gpu-1", taints=[FAULTY]), generation=2)
    assert tainted.change_slice(None, old) == {GPU}
    assert tainted.change_slice(None, new) == {GPU, GPU.pool_id.device("gpu-1")}
    assert not tainted.is_tainted(GPU)
    assert tainted.change_slice(new, None) == {GPU, GPU.pool_id.device("gpu-1")}
    assert tainted.is_tainted(GPU)
    assert tainted.change_slice(old, None) == {GPU}
    assert not tainted


SLICES = st.builds(
    lambda name, generation, taints: resource_slice(
        name,
        *(device(f"gpu-{number}", taints=[FAULTY] if number in taints else []) for number in range(3)),
        generation=generation,
        pool="pool-" + name[0],
    ),
    st.sampled_from(["a1", "a2", "b1"]),
    st.integers(1, 3),
    st.sets(st.integers(0, 2)),
)


@given(steps=st.lists(st.tuples(SLICES, st.booleans()), max_size=12))
def test_the_index_agrees_with_a_scan_of_all_slices(steps: list[tuple[ResourceSlice, bool]]) -> None:
    """For any sequence of changes; and every changed device is reported."""
    tainted, present = TaintedDevices(), dict[str, ResourceSlice]()
    for item, is_removed in steps:
        before, after = present.pop(item.metadata.name, None), None if is_removed else item
        if after is not None:
            present[item.metadata.name] = after
        known = {entry: tuple(tainted.taints_of(entry)) for entry in all_devices()}
        changed = tainted.change_slice(before, after)
        assert changed == {entry for entry in all_devices() if tuple(tainted.taints_of(entry)) != known[entry]}
    expected = set()
    for item in present.values():
        newest = max(
            other.spec.pool.generation for other in present.values() if other.spec.pool.name == item.spec.pool.name
        )
        if item.spec.pool.generation == newest:
            expected |= {
                DeviceId(DRIVER, item.spec.pool.name, entry.name) for entry in item.spec.devices or () if entry.taints
            }
    # If two slices of one generation name the same device, the last change decides.
    disputed = {
        entry
        for entry in all_devices()
        if len(
            {
                bool(d.taints)
                for s in present.values()
                if s.spec.pool.name == entry.pool
                for d in s.spec.devices or ()
                if d.name == entry.device
            }
        )
        > 1
    }
    assert {entry for entry in all_devices() if tainted.is_tainted(entry)} - disputed == expected - disputed


def all_devices() -> list[DeviceId]:
    return [DeviceId(DRIVER, f"pool-{pool}", f"gpu-{number}") for pool in "ab" for number in range(3)]


def test_published_devices_are_those_of_the_newest_generation() -> None:
    slices = [
        resource_slice("old", device("gpu-0"), device("gpu-1")),
        resource_slice("new", device("gpu-1"), generation=2),
        resource_slice("other", device("gpu-0"), pool="pool-b"),
    ]
    assert set(published_devices(slices)) == {DeviceId(DRIVER, POOL, "gpu-1"), DeviceId(DRIVER, "pool-b", "gpu-0")}
