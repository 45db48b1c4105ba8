"""The resources that the client knows, by object type or by apiVersion and kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from dralloc.client.typed_resource import Object, TypedResource
from dralloc.kube.codec import decode
from dralloc.kube.conversion import to_hub
from dralloc.kube.kind import Kind
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.registry import KINDS, find_kind


class UnknownResource(LookupError):
    """No resource has this type or this apiVersion and kind; the message lists the known ones."""


@cache
def resource_for(object_type: type[Object]) -> TypedResource[Object]:
    """Returns the resource for the object type, in the hub version."""
    for kind in KINDS:
        if object_type is (kind.view or kind.hub):
            return _resource(kind, object_type)
    known = ", ".join((kind.view or kind.hub).__name__ for kind in KINDS)
    raise UnknownResource(f"{object_type.__name__} is not the type of a resource; known types: {known}")


@cache
def resource_read_as(object_type: type[Object], group: str = "") -> TypedResource[Object]:
    """Returns the resource of a kind that the server only stores, with a type of the same name to read its objects."""
    kind = next(kind for kind in KINDS if (kind.group, kind.kind) == (group, object_type.__name__))
    return _resource(kind, object_type)


def resource_of(item: ApiObject | Mapping[str, Any]) -> TypedResource[Any]:
    """Returns the resource of an object or document, in the version of the document."""
    if isinstance(item, ApiObject):
        return resource_for(type(item))
    api_version = str(item.get("apiVersion", ""))
    kind = find_kind(api_version, str(item.get("kind", "")))
    if kind is None:
        raise UnknownResource(f"no resource for apiVersion {item.get('apiVersion')!r}, kind {item.get('kind')!r}")
    resource = resource_for(kind.view or kind.hub)
    return resource if api_version == kind.api_version(kind.hub_version) else _in_version(resource, kind, api_version)


def _in_version(resource: TypedResource[Any], kind: Kind, api_version: str) -> TypedResource[Any]:
    """Returns the resource in another version; its objects are converted to the hub."""
    version = api_version.rpartition("/")[2]
    served = kind.served(version)
    assert served is not None, "the kind was found by its version"
    return replace(resource, version=version, read=lambda body: to_hub(decode(body, served.wire_type)))


def _resource(kind: Kind, object_type: type[Object]) -> TypedResource[Object]:
    return TypedResource(
        group=kind.group,
        version=kind.hub_version,
        plural=kind.plural,
        kind=kind.kind,
        namespaced=kind.namespaced,
        type=object_type,
    )
