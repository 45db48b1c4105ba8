"""When taints of a node evict a pod."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from dralloc.controllers.node_taint_eviction import eviction_time
from dralloc.kube.core_v1 import Taint
from dralloc.kube.pod_v1 import Toleration

SINCE = datetime(2026, 1, 1, tzinfo=UTC)
X, Y = Taint(key="x", value="1", effect="NoExecute"), Taint(key="y", effect="NoExecute")


def tolerating(key: str = "x", seconds: int | None = None, **fields: str) -> Toleration:
    return Toleration(key=key, toleration_seconds=seconds, **{"operator": "Exists", **fields})


@pytest.mark.parametrize(
    ("taints", "tolerations", "seconds"),
    [
        ((), (), None),
        ((X,), (), 0),
        ((X,), (tolerating(),), None),
        ((X,), (tolerating(seconds=60),), 60),
        ((X,), (tolerating(seconds=-5),), 0),
        ((X,), (tolerating(seconds=60), tolerating()), 60),
        ((X,), (tolerating(), tolerating(seconds=60)), None),
        ((X, Y), (tolerating(),), 0),
        ((X, Y), (tolerating(), tolerating("y", seconds=7)), 7),
        ((X, Y), (tolerating("", seconds=9),), 9),
        ((X,), (tolerating(effect="NoSchedule"),), 0),
        ((X,), (tolerating(operator="Equal", value="2"),), 0),
        ((X,), (tolerating(operator="Equal", value="1"),), None),
        ((X,), (tolerating(seconds=2**62),), None),
    ],
)
def test_eviction_time(taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...], seconds: int | None) -> None:
    wanted = None if seconds is None else SINCE + timedelta(seconds=seconds)
    assert eviction_time(taints, tolerations, SINCE) == wanted
