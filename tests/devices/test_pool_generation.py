"""The newest generation of a pool, and whether it is completely published."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.devices.identity import PoolId
from dralloc.devices.published_slice import is_complete, newest_generation, newest_slices
from dralloc.kube.resource_v1 import ResourceSlice
from dralloc.testing.builders import DRIVER, resource_slice


def published(*generations: int, pool: str = "p", of: int = 1) -> list[ResourceSlice]:
    return [
        resource_slice(f"{pool}-{number}", pool=pool, generation=generation, of=of)
        for number, generation in enumerate(generations)
    ]


def names(slices: list[ResourceSlice]) -> list[str]:
    return [item.metadata.name for item in slices]


def test_only_the_newest_generation_of_each_pool_counts() -> None:
    found = newest_slices([*published(1, 2, 2), *published(7, 3, pool="q")])
    assert {pool_id.pool: names(slices) for pool_id, slices in found.items()} == {"p": ["p-1", "p-2"], "q": ["q-0"]}


def test_pools_of_different_drivers_are_different_pools() -> None:
    slices = [resource_slice("a", driver="a", generation=1), resource_slice("b", driver="b", generation=2)]
    assert [names(found) for found in newest_slices(slices).values()] == [["a"], ["b"]]


def test_a_pool_without_slices_has_generation_zero() -> None:
    assert newest_generation([]) == 0
    assert newest_slices([]) == {}


@dataclass(frozen=True)
class Case:
    id: str
    slices: list[ResourceSlice]
    want: bool


CASES = [
    Case("one of one", published(1), want=True),
    Case("one of two", published(1, of=2), want=False),
    Case("two of two", published(1, 1, of=2), want=True),
    Case("two of one", published(1, 1), want=False),
    Case("slices that announce different counts", [*published(1, of=2), *published(1, of=1)], want=False),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_is_complete(case: Case) -> None:
    assert is_complete(case.slices) is case.want


@given(st.lists(st.tuples(st.sampled_from("pq"), st.integers(0, 3)), max_size=8))
def test_no_slice_of_the_pool_is_newer_than_those_that_count(drawn: list[tuple[str, int]]) -> None:
    slices = [resource_slice(str(number), pool=pool, generation=made) for number, (pool, made) in enumerate(drawn)]
    found = newest_slices(slices)
    for item in slices:
        pool_id = PoolId.of_slice(item)
        is_beaten = any(
            other.spec.pool.generation > item.spec.pool.generation
            for other in slices
            if (other.spec.driver, other.spec.pool.name) == (DRIVER, pool_id.pool)
        )
        assert (item in found[pool_id]) is not is_beaten
