"""The status that a quota needs."""

from __future__ import annotations

from typing import Any

import pytest

from dralloc.controllers.quota import plan_quota
from dralloc.kube.core_v1 import ResourceQuota
from dralloc.primitives.quantity import Quantity


def amounts(**named: int) -> dict[str, Quantity]:
    return {name: Quantity.of(amount) for name, amount in named.items()}


def a_quota(hard: dict[str, Quantity], used: dict[str, Quantity], shown: dict[str, Quantity] | None = None) -> Any:
    quota = ResourceQuota()
    return type(quota)(
        spec=type(quota.spec)(hard=hard),
        status=type(quota.status)(hard=hard if shown is None else shown, used=used),
    )


@pytest.mark.parametrize(
    ("quota", "used", "want"),
    [
        (a_quota(amounts(a=5), amounts(a=1)), amounts(a=1), None),
        (a_quota(amounts(a=5), amounts(a=1)), amounts(a=2), {"hard": amounts(a=5), "used": amounts(a=2)}),
        (a_quota(amounts(a=5, b=1), {}, {}), amounts(a=0), {"hard": amounts(a=5), "used": amounts(a=0)}),
        (
            a_quota(amounts(a=5), amounts(a=1, b=1), amounts(a=5, b=9)),
            amounts(a=1),
            {"hard": {**amounts(a=5), "b": None}, "used": {**amounts(a=1), "b": None}},
        ),
    ],
    ids=["no change", "a changed usage", "uncounted resources are left out", "removed limits are removed"],
)
def test_plan_quota(quota: ResourceQuota, used: dict[str, Quantity], want: Any) -> None:
    actions = plan_quota(quota, used)
    assert [action.patch for action in actions] == ([] if want is None else [want])
