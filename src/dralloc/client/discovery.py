"""API discovery: finds a server's resources by names such as plurals and short names, and by apiVersion and kind.

Since Kubernetes 1.30 two requests are enough; older servers need one for each version of each group.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dralloc.client.status_errors import error_of_response
from dralloc.client.transport import ClientRequest, Transport
from dralloc.client.typed_resource import ResourceAddress
from dralloc.primitives.decoders import UNREADABLE
from dralloc.primitives.errors import ApiError, NotFound
from dralloc.primitives.removals import removed_kind

AGGREGATED: Final = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedResource(ResourceAddress):
    """A resource of a server, and its names."""

    singular: str = ""
    short_names: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    # Names that stand for several resources.
    categories: tuple[str, ...] = ()

    @property
    def words(self) -> frozenset[str]:
        """The names that users may type, in lower case."""
        named = {self.plural, self.singular, self.kind.lower(), *self.short_names}
        return frozenset(filter(None, named))

    @property
    def full_name(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


class UnknownKind(LookupError):
    """The server has no such resource; the message suggests a similar name."""


@dataclass(frozen=True, slots=True)
class Discovery:
    """All resources of a server, the core group first, preferred versions before others."""

    resources: tuple[ServedResource, ...]

    def find(self, word: str) -> ServedResource:
        """Finds a resource by plural, singular, kind or short name, optionally followed by `.GROUP`."""
        name, _, group = word.lower().partition(".")
        for resource in self.resources:
            if name in resource.words and (not group or group in (resource.group, _version_and_group(resource))):
                return resource
        raise UnknownKind(removed_kind(group, name) or f"the server has no resource {word!r}{self._likely(name)}")

    def category(self, word: str) -> tuple[ServedResource, ...]:
        """Returns the resources of a category, each in its preferred version."""
        found = {(each.group, each.plural): each for each in reversed(self.resources) if word in each.categories}
        return tuple(each for each in self.resources if found.get((each.group, each.plural)) is each)

    def of_kind(self, api_version: str, kind: str) -> ServedResource:
        """Returns the resource for a manifest's apiVersion and kind."""
        for resource in self.resources:
            if resource.kind == kind and resource.api_version == api_version:
                return resource
        others = [resource.api_version for resource in self.resources if resource.kind == kind]
        if not others and (gone := removed_kind(api_version.rpartition("/")[0], kind)):
            raise UnknownKind(gone)
        hint = f"; it has {kind} in {', '.join(others)}" if others else self._likely(kind.lower())
        raise UnknownKind(f"the server has no {kind} in {api_version}{hint}")

    def versions(self, group: str, plural: str) -> tuple[str, ...]:
        """Returns the served versions of a resource, the preferred one first."""
        return tuple(each.version for each in self.resources if (each.group, each.plural) == (group, plural))

    def _likely(self, name: str) -> str:
        known = {word: resource.plural for resource in self.resources for word in resource.words}
        close = difflib.get_close_matches(name, known, n=1)
        return f", did you mean {known[close[0]]}?" if close else ""


def _version_and_group(resource: ServedResource) -> str:
    return f"{resource.version}.{resource.group}" if resource.group else resource.version


async def discover(transport: Transport) -> Discovery:
    """Reads everything that the server serves. A group whose aggregated server is unavailable is left out."""
    core, named = await asyncio.gather(*(_get(transport, path, AGGREGATED) for path in ("/api", "/apis")))
    if core.get("kind") == named.get("kind") == "APIGroupDiscoveryList":
        return Discovery((*_aggregated(core), *_aggregated(named)))
    return Discovery(tuple(await _one_by_one(transport, core, named)))


async def _get(transport: Transport, path: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    response = await transport.send(ClientRequest(method="GET", path=path, headers=headers or {}))
    if response.status == 404:
        raise NotFound(f"{path} does not exist; is this the address of a Kubernetes API server?")
    if response.status != 200:
        raise error_of_response(response.status, response.body)
    try:
        return dict(msgspec.json.decode(response.body))
    except (*UNREADABLE, TypeError, ValueError):
        raise ApiError(f"the answer to {path} is not from a Kubernetes API server") from None


def _aggregated(document: Mapping[str, Any]) -> Iterator[ServedResource]:
    for group in document.get("items") or ():
        for version in group.get("versions") or ():
            for entry in version.get("resources") or ():
                yield ServedResource(
                    group=group["metadata"].get("name") or "",
                    version=version["version"],
                    plural=entry["resource"],
                    kind=(entry.get("responseKind") or {}).get("kind", ""),
                    namespaced=entry.get("scope") == "Namespaced",
                    singular=entry.get("singularResource") or "",
                    short_names=tuple(entry.get("shortNames") or ()),
                    verbs=tuple(entry.get("verbs") or ()),
                    categories=tuple(entry.get("categories") or ()),
                )


async def _one_by_one(
    transport: Transport, core: Mapping[str, Any], named: Mapping[str, Any]
) -> Iterable[ServedResource]:
    places = [("", version) for version in core.get("versions") or ()]
    for group in named.get("groups") or ():
        preferred = (group.get("preferredVersion") or {}).get("version")
        versions = [entry["version"] for entry in group.get("versions") or ()]
        # The sort is stable: versions other than the preferred one stay in the server's order.
        places += [(group["name"], version) for version in sorted(versions, key=lambda each: each != preferred)]
    lists = await asyncio.gather(*(_resources(transport, group, version) for group, version in places))
    return [resource for listed in lists for resource in listed]


async def _resources(transport: Transport, group: str, version: str) -> list[ServedResource]:
    try:
        document = await _get(transport, f"/apis/{group}/{version}" if group else f"/api/{version}")
    except ApiError:
        return []
    return [
        ServedResource(
            group=group,
            version=version,
            plural=entry["name"],
            kind=entry["kind"],
            namespaced=bool(entry.get("namespaced")),
            singular=entry.get("singularName") or "",
            short_names=tuple(entry.get("shortNames") or ()),
            verbs=tuple(entry.get("verbs") or ()),
            categories=tuple(entry.get("categories") or ()),
        )
        for entry in document.get("resources") or ()
        # Names with a slash are subresources, such as pods/status.
        if "/" not in entry["name"]
    ]
