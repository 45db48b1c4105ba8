"""Parses URL paths: a resource, a discovery document, or another path such as a health check.

Kubernetes' paths are regular, so splitting at the slashes is enough, and fast: every request is parsed here. Authorization and
dispatch use the same parsed path, so no spelling of a path is authorized as one thing and served as another.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from msgspec import Struct

# `/namespaces/NAME/finalize` is a subresource of the namespace; any other name there is a resource inside it.
_NAMESPACE_SUBRESOURCES: Final = frozenset({"status", "finalize"})
# Old paths that begin with the verb: `/api/v1/watch/pods`.
_VERBS_IN_PATHS: Final = frozenset({"watch", "proxy"})
# As many as may be in progress; a path has at most the length of a request's head.
PATHS_KEPT: Final = 256


class ResourcePath(Struct, frozen=True, gc=False):
    """A collection, one object in it, or a subresource of that object."""

    group: str
    version: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    # The verb of an old path such as `/api/v1/watch/pods`.
    verb: str = ""
    # What follows the subresource, as in `pods/NAME/proxy/a/b`.
    tail: str = ""


class GroupPath(Struct, frozen=True, gc=False):
    """`/apis/GROUP`."""

    group: str


class VersionPath(Struct, frozen=True, gc=False):
    """`/api/v1` or `/apis/GROUP/VERSION`."""

    group: str
    version: str


class PlainPath(Struct, frozen=True, gc=False):
    """A path outside the API groups, such as `/healthz`, without a trailing slash."""

    path: str


Path = ResourcePath | GroupPath | VersionPath | PlainPath


# A request is parsed for its priority, its access, its metrics and its answer.
@lru_cache(maxsize=PATHS_KEPT)
def parse_path(path: str) -> Path:
    """The parsed path. The argument is not percent-encoded."""
    parts = path.strip("/").split("/")
    if len(parts) > 2 and parts[0] == "api":
        return _resource("", parts[1], parts[2:])
    if len(parts) > 3 and parts[0] == "apis":
        return _resource(parts[1], parts[2], parts[3:])
    match parts:
        case ["api", version]:
            return VersionPath("", version)
        case ["apis", group, version]:
            return VersionPath(group, version)
        case ["apis", group]:
            return GroupPath(group)
    return PlainPath("/" + "/".join(parts))


def _resource(group: str, version: str, parts: list[str]) -> ResourcePath:
    """`[watch/][namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE[/TAIL]]]`."""
    verb = namespace = ""
    if len(parts) > 1 and parts[0] in _VERBS_IN_PATHS:
        verb, parts = parts[0], parts[1:]
    if len(parts) >= 3 and parts[0] == "namespaces" and parts[2] not in _NAMESPACE_SUBRESOURCES:
        namespace, parts = parts[1], parts[2:]
    resource, name, subresource = (*parts, "", "")[:3]
    return ResourcePath(group, version, resource, namespace, name, subresource, verb, "/".join(parts[3:]))
