"""When a pod must leave its node because of taints with the effect NoExecute."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from dralloc.api.core_v1 import Node, Taint
from dralloc.api.node_taints import NO_EXECUTE, tolerates
from dralloc.api.pod_v1 import Toleration


def evicting_taints(node: Node | None) -> tuple[Taint, ...]:
    taints = node.spec.taints if node is not None else ()
    return tuple(taint for taint in taints if taint.effect == NO_EXECUTE)


def eviction_time(taints: Iterable[Taint], tolerations: Sequence[Toleration], since: datetime) -> datetime | None:
    """When taints that are there since this time evict a pod with these tolerations; None if never.

    Of several tolerations of a taint, the first counts.
    """
    limits: list[int] = []
    for taint in taints:
        toleration = next((each for each in tolerations if tolerates(each, taint)), None)
        if toleration is None:
            return since
        if toleration.toleration_seconds is not None:
            limits.append(max(toleration.toleration_seconds, 0))
    try:
        return since + timedelta(seconds=min(limits)) if limits else None
    except OverflowError:
        # Later than the largest representable date.
        return None
