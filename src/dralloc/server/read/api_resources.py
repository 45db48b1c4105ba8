"""The served resources: every kind in each of its versions, and the store keys of its objects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dralloc.kube.kind import Kind
from dralloc.server.http.messages import warning_headers
from dralloc.server.read.stored_form import Presentation

REGISTRY: Final = "/registry/"
"""The keys of all objects begin with it, as those of Kubernetes do."""


@dataclass(frozen=True, slots=True, eq=False)
class ApiResource:
    """One kind in one version."""

    kind: Kind
    version: str
    presentation: Presentation
    # Sent with every response: as text, and as headers.
    deprecation_warning: str | None
    deprecation: tuple[tuple[bytes, bytes], ...]

    @property
    def group(self) -> str:
        return self.kind.group

    @property
    def plural(self) -> str:
        return self.kind.plural

    @property
    def api_version(self) -> str:
        return self.presentation.api_version


class ResourceTable:
    """All resources by group, version and plural."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self.kinds = tuple(kinds)
        self._resources = {
            (kind.group, served.version, kind.plural): _resource(kind, served.version)
            for kind in self.kinds
            for served in kind.versions
        }
        self.groups = {kind.group for kind in self.kinds}

    def find(self, group: str, version: str, plural: str) -> ApiResource | None:
        return self._resources.get((group, version, plural))

    def hub(self, kind: Kind) -> ApiResource:
        """The kind in its stored version."""
        return self._resources[kind.group, kind.hub_version, kind.plural]


def prefix_of(kind: Kind, namespace: str = "") -> str:
    """The key prefix of all objects of a kind, or of those in one namespace."""
    kind = kind.stored_as or kind
    root = f"{REGISTRY}{kind.plural}.{kind.group}/" if kind.group else f"{REGISTRY}{kind.plural}/"
    return f"{root}{namespace}/" if kind.namespaced and namespace else root


def key_of(kind: Kind, namespace: str, name: str) -> str:
    return prefix_of(kind, namespace) + name


def namespace_of(kind: Kind, key: str) -> str:
    """The namespace in a key; empty for cluster-scoped kinds."""
    return key.rsplit("/", 2)[1] if kind.namespaced else ""


def name_of(key: str) -> str:
    return key.rpartition("/")[2]


def _resource(kind: Kind, version: str) -> ApiResource:
    warning = kind.deprecation_warning(version)
    return ApiResource(
        kind, version, Presentation(kind, version), warning, warning_headers([warning]) if warning else ()
    )
