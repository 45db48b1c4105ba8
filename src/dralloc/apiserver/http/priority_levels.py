"""The priority level of a request: who shares the server with whom when it is busy."""

from __future__ import annotations

from collections.abc import Hashable
from enum import StrEnum
from typing import Final

from dralloc.access.users import COMPONENTS, User
from dralloc.apiserver.http.url_paths import ResourcePath, parse_path


class PriorityLevel(StrEnum):
    """The levels of Kubernetes' default configuration, as far as they differ here; the value is the name in metrics.

    Text, because the hash of other enumerations is computed by Python: levels are keys of queues.
    """

    EXEMPT = "exempt"
    LEADER_ELECTION = "leader-election"
    SYSTEM = "system"
    WORKLOAD_HIGH = "workload-high"
    GLOBAL_DEFAULT = "global-default"
    # Long reads of ordinary users.
    LISTS = "lists"
    CATCH_ALL = "catch-all"


# What each level gets of a busy loop, relative to the others.
SHARES: Final[dict[Hashable, float]] = {
    PriorityLevel.LEADER_ELECTION: 40.0,
    PriorityLevel.SYSTEM: 30.0,
    PriorityLevel.WORKLOAD_HIGH: 40.0,
    PriorityLevel.GLOBAL_DEFAULT: 20.0,
    PriorityLevel.LISTS: 5.0,
    PriorityLevel.CATCH_ALL: 5.0,
}
_HEALTH: Final = frozenset({"/healthz", "/livez", "/readyz"})
_COMPONENTS: Final = frozenset({"system:kube-scheduler", "system:kube-controller-manager"})
_COMPONENT_GROUPS: Final = frozenset({"system:serviceaccounts:kube-system", COMPONENTS})
_NODES: Final = "system:nodes"
_UNAUTHENTICATED: Final = "system:unauthenticated"


def priority_level(method: str, path: str, query: bytes, user: User) -> PriorityLevel:
    """The level of a request."""
    if path.rstrip("/") in _HEALTH:
        return PriorityLevel.EXEMPT
    if _UNAUTHENTICATED in user.groups:
        return PriorityLevel.CATCH_ALL
    parsed = parse_path(path) if method in ("GET", "DELETE") or "/leases" in path else None
    if isinstance(parsed, ResourcePath) and parsed.resource == "leases":
        return PriorityLevel.LEADER_ELECTION
    if _NODES in user.groups:
        return PriorityLevel.SYSTEM
    if user.name in _COMPONENTS or not _COMPONENT_GROUPS.isdisjoint(user.groups):
        return PriorityLevel.WORKLOAD_HIGH
    is_list = isinstance(parsed, ResourcePath) and not parsed.name and method in ("GET", "DELETE")
    return PriorityLevel.LISTS if is_list and b"watch=" not in query else PriorityLevel.GLOBAL_DEFAULT
