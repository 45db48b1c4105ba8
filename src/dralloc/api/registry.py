"""The served kinds: their names, versions and types, and their write strategies.

Decoding, admission, discovery and the command line read this table; the list of kinds exists nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dralloc.api import apps_v1, batch_v1, coordination_v1, rbac_v1, resource_v1, scheduling_v1, v1beta1
from dralloc.api.codec import decode, encode
from dralloc.api.conversion import V1, V1BETA1, V1BETA2
from dralloc.api.core_strategies import (
    ClusterRoleBindingStrategy,
    ClusterRoleStrategy,
    DaemonSetStrategy,
    DeploymentStrategy,
    EventStrategy,
    JobStrategy,
    LeaseStrategy,
    NamespaceStrategy,
    NodeStrategy,
    PodStrategy,
    PriorityClassStrategy,
    ResourceQuotaStrategy,
    RoleBindingStrategy,
    RoleStrategy,
    ServiceAccountStrategy,
    UnstructuredStrategy,
)
from dralloc.api.meta_v1 import ApiObject
from dralloc.api.resource_strategies import (
    DeviceClassStrategy,
    DeviceTaintRuleStrategy,
    ResourceClaimStrategy,
    ResourceClaimTemplateStrategy,
    ResourceSliceStrategy,
)
from dralloc.api.strategy import Strategy
from dralloc.api.unstructured_object import UnstructuredObject, print_unstructured, read_unstructured


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedVersion:
    """One version of a kind: its type there, and its deprecation."""

    version: str
    wire_type: type[ApiObject]
    deprecated_in: str = ""
    removed_in: str = ""
    # Whether an update without `resourceVersion` is accepted, and replaces whatever is stored.
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
    # The type that is stored and used by the project.
    hub: type[ApiObject]
    # The view of a kind that we model only in part, and that is stored as `UnstructuredObject`.
    view: type[ApiObject] | None = None
    subresources: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    # The warning for objects that are stored but that no part of the project acts on.
    kept_only: str = ""
    # The supported field selectors.
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


def _core_kind(kind: str, plural: str, strategy: type[UnstructuredStrategy], **options: Any) -> Kind:
    """A kind that we model only in part; it has one version."""
    return Kind(
        **{"group": "", "namespaced": True, "selectable_fields": _NAMESPACED_FIELDS, **options},
        kind=kind,
        plural=plural,
        versions=(_v1(UnstructuredObject),),
        strategy=strategy,
        hub=UnstructuredObject,
        view=strategy.rules.view_type,
    )


POD: Final = _core_kind(
    "Pod",
    "pods",
    PodStrategy,
    subresources=("binding", "eviction", "status"),
    short_names=("po",),
    selectable_fields=(
        *_NAMESPACED_FIELDS,
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "status.phase",
        "status.nominatedNodeName",
    ),
)
NODE: Final = _core_kind(
    "Node",
    "nodes",
    NodeStrategy,
    namespaced=False,
    subresources=("status",),
    short_names=("no",),
    selectable_fields=("metadata.name", "spec.unschedulable"),
)
NAMESPACE: Final = _core_kind(
    "Namespace",
    "namespaces",
    NamespaceStrategy,
    namespaced=False,
    subresources=("finalize", "status"),
    short_names=("ns",),
    selectable_fields=("metadata.name", "status.phase"),
)
EVENT: Final = _core_kind(
    "Event",
    "events",
    EventStrategy,
    short_names=("ev",),
    selectable_fields=(
        *_NAMESPACED_FIELDS,
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
)
RESOURCE_QUOTA: Final = _core_kind(
    "ResourceQuota", "resourcequotas", ResourceQuotaStrategy, subresources=("status",), short_names=("quota",)
)
LEASE: Final = _core_kind("Lease", "leases", LeaseStrategy, group=coordination_v1.GROUP)
JOB: Final = _core_kind("Job", "jobs", JobStrategy, group=batch_v1.GROUP, subresources=("status",))
PRIORITY_CLASS: Final = _core_kind(
    "PriorityClass",
    "priorityclasses",
    PriorityClassStrategy,
    group=scheduling_v1.GROUP,
    namespaced=False,
    short_names=("pc",),
    selectable_fields=("metadata.name",),
)

# --- Objects that install programs: stored, but not acted on ------------------------------------------------------

SERVICE_ACCOUNT: Final = _core_kind(
    "ServiceAccount",
    "serviceaccounts",
    ServiceAccountStrategy,
    short_names=("sa",),
    kept_only="service accounts are stored, but no tokens are issued for them",
)
_NOT_RUN: Final = "is stored, but no controller creates its pods"
DEPLOYMENT: Final = _core_kind(
    "Deployment",
    "deployments",
    DeploymentStrategy,
    group=apps_v1.GROUP,
    short_names=("deploy",),
    kept_only=f"a Deployment {_NOT_RUN}",
)
DAEMON_SET: Final = _core_kind(
    "DaemonSet",
    "daemonsets",
    DaemonSetStrategy,
    group=apps_v1.GROUP,
    short_names=("ds",),
    kept_only=f"a DaemonSet {_NOT_RUN}",
)
_NOT_ENFORCED: Final = "roles and bindings are stored, but not enforced"
ROLE: Final = _core_kind("Role", "roles", RoleStrategy, group=rbac_v1.GROUP, kept_only=_NOT_ENFORCED)
ROLE_BINDING: Final = _core_kind(
    "RoleBinding", "rolebindings", RoleBindingStrategy, group=rbac_v1.GROUP, kept_only=_NOT_ENFORCED
)
CLUSTER_ROLE: Final = _core_kind(
    "ClusterRole",
    "clusterroles",
    ClusterRoleStrategy,
    group=rbac_v1.GROUP,
    namespaced=False,
    selectable_fields=("metadata.name",),
    kept_only=_NOT_ENFORCED,
)
CLUSTER_ROLE_BINDING: Final = _core_kind(
    "ClusterRoleBinding",
    "clusterrolebindings",
    ClusterRoleBindingStrategy,
    group=rbac_v1.GROUP,
    namespaced=False,
    selectable_fields=("metadata.name",),
    kept_only=_NOT_ENFORCED,
)

KINDS: Final[tuple[Kind, ...]] = (
    RESOURCE_SLICE,
    DEVICE_CLASS,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    DEVICE_TAINT_RULE,
    POD,
    NODE,
    NAMESPACE,
    EVENT,
    RESOURCE_QUOTA,
    LEASE,
    JOB,
    PRIORITY_CLASS,
    SERVICE_ACCOUNT,
    DEPLOYMENT,
    DAEMON_SET,
    ROLE,
    ROLE_BINDING,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
)

_BY_KIND: Final[Mapping[tuple[str, str], Kind]] = {
    (kind.api_version(served.version), kind.kind): kind for kind in KINDS for served in kind.versions
}
_BY_NAME: Final[Mapping[tuple[str, str], Kind]] = {(kind.group, kind.kind): kind for kind in KINDS}
_BY_RESOURCE: Final[Mapping[tuple[str, str, str], Kind]] = {
    (kind.group, served.version, kind.plural): kind for kind in KINDS for served in kind.versions
}


def find_kind(api_version: str, kind: str) -> Kind | None:
    """Returns the kind for a manifest's `apiVersion` and `kind`."""
    return _BY_KIND.get((api_version, kind))


def find_in_other_versions(api_version: str, kind: str) -> Kind | None:
    """Returns the kind of that group and name in any version."""
    return _BY_NAME.get((api_version.rpartition("/")[0], kind))


def find_resource(group: str, version: str, plural: str) -> Kind | None:
    """Returns the kind that a URL names."""
    return _BY_RESOURCE.get((group, version, plural))


def read_object(kind: Kind, version: str, body: bytes) -> ApiObject:
    """Returns the object in the JSON, in the type of the version; raises `DecodeError`."""
    served = kind.served(version)
    assert served is not None, f"not a version of {kind.kind}: {version}"
    return decode(body, served.wire_type) if kind.view is None else read_unstructured(body, kind.view)


def print_object(obj: ApiObject) -> bytes:
    """Returns the JSON of an object of any kind and version."""
    return print_unstructured(obj) if isinstance(obj, UnstructuredObject) else encode(obj)
