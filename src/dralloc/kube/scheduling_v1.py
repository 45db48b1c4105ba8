"""`scheduling.k8s.io/v1`: priority classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.wire import Int32, printed

GROUP: Final = "scheduling.k8s.io"

# The system's priority classes always exist; no other class may use their prefix or a value above the users' maximum.
SYSTEM_PREFIX: Final = "system-"
SYSTEM_CLASSES: Final[Mapping[str, int]] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
USERS_HIGHEST: Final = 1_000_000_000

PREEMPT_LOWER: Final = "PreemptLowerPriority"
PREEMPT_NEVER: Final = "Never"
PREEMPTION_POLICIES: Final = (PREEMPT_LOWER, PREEMPT_NEVER)


class PriorityClass(ApiObject):
    value: Int32 = printed(0)
    global_default: bool = False
    description: str = ""
    preemption_policy: str | None = None
