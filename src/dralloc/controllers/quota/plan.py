"""The status of a quota."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dralloc.api.core_v1 import ResourceQuota
from dralloc.primitives.quantity import Quantity

Amounts = Mapping[str, Quantity]


@dataclass(frozen=True, slots=True)
class WriteUsage:
    quota: ResourceQuota
    hard: Amounts
    used: Amounts

    @property
    def patch(self) -> dict[str, dict[str, Quantity | None]]:
        """The status as a merge patch that removes absent members."""
        before = self.quota.status
        return {
            "hard": {**dict.fromkeys(before.hard), **self.hard},
            "used": {**dict.fromkeys(before.used), **self.used},
        }


def plan_quota(quota: ResourceQuota, used: Amounts) -> tuple[WriteUsage, ...]:
    """The write that is needed, if any. Limits of resources that are not counted are left out of the status."""
    hard = {name: limit for name, limit in quota.spec.hard.items() if name in used}
    if (quota.status.hard, quota.status.used) == (hard, dict(used)):
        return ()
    return (WriteUsage(quota, hard, used),)
