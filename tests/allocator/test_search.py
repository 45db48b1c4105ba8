"""What is left of a search when it has ended. Which solution it finds is shown by `test_allocate`."""

from __future__ import annotations

import weakref

import pytest

from dralloc.devices.allocator.search import Search, SearchStatus
from dralloc.devices.allocator.supply import Supply
from dralloc.testing.builders import claim, device, device_class, node, request, resource_slice
from tests.support.allocations import problem_of
from tests.support.plain_pools import World


@pytest.mark.parametrize(
    ("count", "steps_max", "want"),
    [(2, 100, SearchStatus.SOLVED), (3, 100, SearchStatus.DEAD), (2, 0, SearchStatus.OUT_OF_STEPS)],
    ids=["solved", "without a solution", "out of steps"],
)
def test_a_search_is_freed_without_a_garbage_collection(count: int, steps_max: int, want: SearchStatus) -> None:
    devices = resource_slice("a", device("d"), device("e"))
    world = World(
        slices=(devices,),
        claims=(claim("c", request("r", count=count)),),
        classes={"gpu": device_class()},
        node=node(),
    )
    problem = problem_of(world)
    view = problem.snapshot.view(problem.node, problem.demand.features.visibility)
    search = Search(problem.demand, Supply(problem.snapshot, view, problem.demand), steps_max)
    assert search.run() is want
    left = weakref.ref(search)
    del search
    assert left() is None
