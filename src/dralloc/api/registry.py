"""The kinds that we serve: their names, versions and shapes, and the rules by which they are written.

Decoding, admission, discovery and the command line read this table; nothing else knows which kinds there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dralloc.api import resource_v1, v1beta1
from dralloc.api.convert import V1, V1BETA1, V1BETA2
from dralloc.api.meta_v1 import ApiObject
from dralloc.api.strategies import (
    DeviceClassStrategy,
    DeviceTaintRuleStrategy,
    ResourceClaimStrategy,
    ResourceClaimTemplateStrategy,
    ResourceSliceStrategy,
)
from dralloc.api.strategy import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedVersion:
    """One version of a kind: the shape that it has there, and how long it will be served."""

    version: str
    wire_type: type[ApiObject]
    deprecated_in: str = ""
    removed_in: str = ""
    # Whether an update without `resourceVersion` is taken, and replaces whatever is stored.
    unconditional_update: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of object in all its versions, the preferred one first."""

    group: str
    kind: str
    plural: str
    namespaced: bool
    versions: tuple[ServedVersion, ...]
    strategy: type[Strategy[Any]]
    # The shape that is stored and worked with.
    hub: type[ApiObject]
    subresources: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    # What a list can be filtered by besides labels.
    selectable_fields: tuple[str, ...] = ("metadata.name",)

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"

    @property
    def hub_version(self) -> str:
        return self.versions[0].version

    def api_version(self, version: str) -> str:
        return f"{self.group}/{version}" if self.group else version

    def served(self, version: str) -> ServedVersion | None:
        return next((served for served in self.versions if served.version == version), None)

    def deprecation_warning(self, version: str) -> str | None:
        """What to tell a client that uses an old version."""
        served = self.served(version)
        if served is None or not served.deprecated_in:
            return None
        removed = f", unavailable in v{served.removed_in}+" if served.removed_in else ""
        return f"{self.api_version(version)} {self.kind} is deprecated in v{served.deprecated_in}+{removed}"


def _v1(wire_type: type[ApiObject], *, unconditional_update: bool = True) -> ServedVersion:
    return ServedVersion(version=V1, wire_type=wire_type, unconditional_update=unconditional_update)


def _v1beta2(wire_type: type[ApiObject]) -> ServedVersion:
    return ServedVersion(version=V1BETA2, wire_type=wire_type, deprecated_in="1.36", removed_in="1.39")


def _v1beta1(wire_type: type[ApiObject]) -> ServedVersion:
    return ServedVersion(version=V1BETA1, wire_type=wire_type, deprecated_in="1.35", removed_in="1.38")


_NAMESPACED_FIELDS: Final = ("metadata.name", "metadata.namespace")

RESOURCE_SLICE: Final = Kind(
    group=resource_v1.GROUP,
    kind="ResourceSlice",
    plural="resourceslices",
    namespaced=False,
    versions=(_v1(resource_v1.ResourceSlice), _v1beta2(resource_v1.ResourceSlice), _v1beta1(v1beta1.ResourceSlice)),
    strategy=ResourceSliceStrategy,
    hub=resource_v1.ResourceSlice,
    selectable_fields=("metadata.name", "spec.nodeName", "spec.driver", "spec.pool.name"),
)

DEVICE_CLASS: Final = Kind(
    group=resource_v1.GROUP,
    kind="DeviceClass",
    plural="deviceclasses",
    namespaced=False,
    versions=(_v1(resource_v1.DeviceClass), _v1beta2(resource_v1.DeviceClass), _v1beta1(resource_v1.DeviceClass)),
    strategy=DeviceClassStrategy,
    hub=resource_v1.DeviceClass,
)

RESOURCE_CLAIM: Final = Kind(
    group=resource_v1.GROUP,
    kind="ResourceClaim",
    plural="resourceclaims",
    namespaced=True,
    versions=(_v1(resource_v1.ResourceClaim), _v1beta2(resource_v1.ResourceClaim), _v1beta1(v1beta1.ResourceClaim)),
    strategy=ResourceClaimStrategy,
    hub=resource_v1.ResourceClaim,
    subresources=("status",),
    selectable_fields=_NAMESPACED_FIELDS,
)

RESOURCE_CLAIM_TEMPLATE: Final = Kind(
    group=resource_v1.GROUP,
    kind="ResourceClaimTemplate",
    plural="resourceclaimtemplates",
    namespaced=True,
    versions=(
        _v1(resource_v1.ResourceClaimTemplate),
        _v1beta2(resource_v1.ResourceClaimTemplate),
        _v1beta1(v1beta1.ResourceClaimTemplate),
    ),
    strategy=ResourceClaimTemplateStrategy,
    hub=resource_v1.ResourceClaimTemplate,
    selectable_fields=_NAMESPACED_FIELDS,
)

DEVICE_TAINT_RULE: Final = Kind(
    group=resource_v1.GROUP,
    kind="DeviceTaintRule",
    plural="devicetaintrules",
    namespaced=False,
    versions=(
        _v1(resource_v1.DeviceTaintRule, unconditional_update=False),
        ServedVersion(version=V1BETA2, wire_type=resource_v1.DeviceTaintRule, deprecated_in="1.39", removed_in="1.42"),
    ),
    strategy=DeviceTaintRuleStrategy,
    hub=resource_v1.DeviceTaintRule,
    subresources=("status",),
)

KINDS: Final[tuple[Kind, ...]] = (
    RESOURCE_SLICE,
    DEVICE_CLASS,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    DEVICE_TAINT_RULE,
)

_BY_KIND: Final[Mapping[tuple[str, str], Kind]] = {
    (kind.api_version(served.version), kind.kind): kind for kind in KINDS for served in kind.versions
}
_BY_RESOURCE: Final[Mapping[tuple[str, str, str], Kind]] = {
    (kind.group, served.version, kind.plural): kind for kind in KINDS for served in kind.versions
}


def find_kind(api_version: str, kind: str) -> Kind | None:
    """The kind that a manifest's `apiVersion` and `kind` name."""
    return _BY_KIND.get((api_version, kind))


def find_resource(group: str, version: str, plural: str) -> Kind | None:
    """The kind that a URL names."""
    return _BY_RESOURCE.get((group, version, plural))
