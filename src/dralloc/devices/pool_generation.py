"""The newest generation of a pool, and whether it is completely published.

Drivers change a pool by publishing its slices with a higher generation. Older slices no longer count, and nothing is
allocated from the pool until the new generation has as many slices as it announces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from dralloc.api.resource_v1 import ResourceSlice
from dralloc.devices.identity import PoolId

Slice = TypeVar("Slice")


def newest(slices: Iterable[Slice], generation: Callable[[Slice], int]) -> list[Slice]:
    """The slices of the newest generation among slices of one pool."""
    slices = list(slices)
    highest = max(map(generation, slices), default=0)
    return [item for item in slices if generation(item) == highest]


def generation_of(resource_slice: ResourceSlice) -> int:
    return resource_slice.spec.pool.generation


def newest_generation(slices: Iterable[ResourceSlice]) -> int:
    """The newest generation among slices of one pool; 0 if there are none."""
    return max(map(generation_of, slices), default=0)


def newest_slices(slices: Iterable[ResourceSlice]) -> dict[PoolId, list[ResourceSlice]]:
    """The slices of the newest generation of each pool, in the given order."""
    pools: dict[PoolId, list[ResourceSlice]] = {}
    for item in slices:
        pools.setdefault(PoolId.of_slice(item), []).append(item)
    return {pool_id: newest(members, generation_of) for pool_id, members in pools.items()}


def is_complete(slices: Sequence[ResourceSlice]) -> bool:
    """True if slices of one generation of a pool are as many as each of them announces."""
    return all(item.spec.pool.resource_slice_count == len(slices) for item in slices)
