"""What there is to know of a kind of objects: its names, its versions with their types, its write strategy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dralloc.kube.member_forms import MemberForms
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedVersion:
    """One version of a kind: its type there, and its deprecation."""

    version: str
    wire_type: type[ApiObject]
    deprecated_in: str = ""
    removed_in: str = ""
    # Whether an update without `resourceVersion` is accepted, and replaces whatever is stored.
    unconditional_update: bool = True
    # For a kind that we model only in part: the members of an object in this version, and in the hub's.
    forms: MemberForms | None = None


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of object in all its versions, the preferred one first."""

    group: str
    kind: str
    namespaced: bool
    versions: tuple[ServedVersion, ...]
    strategy: type[Strategy[Any]]
    # The type that is stored and used by the project.
    hub: type[ApiObject]
    # The view of a kind that we model only in part, and that is stored as `UnstructuredObject`.
    view: type[ApiObject] | None = None
    subresources: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    # The warning for objects that are stored but that no part of the project acts on.
    kept_only: str = ""
    # An update of an object that does not exist creates it.
    created_by_update: bool = False
    # The kind of another group whose objects these are; they are stored as that kind.
    stored_as: Kind | None = None
    # The feature gate without which the kind is not served.
    gate: str = ""

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @cached_property
    def plural(self) -> str:
        """The name in URLs, such as `resourceclaims` and `deviceclasses`: the plural that Kubernetes forms of a kind."""
        if self.singular.endswith("endpoints"):
            return self.singular
        if self.singular.endswith("y"):
            return f"{self.singular[:-1]}ies"
        return f"{self.singular}es" if self.singular.endswith("s") else f"{self.singular}s"

    @cached_property
    def resource(self) -> str:
        """The name with the group, such as `resourceclaims.resource.k8s.io`: unique among all kinds."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"

    @property
    def hub_version(self) -> str:
        return self.versions[0].version

    def api_version(self, version: str) -> str:
        return f"{self.group}/{version}" if self.group else version

    def served(self, version: str) -> ServedVersion | None:
        for served in self.versions:
            if served.version == version:
                return served
        return None

    def lacks(self, api_version: str) -> str:
        """Returns the message for a version that the kind does not have."""
        versions = ", ".join(served.version for served in self.versions)
        return f"there is no {self.kind} in {api_version}; it exists in {versions}"

    def deprecation_warning(self, version: str) -> str | None:
        """Returns the warning for a client that uses an old version."""
        served = self.served(version)
        if served is None or not served.deprecated_in:
            return None
        removed = f", unavailable in v{served.removed_in}+" if served.removed_in else ""
        return f"{self.api_version(version)} {self.kind} is deprecated in v{served.deprecated_in}+{removed}"
