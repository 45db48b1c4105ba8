"""`scheduling.k8s.io/v1`: how important pods are, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dralloc.api.meta_v1 import ApiObject
from dralloc.api.wire import Int32, printed

GROUP: Final = "scheduling.k8s.io"

# Classes of the system are there from the start; no other one may have a name like theirs, or a value beyond the users' highest.
SYSTEM_PREFIX: Final = "system-"
SYSTEM_CLASSES: Final[Mapping[str, int]] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
USERS_HIGHEST: Final = 1_000_000_000

PREEMPT_LOWER: Final = "PreemptLowerPriority"
PREEMPTION_POLICIES: Final = (PREEMPT_LOWER, "Never")


class PriorityClass(ApiObject):
    value: Int32 = printed(0)
    global_default: bool = False
    description: str = ""
    preemption_policy: str | None = None
