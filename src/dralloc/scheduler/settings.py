"""What a scheduler can be configured with."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from dralloc.devices.identity import PoolId
from dralloc.kube.pod_v1 import DEFAULT_SCHEDULER
from dralloc.primitives.features import FeatureGates
from dralloc.scheduler.decide.strategy_choice import SPREADING, StrategySettings
from dralloc.scheduler.ownership.lease_rules import PoolLeaseSettings
from dralloc.scheduler.state.class_settings import ClassSettings
from dralloc.scheduler.state.pool_ownership import owns_every_pool

NAME: Final = "dralloc"
# While a pod is written, which takes two turns of a busy server, as many others as this are decided on: with fewer, both wait for each other.
BINDINGS_MAX: Final = 256
# The pods of a cluster whose only scheduler is ours: also those that name no scheduler.
ONLY_SCHEDULER_NAMES: Final = frozenset({NAME, DEFAULT_SCHEDULER})


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """`names` are the `schedulerName`s of our pods; `bindings_max` bounds how many pods are written at the same time.

    `identity` breaks ties between equally good nodes differently for each scheduler of a cluster.
    """

    names: frozenset[str] = frozenset({NAME})
    gates: FeatureGates = field(default_factory=FeatureGates.defaults)
    identity: str = NAME
    bindings_max: int = BINDINGS_MAX
    owns_pool: Callable[[PoolId], bool] = owns_every_pool
    strategies: StrategySettings = SPREADING
    class_settings: Mapping[str, ClassSettings] = field(default_factory=dict)
    # With these, pools are shared with other schedulers by leases.
    pool_leases: PoolLeaseSettings | None = None
    new_share_id: Callable[[], str] = lambda: str(uuid.uuid4())

    def rank(self, node: str) -> int:
        """The order of equally good nodes. Two schedulers must not prefer the same one of many."""
        return crc32(f"{self.identity}/{node}".encode())
