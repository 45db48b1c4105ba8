"""Which nodes of a verdict table have changed, by what it means for their verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import NamedTuple

from dralloc.devices.identity import PoolId
from dralloc.scheduler.decide.pod_requirements import PodRequirements
from dralloc.scheduler.decide.search_effort import SearchEffort
from dralloc.scheduler.state.change_log import ChangeLog, ChangeReader


class ChangedNodes(NamedTuple):
    """Nodes that may have another verdict; nodes that may only be worse; and, by pool, the many nodes that may be better."""

    improved: dict[str, None]
    worsened: set[str]
    improvable: tuple[Set[str], ...]


class VerdictChanges:
    """The changes since they were read last. A pool that few nodes see counts as part of these nodes."""

    def __init__(self, changes: ChangeLog, requirements: PodRequirements, effort: SearchEffort) -> None:
        self._changes = changes
        self._wants_used_devices = requirements.demand is not None and requirements.demand.wants_used_devices
        self._few_max = effort.few_max
        self._reader = ChangeReader(changes)
        # The nodes that see a pool which others may see, too.
        self._seen_by: dict[PoolId, set[str]] = {}

    def watch(self, name: str, pools: Iterable[PoolId]) -> None:
        """The verdict of the node depends on these pools, which others may see, too."""
        for pool_id in pools:
            self._seen_by.setdefault(pool_id, set()).add(name)

    def read(self) -> ChangedNodes | None:
        """None if everything may have changed."""
        changes, first = self._changes, self._reader.advance()
        if first is None:
            return None
        improved = dict.fromkeys(changes.changed.since(first))
        worsened = set(changes.worsened.since(first))
        freed: dict[PoolId, None] = {}
        if self._wants_used_devices:
            improved.update(dict.fromkeys(changes.taken.since(first)))
        if self._seen_by:
            # For a claim that wants used devices, what others take is as good as what they free.
            taken = list(changes.pools_taken.since(first))
            if self._wants_used_devices:
                freed.update(dict.fromkeys(taken))
            else:
                worsened.update(*filter(self._are_few, map(self._nodes_of, taken)))
            freed.update(dict.fromkeys(changes.pools_freed.since(first)))
        if not freed:
            return ChangedNodes(improved, worsened, ())
        seen = [self._nodes_of(pool_id) for pool_id in freed]
        for names in filter(self._are_few, seen):
            improved.update(dict.fromkeys(names))
        return ChangedNodes(improved, worsened, tuple(names for names in seen if not self._are_few(names)))

    def _nodes_of(self, pool_id: PoolId) -> Set[str]:
        return self._seen_by.get(pool_id, frozenset())

    def _are_few(self, names: Set[str]) -> bool:
        return len(names) <= self._few_max
