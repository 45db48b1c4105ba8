"""Pod specs and node states for tables of cases."""

from __future__ import annotations

from typing import Any

from dralloc.kube.codec import decode, encode
from dralloc.kube.core_v1 import Node
from dralloc.kube.pod_v1 import PodSpec
from dralloc.scheduler.state.node_state import EMPTY, NodeOffer, NodeState
from dralloc.scheduler.state.pod_resources import resources_of
from tests.support.workloads import Document


def spec(**members: Any) -> PodSpec:
    return decode(encode({"containers": [{"name": "main"}], **members}), PodSpec)


def container(name: str = "main", restart: str | None = None, **requests: str) -> Document:
    policy = {"restartPolicy": restart} if restart else {}
    return {"name": name, "resources": {"requests": requests}, **policy}


def node_state(document: Document, *pods: PodSpec) -> NodeState:
    load = EMPTY
    for there in pods:
        load = load.plus(resources_of(there))
    return NodeState(NodeOffer.of(decode(encode(document), Node)), load)


def host_port(number: int, protocol: str = "TCP", address: str = "", **of_initial: str) -> PodSpec:
    """A pod whose container uses a host port, or an init container with these fields."""
    ports = [{"containerPort": number, "hostPort": number, "protocol": protocol, "hostIP": address}]
    listening = {"name": "listening", "ports": ports}
    return spec(initContainers=[{**listening, **of_initial}]) if of_initial else spec(containers=[listening])
