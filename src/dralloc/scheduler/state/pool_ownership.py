"""Which pools this scheduler gives devices of.

Where another scheduler works in the same cluster and the API server does not guard devices, each pool must have one owner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from dralloc.devices.identity import PoolId


def owner_of(patterns: Sequence[str]) -> Callable[[PoolId], bool]:
    """Whether a pool is ours: `DRIVER` or `DRIVER/POOL`, with `*` and `?`. All are, where nothing is said."""

    def owns(pool_id: PoolId) -> bool:
        return any(_matches(pool_id, pattern) for pattern in patterns)

    return owns if patterns else _everything


def _everything(_: PoolId) -> bool:
    return True


def _matches(pool_id: PoolId, pattern: str) -> bool:
    driver, separator, pool = pattern.partition("/")
    return fnmatchcase(pool_id.driver, driver) and (not separator or fnmatchcase(pool_id.pool, pool))
