"""Which thing a URL path names: a resource, a discovery document, a health check, or nothing.

Made by hand because the paths of a Kubernetes API are regular: splitting at the slashes and looking at a
few positions is all that is needed, and it happens on every request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# `/namespaces/NAME/finalize` is about the namespace itself; any other word there names a kind inside it.
_NAMESPACE_SUBRESOURCES: Final = frozenset({"status", "finalize"})


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """A collection, one object in it, or a sub-resource of that object."""

    group: str
    version: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class GroupPath:
    """`/apis/GROUP`."""

    group: str


@dataclass(frozen=True, slots=True)
class VersionPath:
    """`/api/v1` or `/apis/GROUP/VERSION`."""

    group: str
    version: str


@dataclass(frozen=True, slots=True)
class PlainPath:
    """A path outside the groups, such as `/healthz`; it holds no trailing slash."""

    path: str


Path = ResourcePath | GroupPath | VersionPath | PlainPath


def parse_path(path: str) -> Path | None:
    """What the path names, or `None` when no API has such a path. The path is not escaped."""
    parts = path.split("/")
    while parts and not parts[-1]:
        parts.pop()
    match parts:
        case ["", "api", version, *rest] if rest:
            return _resource("", version, rest)
        case ["", "api", version]:
            return VersionPath("", version)
        case ["", "apis", group, version, *rest] if rest:
            return _resource(group, version, rest)
        case ["", "apis", group, version]:
            return VersionPath(group, version)
        case ["", "apis", group]:
            return GroupPath(group)
        case ["", *rest]:
            return PlainPath("/" + "/".join(rest))
        case []:
            return PlainPath("/")
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
