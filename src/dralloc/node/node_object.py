"""The Node object of an agent: metadata, capacity and conditions."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dralloc.kube.timestamps import print_timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeShape:
    """Name, labels, capacity and address of a node."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)
    # Where it is not the capacity.
    allocatable: Mapping[str, str] = field(default_factory=dict)
    host_ip: str = ""
    # Where the node serves logs; 0 if it does not.
    log_port: int = 0


def this_machine(name: str, host_ip: str) -> NodeShape:
    """The machine that this process runs on."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    capacity = {"cpu": str(os.cpu_count() or 1), "memory": f"{memory // 1024}Ki", "pods": "110"}
    return NodeShape(name=name, capacity=capacity, host_ip=host_ip)


def node_document(shape: NodeShape) -> dict[str, Any]:
    """The Node without its status, which is written separately."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    labels = {
        "kubernetes.io/hostname": shape.name,
        "kubernetes.io/os": platform.system().lower(),
        "kubernetes.io/arch": machine,
        **shape.labels,
    }
    metadata: dict[str, Any] = {"name": shape.name, "labels": labels}
    if shape.annotations:
        metadata["annotations"] = dict(shape.annotations)
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def node_status(shape: NodeShape, now: datetime, since: datetime, *, is_ready: bool) -> dict[str, Any]:
    status: dict[str, Any] = {
        "capacity": dict(shape.capacity),
        "allocatable": {**shape.capacity, **shape.allocatable},
        "conditions": [
            {
                "type": "Ready",
                "status": "True" if is_ready else "False",
                "reason": "KubeletReady" if is_ready else "KubeletNotReady",
                "message": "the node agent is running" if is_ready else "the node agent has ended",
                "lastHeartbeatTime": print_timestamp(now),
                "lastTransitionTime": print_timestamp(since),
            }
        ],
    }
    if shape.log_port:
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": shape.log_port}}
    if shape.host_ip:
        status["addresses"] = [
            {"type": "InternalIP", "address": shape.host_ip},
            {"type": "Hostname", "address": shape.name},
        ]
    return status
