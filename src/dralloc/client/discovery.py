"""What a server serves: resources by the words that people use for them, and by what manifests say.

Servers since Kubernetes 1.30 tell everything in two answers; older ones in one for each version of each group.
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
from dralloc.primitives.errors import ApiError, NotFound

AGGREGATED: Final = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedResource(ResourceAddress):
    """A resource of a server, and what it is called there."""

    singular: str = ""
    short_names: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    # Words that mean several resources at once.
    categories: tuple[str, ...] = ()

    @property
    def words(self) -> frozenset[str]:
        """What people may call it, in small letters."""
        named = {self.plural, self.singular, self.kind.lower(), *self.short_names}
        return frozenset(filter(None, named))

    @property
    def full_name(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


class UnknownKind(LookupError):
    """Nothing of that name is served; the message says what may be meant."""


@dataclass(frozen=True, slots=True)
class Discovery:
    """All resources of a server, the core group first, preferred versions before others."""

    resources: tuple[ServedResource, ...]

    def find(self, word: str) -> ServedResource:
        """The resource that a plural, a singular, a kind or a short name means, also followed by `.GROUP`."""
        name, _, group = word.lower().partition(".")
        for resource in self.resources:
            if name in resource.words and (not group or group in (resource.group, _version_and_group(resource))):
                return resource
        raise UnknownKind(f"the server has no resource {word!r}{self._likely(name)}")

    def category(self, word: str) -> tuple[ServedResource, ...]:
        """The resources that a word for several means, each in its preferred version."""
        found = {(each.group, each.plural): each for each in reversed(self.resources) if word in each.categories}
        return tuple(each for each in self.resources if found.get((each.group, each.plural)) is each)

    def of_kind(self, api_version: str, kind: str) -> ServedResource:
        """The resource that objects of a manifest are kept in."""
        for resource in self.resources:
            if resource.kind == kind and resource.api_version == api_version:
                return resource
        others = [resource.api_version for resource in self.resources if resource.kind == kind]
        hint = f"; it has {kind} in {', '.join(others)}" if others else self._likely(kind.lower())
        raise UnknownKind(f"the server has no {kind} in {api_version}{hint}")

    def versions(self, group: str, plural: str) -> tuple[str, ...]:
        """The versions in which a resource is served, the preferred one first."""
        return tuple(each.version for each in self.resources if (each.group, each.plural) == (group, plural))

    def _likely(self, name: str) -> str:
        known = {word: resource.plural for resource in self.resources for word in resource.words}
        close = difflib.get_close_matches(name, known, n=1)
        return f", did you mean {known[close[0]]}?" if close else ""


def _version_and_group(resource: ServedResource) -> str:
    return f"{resource.version}.{resource.group}" if resource.group else resource.version


async def discover(transport: Transport) -> Discovery:
    """Ask the server for everything that it serves. A group whose own server is away is left out."""
    core, named = await asyncio.gather(*(_get(transport, path, AGGREGATED) for path in ("/api", "/apis")))
    if core.get("kind") == named.get("kind") == "APIGroupDiscoveryList":
        return Discovery((*_aggregated(core), *_aggregated(named)))
    return Discovery(tuple(await _one_by_one(transport, core, named)))


async def _get(transport: Transport, path: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    response = await transport.send(ClientRequest(method="GET", path=path, headers=headers or {}))
    if response.status == 404:
        raise NotFound(f"there is nothing at {path}; this is hardly the address of a Kubernetes API server")
    if response.status != 200:
        raise error_of_response(response.status, response.body)
    try:
        return dict(msgspec.json.decode(response.body))
    except (msgspec.DecodeError, TypeError, ValueError):
        raise ApiError(f"the answer to {path} is not one of a Kubernetes API server") from None


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
        # The sort is stable: beside the preferred one, versions stay in the server's order.
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
        # A slash is in the names of parts of objects, such as pods/status.
        if "/" not in entry["name"]
    ]
