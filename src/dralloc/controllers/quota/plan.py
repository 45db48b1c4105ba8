"""What the status of a quota has to say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dralloc.api.core_v1 import ResourceQuota
from dralloc.primitives.quantity import Quantity

Amounts = Mapping[str, Quantity]


@dataclass(frozen=True, slots=True)
class WriteUsage:
    """Write these limits and what is used of them."""

    quota: ResourceQuota
    hard: Amounts
    used: Amounts

    @property
    def patch(self) -> dict[str, dict[str, Quantity | None]]:
        """The status as a merge patch: what it says no more is taken out."""
        before = self.quota.status
        return {
            "hard": {**dict.fromkeys(before.hard), **self.hard},
            "used": {**dict.fromkeys(before.used), **self.used},
        }


def plan_quota(quota: ResourceQuota, used: Amounts) -> tuple[WriteUsage, ...]:
    """The write that is needed, if any. Limits of which nobody counts the use are not shown as if they were held."""
    hard = {name: limit for name, limit in quota.spec.hard.items() if name in used}
    if (quota.status.hard, quota.status.used) == (hard, dict(used)):
        return ()
    return (WriteUsage(quota, hard, used),)
