"""What a scheduler can be configured with."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from dralloc.devices.identity import PoolId
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.state.pool_ownership import owns_every_pool

NAME: Final = "dralloc"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """`names` are the `schedulerName`s of our pods; `bindings_max` bounds how many pods are written at the same time.

    `identity` breaks ties between equally good nodes differently for each scheduler of a cluster.
    """

    names: frozenset[str] = frozenset({NAME})
    gates: FeatureGates = field(default_factory=FeatureGates.defaults)
    identity: str = NAME
    bindings_max: int = 64
    owns_pool: Callable[[PoolId], bool] = owns_every_pool
    new_share_id: Callable[[], str] = lambda: str(uuid.uuid4())
