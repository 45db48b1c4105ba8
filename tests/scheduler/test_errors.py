"""Attempts that end in an error: the pod says so and is tried again after a while, whether or not anything happens."""

from __future__ import annotations

import pytest

from dralloc.api.core_v1 import Node
from dralloc.api.resource_v1 import ResourceClaim, ResourceSlice
from dralloc.client.resource import ObjectKey
from dralloc.client.resources import resource_for
from dralloc.testing.builders import DRIVER, claim, device, device_class, request, resource_slice
from dralloc.testing.scheduled_cluster import node, our_pod, scheduled_cluster
from dralloc.testing.virtual_time import run_virtual

# The longest that a pod is held back for errors.
HELD_BACK_S = 10.0

# A device without the attribute that the selector reads is what is wrong on node-b.
SELECTIVE = claim("c", request(where=f'device.attributes["{DRIVER}"].mem == 1'))
FITTING = resource_slice("a", device("gpu-0", attributes={"mem": 1}), pool="a", node_name="node-a")
FAULTY = resource_slice("b", device("gpu-0"), pool="b", node_name="node-b")

# Its second generation has two slices, and one of them is missing.
ALL = claim("c", request(everything=True))
COMPLETE = resource_slice("a", device("gpu-0"), pool="a", node_name="node-a")
INCOMPLETE = resource_slice("b", device("gpu-1"), pool="a", node_name="node-a", generation=2, of=2)


@pytest.mark.parametrize(
    ("asked", "slices", "kind", "name"),
    [
        pytest.param(SELECTIVE, (FITTING, FAULTY), ResourceSlice, "b", id="the slice with a faulty device"),
        pytest.param(SELECTIVE, (FITTING, FAULTY), Node, "node-b", id="the node that sees a faulty device"),
        pytest.param(ALL, (COMPLETE, INCOMPLETE), ResourceSlice, "b", id="the slice of a pool that is incomplete"),
    ],
)
def test_a_pod_gets_its_node_soon_after_this_has_gone(
    asked: ResourceClaim, slices: tuple[ResourceSlice, ...], kind: type[Node | ResourceSlice], name: str
) -> None:
    async def main() -> None:
        async with scheduled_cluster() as cluster:
            await cluster.create(device_class(), node("node-a"), node("node-b"), *slices)
            await cluster.create(asked, our_pod("p", "c"))
            await cluster.settle(60)
            assert (await cluster.condition("p")).reason == "SchedulerError"
            assert len(await cluster.events_of("p")) == 1
            await cluster.client.calls.delete(resource_for(kind), ObjectKey("", name))
            await cluster.settle(HELD_BACK_S)
            assert await cluster.node_of("p") == "node-a"

    run_virtual(main())
