"""Which pools this scheduler allocates from.

If another scheduler works in the same cluster and the API server does not guard devices, each pool must have one owner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from dralloc.devices.identity import PoolId


def owner_of(patterns: Sequence[str]) -> Callable[[PoolId], bool]:
    """Returns a predicate for pools that match one of the patterns `DRIVER` or `DRIVER/POOL`, with `*` and `?`.

    Without patterns it is true for every pool.
    """

    def owns(pool_id: PoolId) -> bool:
        return any(_matches(pool_id, pattern) for pattern in patterns)

    return owns if patterns else owns_every_pool


def owns_every_pool(_: PoolId) -> bool:
    return True


def _matches(pool_id: PoolId, pattern: str) -> bool:
    driver, separator, pool = pattern.partition("/")
    return fnmatchcase(pool_id.driver, driver) and (not separator or fnmatchcase(pool_id.pool, pool))
