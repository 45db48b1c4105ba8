"""The environment and the command line of a container, from the pod, the node and the container's devices."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dralloc.kubelet.cdi import ContainerEdits
from dralloc.node.pod_view import NodeContainer, NodePod

# Tell a process without a container which device nodes and mounts its devices would add.
DEVICE_NODES: Final = "DRALLOC_DEVICE_NODES"
MOUNTS: Final = "DRALLOC_MOUNTS"
DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_REFERENCE: Final = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")


class BadEnvironment(ValueError):
    """A variable of the container cannot be resolved; the message says which."""


def container_environment(
    pod: NodePod, container: NodeContainer, edits: ContainerEdits, host_ip: str
) -> dict[str, str]:
    """The variables of a container: the defaults, those of its spec, those of its devices."""
    environment = {"PATH": DEFAULT_PATH, "HOSTNAME": pod.metadata.name}
    for variable in container.env:
        if variable.value_from is not None:
            environment[variable.name] = _referenced(variable.name, variable.value_from, pod, host_ip)
        else:
            environment[variable.name] = expand(variable.value, environment)
    environment |= edits.env
    if edits.device_nodes:
        environment[DEVICE_NODES] = ":".join(node.host_path or node.path for node in edits.device_nodes)
    if edits.mounts:
        environment[MOUNTS] = ",".join(f"{mount.host_path}:{mount.container_path}" for mount in edits.mounts)
    return environment


def command_line(container: NodeContainer, environment: Mapping[str, str]) -> list[str]:
    return [expand(word, environment) for word in (*container.command, *container.args)]


def expand(text: str, environment: Mapping[str, str]) -> str:
    """The text with `$(NAME)` replaced if NAME is set, and `$$` by a dollar sign."""

    def replacement(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return environment.get(match[1], match[0])

    return _REFERENCE.sub(replacement, text)


def _referenced(name: str, source: Mapping[str, Any], pod: NodePod, host_ip: str) -> str:
    reference = source.get("fieldRef")
    if not isinstance(reference, dict):
        kinds = ", ".join(sorted(key for key, value in source.items() if value)) or "nothing"
        raise BadEnvironment(f"env {name}: only fieldRef is supported, not {kinds}")
    path = str(reference.get("fieldPath", ""))
    value = _field(path, pod, host_ip)
    if value is None:
        raise BadEnvironment(f"env {name}: fieldPath {path!r} is not supported")
    return value


def _field(path: str, pod: NodePod, host_ip: str) -> str | None:
    if match := _KEYED.fullmatch(path):
        keyed = pod.metadata.labels if match[1] == "labels" else pod.metadata.annotations
        return keyed.get(match[2], "")
    return {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.metadata.uid,
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.hostIP": host_ip,
        "status.podIP": host_ip,
    }.get(path)


def unsupported_parts(pod: NodePod) -> Sequence[str]:
    """The parts of the pod's spec that a plain process on the node does not get."""
    asked: dict[str, None] = {}
    for container in pod.spec.all_containers:
        parts = {
            "stdin": container.stdin,
            "tty": container.tty,
            "envFrom": container.env_from,
            "volumeMounts": container.volume_mounts,
            "volumeDevices": container.volume_devices,
            "livenessProbe": container.liveness_probe,
            "readinessProbe": container.readiness_probe,
            "startupProbe": container.startup_probe,
            "lifecycle": container.lifecycle,
            "securityContext": container.security_context,
            "resources.limits": container.resources.limits,
        }
        asked |= dict.fromkeys(f"{container.name}.{name}" for name, value in parts.items() if value)
    return tuple(asked)


def unsupported_edits(edits: ContainerEdits) -> Sequence[str]:
    """CDI edits of the container's devices that a plain process on the node does not get."""
    parts = {
        "hooks": edits.hooks,
        "netDevices": edits.net_devices,
        "additionalGids": edits.additional_gids,
        "intelRdt": edits.intel_rdt,
    }
    return tuple(name for name, value in parts.items() if value)
