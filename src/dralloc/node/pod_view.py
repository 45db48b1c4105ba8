"""Pods with the fields that only a node reads: commands and environment of containers, and their whole status."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from msgspec import field

from dralloc.client.known_resources import resource_for
from dralloc.client.typed_resource import TypedResource
from dralloc.kube.pod_v1 import Container, ContainerStatus, Pod, PodSpec, PodStatus
from dralloc.kube.wire import Wire, printed


class EnvVar(Wire):
    name: str = printed("")
    value: str = ""
    value_from: dict[str, Any] | None = None


class NodeContainer(Container):
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[EnvVar, ...] = ()
    # Not supported; only their presence is read.
    stdin: bool = False
    tty: bool = False
    env_from: tuple[Any, ...] = ()
    volume_mounts: tuple[Any, ...] = ()
    volume_devices: tuple[Any, ...] = ()
    liveness_probe: dict[str, Any] | None = None
    readiness_probe: dict[str, Any] | None = None
    startup_probe: dict[str, Any] | None = None
    lifecycle: dict[str, Any] | None = None
    security_context: dict[str, Any] | None = None

    @property
    def is_sidecar(self) -> bool:
        """True for an init container that keeps running with the other containers."""
        return self.restart_policy == "Always"


class NodePodSpec(PodSpec):
    containers: tuple[NodeContainer, ...] = printed(())
    init_containers: tuple[NodeContainer, ...] = ()
    ephemeral_containers: tuple[NodeContainer, ...] = ()
    service_account_name: str = ""

    @property
    def all_containers(self) -> tuple[NodeContainer, ...]:
        return (*self.init_containers, *self.containers, *self.ephemeral_containers)


class ResourceHealth(Wire):
    resource_id: str = field(default="", name="resourceID")
    health: str = ""
    message: str | None = None


class ResourceStatus(Wire):
    """The health of the devices that a container has of one claim."""

    name: str = printed("")
    resources: tuple[ResourceHealth, ...] = ()


class NodeContainerStatus(ContainerStatus):
    ready: bool = printed(False)
    image: str = printed("")
    image_id: str = field(default_factory=lambda: "", name="imageID")
    container_id: str = field(default="", name="containerID")
    started: bool | None = None
    allocated_resources_status: tuple[ResourceStatus, ...] = ()


class NodePodStatus(PodStatus):
    container_statuses: tuple[NodeContainerStatus, ...] = ()
    init_container_statuses: tuple[NodeContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[NodeContainerStatus, ...] = ()
    host_ip: str = field(default="", name="hostIP")
    pod_ip: str = field(default="", name="podIP")


class NodePod(Pod):
    spec: NodePodSpec = field(default_factory=lambda: NodePodSpec())
    status: NodePodStatus = field(default_factory=lambda: NodePodStatus())

    def container(self, name: str) -> NodeContainer:
        return next(container for container in self.spec.all_containers if container.name == name)


# The pods resource, decoded with more fields.
NODE_PODS: Final[TypedResource[NodePod]] = replace(resource_for(Pod), type=NodePod)
