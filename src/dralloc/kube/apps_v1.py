"""`apps/v1`: the fields that we read of installed workloads. They are stored; nothing here runs them."""

from __future__ import annotations

from typing import ClassVar, Final

from msgspec import field

from dralloc.kube.batch_v1 import PodTemplateSpec
from dralloc.kube.meta_v1 import ApiObject, LabelSelector
from dralloc.kube.wire import Int32, Wire

GROUP: Final = "apps"


class DaemonSetSpec(Wire):
    UNREAD: ClassVar = ("minReadySeconds", "revisionHistoryLimit", "updateStrategy")

    selector: LabelSelector | None = None
    template: PodTemplateSpec = field(default_factory=lambda: PodTemplateSpec())


class DeploymentSpec(Wire):
    UNREAD: ClassVar = ("minReadySeconds", "paused", "progressDeadlineSeconds", "revisionHistoryLimit", "strategy")

    replicas: Int32 | None = None
    selector: LabelSelector | None = None
    template: PodTemplateSpec = field(default_factory=lambda: PodTemplateSpec())


class DaemonSet(ApiObject):
    UNREAD: ClassVar = ("status",)

    spec: DaemonSetSpec = field(default_factory=lambda: DaemonSetSpec())


class Deployment(ApiObject):
    UNREAD: ClassVar = ("status",)

    spec: DeploymentSpec = field(default_factory=lambda: DeploymentSpec())
