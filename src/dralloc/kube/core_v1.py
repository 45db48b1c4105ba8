"""Views of the core kinds besides pods (`pod_v1`): nodes, namespaces, events, quotas, secrets and others.

Objects of these kinds have many more fields, and all of them are kept: objects travel as `UnstructuredObject`, and a
view is never stored in their place. Each type lists existing fields that it does not read (`UNREAD`), so that they can
be distinguished from unknown fields.
"""

from __future__ import annotations

from typing import ClassVar, Final

from msgspec import field

from dralloc.kube.meta_v1 import ApiObject, Condition
from dralloc.kube.wire import Int32, Time, Wire, printed
from dralloc.primitives.quantity import Quantity

# On a Node: the SHA-256 of the certificate with which it serves logs.
STREAMING_CERTIFICATE: Final = "dralloc.io/streaming-certificate"


class Taint(Wire):
    key: str = printed("")
    value: str = ""
    effect: str = printed("")
    time_added: Time | None = None


class NodeSpec(Wire):
    UNREAD: ClassVar = ("configSource", "externalID", "podCIDR", "podCIDRs", "podPreemptionPolicy", "providerID")

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeCondition(Wire):
    type: str = printed("")
    status: str = printed("")
    last_heartbeat_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class NodeStatus(Wire):
    UNREAD: ClassVar = (
        "addresses",
        "config",
        "daemonEndpoints",
        "features",
        "images",
        "nodeInfo",
        "phase",
        "runtimeHandlers",
        "volumesAttached",
        "volumesInUse",
    )

    capacity: dict[str, Quantity] = field(default_factory=dict)
    allocatable: dict[str, Quantity] = field(default_factory=dict)
    conditions: tuple[NodeCondition, ...] = ()
    declared_features: tuple[str, ...] = ()


class Node(ApiObject):
    spec: NodeSpec = field(default_factory=lambda: NodeSpec())
    status: NodeStatus = field(default_factory=lambda: NodeStatus())


class NamespaceSpec(Wire):
    finalizers: tuple[str, ...] = ()


class NamespaceStatus(Wire):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class Namespace(ApiObject):
    spec: NamespaceSpec = field(default_factory=lambda: NamespaceSpec())
    status: NamespaceStatus = field(default_factory=lambda: NamespaceStatus())


class ResourceQuotaSpec(Wire):
    UNREAD: ClassVar = ("scopeSelector",)

    hard: dict[str, Quantity] = field(default_factory=dict)
    scopes: tuple[str, ...] = ()


class ResourceQuotaStatus(Wire):
    hard: dict[str, Quantity] = field(default_factory=dict)
    used: dict[str, Quantity] = field(default_factory=dict)


class ResourceQuota(ApiObject):
    spec: ResourceQuotaSpec = field(default_factory=lambda: ResourceQuotaSpec())
    status: ResourceQuotaStatus = field(default_factory=lambda: ResourceQuotaStatus())


class ObjectReference(Wire):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""
    field_path: str = ""


class EventSource(Wire):
    component: str = ""
    host: str = ""


class EventSeries(Wire):
    count: Int32 = 0
    last_observed_time: Time | None = None


class Event(ApiObject):
    involved_object: ObjectReference = field(default_factory=lambda: ObjectReference())
    reason: str = ""
    message: str = ""
    source: EventSource = field(default_factory=lambda: EventSource())
    first_timestamp: Time | None = None
    last_timestamp: Time | None = None
    count: Int32 = 0
    type: str = ""
    event_time: Time | None = None
    series: EventSeries | None = None
    action: str = ""
    related: ObjectReference | None = None
    reporting_component: str = ""
    reporting_instance: str = ""


class ConfigMap(ApiObject):
    data: dict[str, str] = field(default_factory=dict)
    binary_data: dict[str, bytes] = field(default_factory=dict)
    immutable: bool | None = None


class Secret(ApiObject):
    """Secret values. `stringData` is only written: admission moves it into `data`."""

    data: dict[str, bytes] = field(default_factory=dict)
    string_data: dict[str, str] = field(default_factory=dict)
    type: str = ""
    immutable: bool | None = None


class ServiceAccount(ApiObject):
    """The identity of a program, for which the server issues tokens."""

    UNREAD: ClassVar = ("automountServiceAccountToken", "imagePullSecrets", "secrets")


class Service(ApiObject):
    UNREAD: ClassVar = ("spec", "status")
