"""Kinds that other programs need: they are created, read, changed and watched here; the server does not act on them.

A kind is a row of data. Its metadata is validated as in Kubernetes; its other members have Kubernetes' types (`protobuf_schema`), and are
stored as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, NamedTuple, cast

import msgspec

from dralloc.kube.core_strategies import Rules, UnstructuredStrategy, no_rules
from dralloc.kube.field_defaults import DEFAULTS
from dralloc.kube.member_forms import AUTOSCALER_FORMS, MemberForms
from dralloc.kube.meta_v1 import ApiObject


class StoredKind(NamedTuple):
    group: str
    kind: str
    # The members of an object besides its metadata. A status has a subresource of its own.
    members: tuple[str, ...] = ("spec", "status")
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    # Changes of the spec are counted.
    has_generation: bool = False
    version: str = "v1"
    # Other versions, and how their objects differ.
    also: Mapping[str, MemberForms] = {}
    # Besides the status.
    subresources: tuple[str, ...] = ()
    # The status of a new object, whatever its author wrote.
    initial_status: Mapping[str, Any] = {}
    # The warning for objects that look as if something would act on them.
    kept_only: str = ""


_NOT_RUN: Final = "is stored, but no controller of dralloc creates its pods"
_SPEC: Final = ("spec",)
_SCALE: Final = ("scale",)
_PENDING: Final = {"phase": "Pending"}
_NO_PODS: Final = {"replicas": 0}
_EVENT_MEMBERS: Final = (
    *(
        "action",
        "deprecatedCount",
        "deprecatedFirstTimestamp",
        "deprecatedLastTimestamp",
        "deprecatedSource",
        "eventTime",
    ),
    *("note", "reason", "regarding", "related", "reportingController", "reportingInstance", "series", "type"),
)
_STORAGE_CLASS_MEMBERS: Final = (
    *("allowVolumeExpansion", "allowedTopologies", "mountOptions", "parameters", "provisioner", "reclaimPolicy"),
    "volumeBindingMode",
)

NEW_EVENT_ROW: Final = StoredKind("events.k8s.io", "Event", _EVENT_MEMBERS)

STORED_KINDS: Final = (
    StoredKind("", "PersistentVolume", namespaced=False, short_names=("pv",), initial_status=_PENDING),
    StoredKind("", "PersistentVolumeClaim", short_names=("pvc",), initial_status=_PENDING),
    StoredKind(
        "",
        "ReplicationController",
        short_names=("rc",),
        has_generation=True,
        subresources=_SCALE,
        initial_status=_NO_PODS,
        kept_only=f"a ReplicationController {_NOT_RUN}",
    ),
    StoredKind("", "Endpoints", ("subsets",), short_names=("ep",)),
    StoredKind("", "PodTemplate", ("template",)),
    StoredKind("", "LimitRange", _SPEC, short_names=("limits",)),
    StoredKind(
        "apps",
        "ReplicaSet",
        short_names=("rs",),
        has_generation=True,
        subresources=_SCALE,
        initial_status=_NO_PODS,
        kept_only=f"a ReplicaSet {_NOT_RUN}",
    ),
    StoredKind(
        "apps",
        "StatefulSet",
        short_names=("sts",),
        has_generation=True,
        subresources=_SCALE,
        initial_status=_NO_PODS,
        kept_only=f"a StatefulSet {_NOT_RUN}",
    ),
    StoredKind("apps", "ControllerRevision", ("data", "revision")),
    StoredKind("batch", "CronJob", short_names=("cj",), has_generation=True, kept_only=f"a CronJob {_NOT_RUN}"),
    StoredKind(
        "policy",
        "PodDisruptionBudget",
        short_names=("pdb",),
        has_generation=True,
        initial_status={"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0},
    ),
    StoredKind("storage.k8s.io", "StorageClass", _STORAGE_CLASS_MEMBERS, namespaced=False, short_names=("sc",)),
    StoredKind("storage.k8s.io", "CSIDriver", _SPEC, namespaced=False),
    StoredKind(
        "storage.k8s.io",
        "CSIStorageCapacity",
        ("capacity", "maximumVolumeSize", "nodeTopology", "storageClassName"),
    ),
    StoredKind("storage.k8s.io", "VolumeAttachment", namespaced=False, initial_status={"attached": False}),
    StoredKind(
        "storage.k8s.io", "VolumeAttributesClass", ("driverName", "parameters"), namespaced=False, short_names=("vac",)
    ),
    StoredKind("node.k8s.io", "RuntimeClass", ("handler", "overhead", "scheduling"), namespaced=False),
    StoredKind("discovery.k8s.io", "EndpointSlice", ("addressType", "endpoints", "ports")),
    StoredKind("networking.k8s.io", "Ingress", short_names=("ing",), has_generation=True),
    StoredKind("networking.k8s.io", "IngressClass", _SPEC, namespaced=False, has_generation=True),
    StoredKind("networking.k8s.io", "NetworkPolicy", _SPEC, short_names=("netpol",), has_generation=True),
    StoredKind(
        "autoscaling", "HorizontalPodAutoscaler", short_names=("hpa",), version="v2", also={"v1": AUTOSCALER_FORMS}
    ),
    StoredKind("certificates.k8s.io", "PodCertificateRequest"),
    StoredKind("networking.k8s.io", "IPAddress", _SPEC, namespaced=False, short_names=("ip",)),
    StoredKind("networking.k8s.io", "ServiceCIDR", namespaced=False),
    StoredKind("storagemigration.k8s.io", "StorageVersionMigration", namespaced=False),
    StoredKind(
        "admissionregistration.k8s.io",
        "ValidatingAdmissionPolicy",
        namespaced=False,
        has_generation=True,
        kept_only="a ValidatingAdmissionPolicy is stored, but not enforced",
    ),
)


class StoredObject(ApiObject):
    """An object of a stored kind: its type has the first part of the kind's group."""

    GROUP: ClassVar[str]


def view_of(row: StoredKind) -> type[ApiObject]:
    """The type of the kind's objects, of which only the metadata is read."""
    constants = {"UNREAD": row.members, "GROUP": row.group.partition(".")[0] or "core"}
    namespace = {**constants, "__annotations__": dict.fromkeys(constants, ClassVar[Any])}
    return cast("type[ApiObject]", msgspec.defstruct(row.kind, (), bases=(StoredObject,), namespace=namespace))


def strategy_of(row: StoredKind) -> type[UnstructuredStrategy]:
    status = no_rules if "status" in row.members else None
    rules: Rules[Any] = Rules(view_of(row), status=status, namespaced=row.namespaced)
    members = {
        "rules": rules,
        "has_generation": row.has_generation,
        "defaults": DEFAULTS.get((row.group, row.kind), ()),
        "initial_status": lambda *_: dict(row.initial_status),
    }
    return type(f"{row.kind}Strategy", (UnstructuredStrategy,), members)
