"""Claims on the best of several nodes."""

from __future__ import annotations

from collections.abc import Sequence

from dralloc.allocator.features import Features
from dralloc.allocator.outcome import Fatal
from dralloc.allocator.placing import Placed, Refuted, Unplaced, place
from dralloc.allocator.requests import compile_demand
from dralloc.api.resource_v1 import Device, ResourceClaim
from dralloc.snapshot.cluster import Snapshot
from dralloc.snapshot.node_selectors import Node
from dralloc.testing import builders as build
from dralloc.testing.builders import alternative, claim, device, first_available, request, resource_slice


class Cluster:
    """Nodes `node-0`, `node-1`, … with these devices each."""

    def __init__(self, *devices: Sequence[Device]) -> None:
        self.nodes = [build.node(f"node-{at}") for at in range(len(devices))]
        self.snapshot = Snapshot.of(
            slices=[
                resource_slice(node.name, *found, pool=node.name, node_name=node.name)
                for node, found in zip(self.nodes, devices, strict=True)
                if found
            ]
        )
        self.refuted = Refuted()

    def place(self, asked: ResourceClaim) -> Placed | Unplaced | Fatal:
        demand = compile_demand([asked], {"gpu": build.device_class()}, Features())
        return place(demand, self.nodes, self.snapshot, self.refuted)

    def node(self, asked: ResourceClaim) -> str | None:
        placed = self.place(asked)
        return placed.node.name if isinstance(placed, Placed) else None


TWO_OR_ONE = claim("claim", first_available("gpu", alternative("two", count=2), alternative("one")))


def test_the_first_node_that_fits() -> None:
    assert Cluster((), (device("a"),), (device("a"),)).node(claim("claim", request())) == "node-1"


def test_the_node_where_a_better_alternative_fits() -> None:
    assert Cluster((device("a"),), (device("a"), device("b"))).node(TWO_OR_ONE) == "node-1"


def test_an_error_on_a_node_that_is_looked_at_ends_the_search() -> None:
    cluster = Cluster((device("a"),), (device("a", attributes={"model": "x"}),))
    asked = claim("claim", request(where='device.attributes["gpu.example.com"].model == "x"'))
    assert isinstance(cluster.place(asked), Fatal)


def test_nodes_that_do_not_do_are_remembered_with_those_like_them() -> None:
    cluster = Cluster((device("a"),), (device("b"),), (device("c"), device("d")))
    asked = claim("claim", request(count=2))
    assert cluster.node(asked) == "node-2"
    assert cluster.refuted.names == {"node-0", "node-1"}
    assert len(cluster.refuted.kinds) == 1
    assert cluster.node(asked) == "node-2"


def test_no_node_does() -> None:
    assert Cluster((), ()).place(claim("claim", request())) == Unplaced()
    assert place(compile_demand([], {}, Features()), [Node("a")], Snapshot(), Refuted()) != Unplaced()
