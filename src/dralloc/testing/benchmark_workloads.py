"""Workloads for scheduler benchmarks, as plain documents that any Kubernetes API accepts.

Most are like those of Kubernetes' own scheduler benchmarks: every node has devices, every pod has a claim, and eight
pods fill a node. In the others all pods share one claim for a device that all nodes can use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from dralloc.kube.validation.resource_claim_status import RESERVED_FOR_COUNT_MAX

Document = dict[str, Any]

API: Final = "resource.k8s.io/v1"
DRIVER: Final = "dra.example.com"
INDEX: Final = f"{DRIVER}/index"
# Pods with a claim of their own that fill a node, and the maximum of pods on a node.
PODS_WITH_DEVICES_MAX: Final = 8
NODE_PODS_MAX: Final = 110


class ClaimSource(Enum):
    """Where the claim of a pod comes from."""

    OWN = "each pod has a claim that its user created"
    TEMPLATE = "each pod has a claim generated from a template"
    ONE = "all pods share one claim"


@dataclass(frozen=True, slots=True)
class BenchmarkWorkload:
    """`devices` are those of each node or, if all pods share a claim, devices that all nodes can use."""

    name: str
    devices: tuple[Document, ...]
    classes: tuple[Document, ...]
    claim: Document
    claims: ClaimSource = ClaimSource.OWN

    def pods_max(self, nodes: int) -> int:
        """The number of pods that fit on the nodes."""
        if self.claims is not ClaimSource.ONE:
            return PODS_WITH_DEVICES_MAX * nodes
        # A claim that is reserved for a job has no limit on pods.
        at_once = NODE_PODS_MAX * nodes
        return at_once if "reservedFor" in self.claim else min(at_once, RESERVED_FOR_COUNT_MAX)

    def cluster(self, nodes: int) -> Iterator[Document]:
        """Everything that is created before the first pod."""
        yield from self.classes
        for number in range(nodes):
            yield _node(number)
            if self.claims is not ClaimSource.ONE:
                yield self._slice(f"node-{number}", {"nodeName": f"node-{number}"})
        if self.claims is ClaimSource.ONE:
            yield self._slice("fabric", {"allNodes": True})
            yield _object("ResourceClaim", "shared", self.claim)
        if self.claims is ClaimSource.TEMPLATE:
            yield _object("ResourceClaimTemplate", "claims", {"spec": self.claim})

    def pod(self, number: int, scheduler_name: str) -> tuple[Document, ...]:
        """The objects of one pod, in the order of creation."""
        name = f"pod-{number}"
        source = {
            ClaimSource.OWN: {"resourceClaimName": name},
            ClaimSource.TEMPLATE: {"resourceClaimTemplateName": "claims"},
            ClaimSource.ONE: {"resourceClaimName": "shared"},
        }[self.claims]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {
                "schedulerName": scheduler_name,
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {
                        "name": "pause",
                        "image": "registry.k8s.io/pause:3.10",
                        "resources": {"claims": [{"name": "devices"}]},
                    }
                ],
                "resourceClaims": [{"name": "devices", **source}],
            },
        }
        return (_object("ResourceClaim", name, self.claim), pod) if self.claims is ClaimSource.OWN else (pod,)

    def _slice(self, pool: str, placement: Document) -> Document:
        spec = {
            "driver": DRIVER,
            **placement,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
            "devices": list(self.devices),
        }
        return {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": f"{pool}-devices"}, "spec": spec}


NAMESPACE: Final = "default"


def _object(kind: str, name: str, spec: Document) -> Document:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def _node(number: int) -> Document:
    name = f"node-{number}"
    amounts = {"cpu": "4", "memory": "32Gi", "pods": str(NODE_PODS_MAX)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "node without an agent"}],
        },
    }


def _device_class(name: str, *expressions: str) -> Document:
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": {"selectors": selectors}}


def _plain_device(index: int) -> Document:
    return {
        "name": f"device-{index}",
        "attributes": {
            INDEX: {"int": index},
            f"{DRIVER}/model": {"string": "model-a"},
            f"{DRIVER}/driverVersion": {"version": "1.2.3"},
            f"{DRIVER}/healthy": {"bool": True},
        },
        "capacity": {"memory": {"value": "24480Mi"}, "millicores": {"value": "1k"}},
    }


def _shareable_device(index: int) -> Document:
    policy = {"default": "1M", "validRange": {"min": "1M", "step": "8"}}
    return {
        "name": f"device-{index}",
        "allowMultipleAllocations": True,
        "attributes": {INDEX: {"int": index}},
        "capacity": {"bandwidth": {"value": "10G", "requestPolicy": policy}},
    }


def _shared_claim() -> Document:
    exactly = {"deviceClassName": "shareable", "count": 2, "capacity": {"requests": {"bandwidth": "2500M"}}}
    return {
        "devices": {
            "requests": [{"name": "share", "exactly": exactly}],
            "constraints": [{"requests": ["share"], "distinctAttribute": INDEX}],
        }
    }


def _first_claim() -> Document:
    wanted = [{"name": "best", "deviceClassName": "absent"}, {"name": "second", "deviceClassName": "plain"}]
    return {"devices": {"requests": [{"name": "device", "firstAvailable": wanted}]}}


_PLAIN: Final = tuple(map(_plain_device, range(PODS_WITH_DEVICES_MAX)))
_SHAREABLE: Final = tuple(map(_shareable_device, range(4)))
_PLAIN_CLASS: Final = _device_class("plain", f'device.driver == "{DRIVER}"')
_SHAREABLE_CLASS: Final = _device_class("shareable", f'device.driver == "{DRIVER}"', "device.allowMultipleAllocations")
_ABSENT_CLASS: Final = _device_class("absent", 'device.driver == "no.example.com"')

_ONE_DEVICE: Final = {"devices": {"requests": [{"name": "device", "exactly": {"deviceClassName": "plain"}}]}}
_JOB: Final = {
    "apiGroup": "batch",
    "resource": "jobs",
    "name": "training",
    "uid": "6a3c1a8e-0000-4000-8000-000000000000",
}

WORKLOADS: Final[dict[str, BenchmarkWorkload]] = {
    workload.name: workload
    for workload in (
        BenchmarkWorkload("shared", _SHAREABLE, (_SHAREABLE_CLASS,), _shared_claim()),
        BenchmarkWorkload("plain", _PLAIN, (_PLAIN_CLASS,), _ONE_DEVICE),
        BenchmarkWorkload("first", _PLAIN, (_PLAIN_CLASS, _ABSENT_CLASS), _first_claim()),
        BenchmarkWorkload("template", _SHAREABLE, (_SHAREABLE_CLASS,), _shared_claim(), ClaimSource.TEMPLATE),
        BenchmarkWorkload("one-claim", _PLAIN, (_PLAIN_CLASS,), _ONE_DEVICE, ClaimSource.ONE),
        BenchmarkWorkload("one-job", _PLAIN, (_PLAIN_CLASS,), {**_ONE_DEVICE, "reservedFor": _JOB}, ClaimSource.ONE),
    )
}

# Workloads in which every pod has a claim of its own.
WITH_OWN_CLAIMS: Final = ("shared", "plain", "first", "template")
