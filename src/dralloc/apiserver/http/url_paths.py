"""Parses URL paths: a resource, a discovery document, another path such as a health check, or nothing.

Kubernetes' paths are regular, so splitting at the slashes is enough, and fast: every request is parsed here.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

# `/namespaces/NAME/finalize` is a subresource of the namespace; any other name there is a resource inside it.
_NAMESPACE_SUBRESOURCES: Final = frozenset({"status", "finalize"})


class ResourcePath(Struct, frozen=True, gc=False):
    """A collection, one object in it, or a subresource of that object."""

    group: str
    version: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


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


def parse_path(path: str) -> Path | None:
    """The parsed path, or `None` if no API has such a path. The argument is not percent-encoded."""
    parts = path.rstrip("/").split("/")
    if len(parts) > 3 and parts[1] == "api" and not parts[0]:
        return _resource("", parts[2], parts[3:])
    if len(parts) > 4 and parts[1] == "apis" and not parts[0]:
        return _resource(parts[2], parts[3], parts[4:])
    match parts:
        case ["", "api", version]:
            return VersionPath("", version)
        case ["", "apis", group, version]:
            return VersionPath(group, version)
        case ["", "apis", group]:
            return GroupPath(group)
        case ["", *rest]:
            return PlainPath("/" + "/".join(rest))
    return None


def _resource(group: str, version: str, parts: list[str]) -> ResourcePath | None:
    """`[namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]]`."""
    namespace = ""
    if len(parts) >= 3 and parts[0] == "namespaces" and parts[2] not in _NAMESPACE_SUBRESOURCES:
        namespace, parts = parts[1], parts[2:]
        if not namespace:
            return None
    if len(parts) > 3 or not all(parts):
        return None
    resource, name, subresource = (*parts, "", "")[:3]
    return ResourcePath(group, version, resource, namespace, name, subresource)
