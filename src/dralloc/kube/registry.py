"""The served kinds: their names, versions and types, and their write strategies.

Decoding, admission, discovery and the command line read this table; the list of kinds exists nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from msgspec import Struct

from dralloc.kube import (
    apps_v1,
    batch_v1,
    coordination_v1,
    core_strategies,
    rbac_v1,
    resource_strategies,
    resource_v1,
    resource_v1alpha3,
    scheduling_strategies,
    scheduling_v1,
    scheduling_v1beta1,
    storage_v1,
    v1beta1,
)
from dralloc.kube.codec import decode, decode_again, encode
from dralloc.kube.conversion import V1, V1BETA1, V1BETA2
from dralloc.kube.kind import Kind, ServedVersion
from dralloc.kube.member_forms import EVENT_FORMS, MemberForms
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.protobuf_schema import message_type
from dralloc.kube.scheduling_strategies import JobStrategy
from dralloc.kube.stored_kinds import NEW_EVENT_ROW, STORED_KINDS, StoredKind, strategy_of
from dralloc.kube.strategy import Strategy
from dralloc.kube.unstructured_object import UnstructuredObject, print_unstructured, read_unstructured_and_tree
from dralloc.primitives.features import FeatureGates


def _v1(wire_type: type[ApiObject], *, unconditional_update: bool = True) -> ServedVersion:
    return ServedVersion(version=V1, wire_type=wire_type, unconditional_update=unconditional_update)


def _v1beta2(wire_type: type[ApiObject]) -> ServedVersion:
    return ServedVersion(version=V1BETA2, wire_type=wire_type, deprecated_in="1.36", removed_in="1.39")


def _v1beta1(wire_type: type[ApiObject]) -> ServedVersion:
    return ServedVersion(version=V1BETA1, wire_type=wire_type, deprecated_in="1.35", removed_in="1.38")


def _resource_kind(
    strategy: type[Strategy[Any]],
    versions: tuple[ServedVersion, ...],
    *,
    namespaced: bool,
    subresources: tuple[str, ...] = (),
) -> Kind:
    """A kind of `resource.k8s.io`; its first version is the hub."""
    hub = versions[0].wire_type
    return Kind(
        group=resource_v1.GROUP,
        kind=hub.__name__,
        namespaced=namespaced,
        versions=versions,
        strategy=strategy,
        hub=hub,
        subresources=subresources,
    )


RESOURCE_SLICE: Final = _resource_kind(
    resource_strategies.ResourceSliceStrategy,
    (_v1(resource_v1.ResourceSlice), _v1beta2(resource_v1.ResourceSlice), _v1beta1(v1beta1.ResourceSlice)),
    namespaced=False,
)
DEVICE_CLASS: Final = _resource_kind(
    resource_strategies.DeviceClassStrategy,
    (_v1(resource_v1.DeviceClass), _v1beta2(resource_v1.DeviceClass), _v1beta1(resource_v1.DeviceClass)),
    namespaced=False,
)
RESOURCE_CLAIM: Final = _resource_kind(
    resource_strategies.ResourceClaimStrategy,
    (_v1(resource_v1.ResourceClaim), _v1beta2(resource_v1.ResourceClaim), _v1beta1(v1beta1.ResourceClaim)),
    namespaced=True,
    subresources=("status",),
)
RESOURCE_CLAIM_TEMPLATE: Final = _resource_kind(
    resource_strategies.ResourceClaimTemplateStrategy,
    (
        _v1(resource_v1.ResourceClaimTemplate),
        _v1beta2(resource_v1.ResourceClaimTemplate),
        _v1beta1(v1beta1.ResourceClaimTemplate),
    ),
    namespaced=True,
)
DEVICE_TAINT_RULE: Final = _resource_kind(
    resource_strategies.DeviceTaintRuleStrategy,
    (
        _v1(resource_v1.DeviceTaintRule, unconditional_update=False),
        ServedVersion(version=V1BETA2, wire_type=resource_v1.DeviceTaintRule, deprecated_in="1.39", removed_in="1.42"),
    ),
    namespaced=False,
    subresources=("status",),
)
RESOURCE_POOL_STATUS_REQUEST: Final = Kind(
    group=resource_v1.GROUP,
    kind="ResourcePoolStatusRequest",
    namespaced=False,
    versions=(
        ServedVersion(
            version=resource_v1alpha3.VERSION,
            wire_type=resource_v1alpha3.ResourcePoolStatusRequest,
            unconditional_update=False,
        ),
    ),
    strategy=resource_strategies.ResourcePoolStatusRequestStrategy,
    hub=resource_v1alpha3.ResourcePoolStatusRequest,
    subresources=("status",),
    gate="DRAResourcePoolStatus",
)


def _core_kind(
    strategy: type[core_strategies.UnstructuredStrategy],
    *,
    group: str = "",
    version: str = V1,
    unconditional_update: bool = True,
    forms: MemberForms | None = None,
    also: tuple[ServedVersion, ...] = (),
    **options: Any,
) -> Kind:
    """A kind that we model only in part; most have one version."""
    served = ServedVersion(
        version=version, wire_type=UnstructuredObject, unconditional_update=unconditional_update, forms=forms
    )
    return Kind(
        group=group,
        kind=strategy.rules.view_type.__name__,
        namespaced=strategy.rules.namespaced,
        versions=(served, *also),
        strategy=strategy,
        hub=UnstructuredObject,
        view=strategy.rules.view_type,
        **options,
    )


POD: Final = _core_kind(
    core_strategies.PodStrategy,
    subresources=("binding", "ephemeralcontainers", "eviction", "log", "status"),
    short_names=("po",),
)
NODE: Final = _core_kind(core_strategies.NodeStrategy, subresources=("status",), short_names=("no",))
NAMESPACE: Final = _core_kind(
    core_strategies.NamespaceStrategy, subresources=("finalize", "status"), short_names=("ns",)
)
EVENT: Final = _core_kind(core_strategies.EventStrategy, short_names=("ev",))
RESOURCE_QUOTA: Final = _core_kind(
    core_strategies.ResourceQuotaStrategy, subresources=("status",), short_names=("quota",)
)
LEASE: Final = _core_kind(core_strategies.LeaseStrategy, group=coordination_v1.GROUP, unconditional_update=False)
JOB: Final = _core_kind(JobStrategy, group=batch_v1.GROUP, subresources=("status",))
PRIORITY_CLASS: Final = _core_kind(
    core_strategies.PriorityClassStrategy, group=scheduling_v1.GROUP, short_names=("pc",)
)


def _group_kind(
    strategy: type[Strategy[Any]], wire_type: type[ApiObject], *, subresources: tuple[str, ...] = ()
) -> Kind:
    """A kind of `scheduling.k8s.io/v1beta1`."""
    return Kind(
        group=scheduling_v1.GROUP,
        kind=wire_type.__name__,
        namespaced=True,
        versions=(ServedVersion(version=V1BETA1, wire_type=wire_type, unconditional_update=False),),
        strategy=strategy,
        hub=wire_type,
        subresources=subresources,
        gate="GenericWorkload",
    )


WORKLOAD: Final = _group_kind(scheduling_strategies.WorkloadStrategy, scheduling_v1beta1.Workload)
POD_GROUP: Final = _group_kind(
    scheduling_strategies.PodGroupStrategy, scheduling_v1beta1.PodGroup, subresources=("status",)
)

CONFIG_MAP: Final = _core_kind(core_strategies.ConfigMapStrategy, short_names=("cm",))
SECRET: Final = _core_kind(core_strategies.SecretStrategy)
SERVICE_ACCOUNT: Final = _core_kind(
    core_strategies.ServiceAccountStrategy, subresources=("token",), short_names=("sa",)
)

# --- Objects that install programs: stored, but not acted on ------------------------------------------------------

SERVICE: Final = _core_kind(
    core_strategies.ServiceStrategy,
    subresources=("status",),
    short_names=("svc",),
    kept_only="a Service is stored, but nothing routes to it",
)
CSI_NODE: Final = _core_kind(
    core_strategies.CSINodeStrategy,
    group=storage_v1.GROUP,
    unconditional_update=False,
)
_NOT_RUN: Final = "is stored, but no controller of dralloc creates its pods"
DEPLOYMENT: Final = _core_kind(
    core_strategies.DeploymentStrategy,
    group=apps_v1.GROUP,
    subresources=("scale", "status"),
    short_names=("deploy",),
    kept_only=f"a Deployment {_NOT_RUN}",
)
DAEMON_SET: Final = _core_kind(
    core_strategies.DaemonSetStrategy,
    group=apps_v1.GROUP,
    subresources=("status",),
    short_names=("ds",),
    kept_only=f"a DaemonSet {_NOT_RUN}",
)


def _rights_kind(strategy: type[core_strategies.UnstructuredStrategy]) -> Kind:
    return _core_kind(strategy, group=rbac_v1.GROUP, created_by_update=True)


ROLE: Final = _rights_kind(core_strategies.RoleStrategy)
ROLE_BINDING: Final = _rights_kind(core_strategies.RoleBindingStrategy)
CLUSTER_ROLE: Final = _rights_kind(core_strategies.ClusterRoleStrategy)
CLUSTER_ROLE_BINDING: Final = _rights_kind(core_strategies.ClusterRoleBindingStrategy)


def _other_versions(row: StoredKind) -> tuple[ServedVersion, ...]:
    return tuple(
        ServedVersion(version=version, wire_type=UnstructuredObject, forms=forms) for version, forms in row.also.items()
    )


def _stored_kind(row: StoredKind) -> Kind:
    status = ("status",) if "status" in row.members else ()
    return _core_kind(
        strategy_of(row),
        group=row.group,
        version=row.version,
        subresources=(*row.subresources, *status),
        short_names=row.short_names,
        kept_only=row.kept_only,
        also=_other_versions(row),
    )


# Both groups show the same events.
NEW_EVENT: Final = _core_kind(
    strategy_of(NEW_EVENT_ROW),
    group=NEW_EVENT_ROW.group,
    forms=EVENT_FORMS,
    short_names=("ev",),
    stored_as=EVENT,
)

KINDS: Final[tuple[Kind, ...]] = (
    RESOURCE_SLICE,
    DEVICE_CLASS,
    RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE,
    DEVICE_TAINT_RULE,
    RESOURCE_POOL_STATUS_REQUEST,
    POD,
    NODE,
    NAMESPACE,
    EVENT,
    RESOURCE_QUOTA,
    LEASE,
    JOB,
    PRIORITY_CLASS,
    WORKLOAD,
    POD_GROUP,
    CONFIG_MAP,
    SECRET,
    SERVICE_ACCOUNT,
    SERVICE,
    CSI_NODE,
    DEPLOYMENT,
    DAEMON_SET,
    ROLE,
    ROLE_BINDING,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    NEW_EVENT,
    *map(_stored_kind, STORED_KINDS),
)


def served_kinds(gates: FeatureGates) -> tuple[Kind, ...]:
    """The kinds that a server with these gates serves."""
    return tuple(kind for kind in KINDS if not kind.gate or kind.gate in gates)


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


def _known_kind(api_version: str, kind: str) -> Kind:
    found = find_kind(api_version, kind)
    assert found is not None, f"{kind} is served"
    return found


POD_DISRUPTION_BUDGET: Final = _known_kind("policy/v1", "PodDisruptionBudget")


# --- Kind codec -----------------------------------------------------------------------------------------------------
# Objects of the served kinds as JSON: by the type of their version, or whole where only a part is modelled.


def whole_type(kind: Kind, version: str) -> type[Struct]:
    """The type of all that an object has in this version, also of what we do not model."""
    served = kind.served(version)
    assert served is not None, f"not a version of {kind.kind}: {version}"
    return served.wire_type if kind.view is None else message_type(kind.api_version(version), kind.kind)


def read_object(kind: Kind, version: str, body: bytes) -> ApiObject:
    """Returns the object in the JSON, in the type of the version; raises `DecodeError`."""
    return read_object_and_tree(kind, version, body)[0]


def read_object_and_tree(kind: Kind, version: str, body: bytes) -> tuple[ApiObject, dict[str, Any]]:
    """Returns the object, and for a kind that is modelled in part its full JSON tree. Kinds have the types of Kubernetes also
    where no part of the project reads them: its readers rely on them.
    """
    whole = whole_type(kind, version)
    if kind.view is None:
        return cast("ApiObject", decode(body, whole)), {}
    read = read_unstructured_and_tree(body, kind.view)
    decode_again(body, whole)
    return read


def print_object(obj: ApiObject) -> bytes:
    """Returns the JSON of an object of any kind and version."""
    return print_unstructured(obj) if isinstance(obj, UnstructuredObject) else encode(obj)
