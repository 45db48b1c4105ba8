"""The settings of a driver: node, directories and sockets. The defaults are a kubelet's."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dralloc.node.kubelet.cdi import CDI_DIRECTORIES
from dralloc.node.kubelet.plugin_sockets import KUBELET_DIR, PLUGINS, REGISTRY, SOCKET_PATH_LENGTH_MAX

PLUGINS_DIR: Final = KUBELET_DIR / PLUGINS
REGISTRY_DIR: Final = KUBELET_DIR / REGISTRY
# The last directory, because its files override those of the others.
CDI_DIR: Final = CDI_DIRECTORIES[-1]
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class BadDriverSettings(ValueError):
    """The settings are not valid; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a driver on one node."""

    # The node that the devices belong to.
    node_name: str
    # Socket, checkpoint and locks, in a directory named after the driver.
    plugins_dir: Path = PLUGINS_DIR
    # The registration socket for the kubelet.
    registry_dir: Path = REGISTRY_DIR
    # CDI files for the container runtime.
    cdi_dir: Path = CDI_DIR
    # Allows two instances at the same time, for rolling updates.
    pod_uid: str = ""
    # The cluster; None for the service account of the pod, or the cluster that kubectl uses.
    kubeconfig: str | None = None
    # HOST:PORT for Prometheus; empty for no metrics.
    metrics_address: str = ""
    # How often `Driver.health` is called.
    health_interval_s: float = 5.0
    # The delay before `Driver.monitor` is called again after it raised an exception.
    monitor_restart_s: float = 5.0
    # The delay before foreign changes of slices are repaired; long enough for a cleanup to finish.
    repair_delay_s: float = 30.0
    # How long a claim must be missing before the driver releases it by itself.
    vanished_after_s: float = 600.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """The settings from environment variables: NODE_NAME is required; POD_UID, KUBECONFIG, DRA_PLUGINS_DIR, … are optional."""
        node_name = environment.get("NODE_NAME", "")
        if not node_name:
            raise BadDriverSettings("NODE_NAME is not set; it must be the name of the node")
        return cls(
            node_name=node_name,
            plugins_dir=Path(environment.get("DRA_PLUGINS_DIR", PLUGINS_DIR)),
            registry_dir=Path(environment.get("DRA_REGISTRY_DIR", REGISTRY_DIR)),
            cdi_dir=Path(environment.get("DRA_CDI_DIR", CDI_DIR)),
            pod_uid=environment.get("POD_UID", ""),
            kubeconfig=environment.get("KUBECONFIG"),
            metrics_address=environment.get("DRA_METRICS_ADDRESS", ""),
            repair_delay_s=_seconds(environment, "DRA_REPAIR_DELAY_S", 30.0),
            vanished_after_s=_seconds(environment, "DRA_VANISHED_AFTER_S", 600.0),
        )

    def data_dir(self, driver: str) -> Path:
        """The directory for the socket, checkpoint and locks of the driver."""
        return self.plugins_dir / driver

    def sockets(self, driver: str) -> Sockets:
        """The paths of the two sockets; raises `BadDriverSettings` if a path is too long."""
        instance = f"-{self.pod_uid}" if self.pod_uid else ""
        return Sockets(
            service=_fitting(self.data_dir(driver), "dra", instance, ".sock"),
            registration=_fitting(self.registry_dir, driver, instance, "-reg.sock"),
        )


@dataclass(frozen=True, slots=True)
class Sockets:
    """The kubelet finds the driver at `registration` and calls it at `service`."""

    service: Path
    registration: Path


def boot_id() -> str:
    """An ID that changes with every boot of the machine; empty if the system has none."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "")
    try:
        return float(text) if text else default
    except ValueError:
        raise BadDriverSettings(f"{name} must be a number of seconds, not {text!r}") from None


def _fitting(directory: Path, name: str, instance: str, suffix: str) -> Path:
    """The path of a socket; if it is too long, the part that identifies the instance is hashed."""
    path = directory / f"{name}{instance}{suffix}"
    if _length(path) > SOCKET_PATH_LENGTH_MAX and instance:
        digest = hashlib.sha256(instance.encode()).hexdigest()[:8]
        path = directory / f"{name}-{digest}{suffix}"
    if _length(path) > SOCKET_PATH_LENGTH_MAX:
        raise BadDriverSettings(
            f"{path} has {_length(path)} bytes; the path of a socket can have {SOCKET_PATH_LENGTH_MAX}"
        )
    return path


def _length(path: Path) -> int:
    return len(os.fsencode(path))
