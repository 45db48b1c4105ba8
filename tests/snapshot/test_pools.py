"""Which pools a node can use: generations, completeness, placement, validity, order."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dralloc.devices.identity import PoolId
from dralloc.devices.node_selectors import NodeFacts, NodeSelectorError
from dralloc.devices.pools import PoolState, Visibility
from dralloc.devices.snapshot import NodeView, Snapshot
from dralloc.kube.resource_v1 import ResourceSlice
from dralloc.testing.builders import device, node, node_selector, resource_slice
from tests.support.plain_pools import PlainFatal, PlainPools, World
from tests.support.random_worlds import random_world

EVERYTHING = Visibility(partitionable_devices=True, compatibility_groups=False)
NO_PARTITIONS = Visibility(partitionable_devices=False, compatibility_groups=False)
GPU = device("gpu-0")
READY, INCOMPLETE, INVALID = PoolState.READY, PoolState.INCOMPLETE, PoolState.INVALID


def view_of(slices: tuple[ResourceSlice, ...], seen_from: NodeFacts, visibility: Visibility = EVERYTHING) -> NodeView:
    return Snapshot.of(slices=slices).view(seen_from, visibility)


def seen(view: NodeView) -> list[str]:
    return [f"{strip.slice.pool_id.pool}/{found.name}" for strip in view.strips for found in strip.slice.devices]


@dataclass(frozen=True)
class Case:
    id: str
    slices: tuple[ResourceSlice, ...]
    want: tuple[str, ...] = ()
    status: PoolState | None = None
    visibility: Visibility = EVERYTHING


CASES = [
    Case("the node's own slice", (resource_slice("s", GPU),), ("pool-a/gpu-0",), READY),
    Case("another node's slice", (resource_slice("s", GPU, node_name="node-b"),)),
    Case("all nodes", (resource_slice("s", GPU, all_nodes=True),), ("pool-a/gpu-0",), READY),
    Case(
        "selected nodes", (resource_slice("s", GPU, node_selector=node_selector(zone="z1")),), ("pool-a/gpu-0",), READY
    ),
    Case("other selected nodes", (resource_slice("s", GPU, node_selector=node_selector(zone="z2")),)),
    Case("no placement", (resource_slice("s", GPU, node_name=None),)),
    Case(
        "per-device selection, one device for the node",
        (resource_slice("s", GPU, device("gpu-1", node_name="node-a"), per_device=True),),
        ("pool-a/gpu-0", "pool-a/gpu-1"),
        READY,
    ),
    Case(
        "per-device selection, no device for the node",
        (resource_slice("s", device("g", node_name="node-b"), per_device=True),),
    ),
    Case("a slice is missing", (resource_slice("s", GPU, of=2),), (), INCOMPLETE),
    Case("a slice too many", (resource_slice("s", GPU), resource_slice("t", device("gpu-1"))), (), INCOMPLETE),
    Case(
        "the rest of the pool is on another node",
        (resource_slice("s", GPU, of=2), resource_slice("t", device("gpu-1"), of=2, node_name="node-b")),
        ("pool-a/gpu-0",),
        READY,
    ),
    Case(
        "older slices are ignored",
        (resource_slice("s", GPU, generation=2), resource_slice("t", device("gpu-1"), generation=1)),
        ("pool-a/gpu-0",),
        READY,
    ),
    Case(
        "a newer generation elsewhere hides an incomplete one here",
        (resource_slice("s", GPU, of=2), resource_slice("t", device("gpu-1"), of=2, generation=2, node_name="node-b")),
    ),
    Case(
        "a complete generation here hides a newer one elsewhere",
        (resource_slice("s", GPU), resource_slice("t", device("gpu-1"), generation=2, node_name="node-b")),
        ("pool-a/gpu-0",),
        READY,
    ),
    Case("two devices with the same name in a slice", (resource_slice("s", GPU, GPU),), (), INVALID),
    Case(
        "two devices with the same name in the pool",
        (resource_slice("s", GPU, of=2), resource_slice("t", GPU, of=2)),
        (),
        INVALID,
    ),
    Case(
        "a device draws from an unknown counter set",
        (resource_slice("s", device("gpu-0", draws={"card": {"units": "1"}})),),
        (),
        INVALID,
    ),
    Case(
        "a device draws from an unknown counter",
        (
            resource_slice("s", device("gpu-0", draws={"card": {"units": "1"}}), of=2),
            resource_slice("t", counters={"card": {"memory": "1"}}, of=2),
        ),
        (),
        INVALID,
    ),
    Case(
        "a device of another node draws from an unknown counter set",
        (
            resource_slice("s", GPU, of=2),
            resource_slice("t", device("gpu-1", draws={"card": {"units": "1"}}), of=2, node_name="node-b"),
        ),
        (),
        INVALID,
    ),
    Case(
        "two counter sets with the same name",
        (
            resource_slice("s", GPU, of=3),
            resource_slice("t", counters={"card": {"units": "1"}}, of=3),
            resource_slice("u", counters={"card": {"units": "1"}}, of=3),
        ),
        (),
        INVALID,
    ),
    Case(
        "partitionable devices are off: their slices are hidden but counted",
        (resource_slice("s", GPU, of=2), resource_slice("t", counters={"card": {"units": "1"}}, of=2)),
        ("pool-a/gpu-0",),
        READY,
        visibility=NO_PARTITIONS,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_layout(case: Case) -> None:
    view = view_of(case.slices, node("node-a", zone="z1"), case.visibility)
    assert tuple(seen(view)) == case.want
    assert [pool.layout.status for pool in view.pools] == ([case.status] if case.status else [])


def test_pools_and_slices_are_tried_by_name_and_devices_as_published() -> None:
    slices = (
        resource_slice("slice-2", device("b"), device("a"), driver="drv-b", pool="p1", of=2),
        resource_slice("slice-10", device("c"), driver="drv-b", pool="p1", of=2),
        resource_slice("s9", device("d"), driver="drv-a", pool="p9"),
        resource_slice("s2", device("e"), device("f", binding_conditions=("ready",)), driver="drv-a", pool="p2"),
    )
    assert seen(view_of(slices, node())) == ["p9/d", "p1/c", "p1/b", "p1/a", "p2/e", "p2/f"]


def test_an_invalid_node_selector_invalidates_the_view() -> None:
    broken = node_selector(zone="not a value")
    view = view_of((resource_slice("s", GPU), resource_slice("t", GPU, pool="other", node_selector=broken)), node())
    assert isinstance(view.fault, NodeSelectorError)


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(4))
def test_views_agree_with_a_scan_of_every_slice(batch: int) -> None:
    nodes = [node("node-a", zone="z1"), node("node-b"), node("node-c", zone="z1")]
    for seed in range(batch * 100, batch * 100 + 100):
        slices = tuple(
            slice_of_one
            for offset in range(3)
            for slice_of_one in _renamed(random_world(seed * 3 + offset).slices, offset)
        )
        snapshot = Snapshot.of(slices=slices)
        for seen_from in nodes:
            plain = PlainPools(World(slices=slices, claims=(), classes={}, node=seen_from)).ordered
            view = snapshot.view(seen_from, EVERYTHING)
            assert [pool.pool_id for pool in view.pools] == [PoolId(*pool.key) for pool in plain], f"seed {seed}"
            want = [f"{pool.key[1]}/{found.name}" for pool in plain for _, found in pool.devices]
            assert seen(view) == want, f"seed {seed}"


def _renamed(slices: tuple[ResourceSlice, ...], offset: int) -> list[ResourceSlice]:
    """The slices of one world, with names that differ from those of other worlds."""
    return [
        resource_slice(
            f"{offset}-{each.metadata.name}",
            *(each.spec.devices or ()),
            driver=each.spec.driver,
            pool=f"{offset}-{each.spec.pool.name}",
            generation=each.spec.pool.generation,
            of=each.spec.pool.resource_slice_count,
            node_name=each.spec.node_name,
            all_nodes=each.spec.all_nodes,
            per_device=each.spec.per_device_node_selection,
            counters={
                found.name: {name: str(counter.value) for name, counter in found.counters.items()}
                for found in each.spec.shared_counters or ()
            },
        )
        for each in slices
    ]


def test_the_plain_pools_refuse_an_invalid_selector() -> None:
    broken = resource_slice("s", GPU, node_selector=node_selector(zone="not a value"))
    with pytest.raises(PlainFatal):
        PlainPools(World(slices=(broken,), claims=(), classes={}, node=node()))
