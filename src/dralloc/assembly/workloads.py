"""Clusters and pods to measure a scheduler with, as plain documents that any Kubernetes API takes.

Each workload gives a node some devices, and each pod one claim for some of them; eight pods fill a node. They follow those that
Kubernetes measures its own scheduler with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

Document = dict[str, Any]

API: Final = "resource.k8s.io/v1"
DRIVER: Final = "dra.example.com"
INDEX: Final = f"{DRIVER}/index"


@dataclass(frozen=True, slots=True)
class Workload:
    """`devices` are those of one node; `claim` is what each pod asks for; from a template, or written by its user."""

    name: str
    devices: tuple[Document, ...]
    classes: tuple[Document, ...]
    claim: Document
    is_template: bool = False

    def cluster(self, nodes: int) -> Iterator[Document]:
        """Everything that is there before the first pod."""
        yield from self.classes
        for number in range(nodes):
            yield _node(number)
            yield self._slice(number)
        if self.is_template:
            yield {
                "apiVersion": API,
                "kind": "ResourceClaimTemplate",
                "metadata": {"name": "claims", "namespace": NAMESPACE},
                "spec": {"spec": self.claim},
            }

    def pod(self, number: int, scheduler_name: str) -> tuple[Document, ...]:
        """What a user writes for one pod, in the order of writing."""
        name = f"pod-{number}"
        source = {"resourceClaimTemplateName": "claims"} if self.is_template else {"resourceClaimName": name}
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
        if self.is_template:
            return (pod,)
        claim = {
            "apiVersion": API,
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": self.claim,
        }
        return (claim, pod)

    def _slice(self, number: int) -> Document:
        node = f"node-{number}"
        return {
            "apiVersion": API,
            "kind": "ResourceSlice",
            "metadata": {"name": f"{node}-devices"},
            "spec": {
                "driver": DRIVER,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": list(self.devices),
            },
        }


NAMESPACE: Final = "default"


def _node(number: int) -> Document:
    name = f"node-{number}"
    amounts = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "no one looks after it"}],
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


_PLAIN: Final = tuple(map(_plain_device, range(8)))
_SHAREABLE: Final = tuple(map(_shareable_device, range(4)))
_PLAIN_CLASS: Final = _device_class("plain", f'device.driver == "{DRIVER}"')
_SHAREABLE_CLASS: Final = _device_class("shareable", f'device.driver == "{DRIVER}"', "device.allowMultipleAllocations")
_ABSENT_CLASS: Final = _device_class("absent", 'device.driver == "no.example.com"')

WORKLOADS: Final[dict[str, Workload]] = {
    workload.name: workload
    for workload in (
        Workload("shared", _SHAREABLE, (_SHAREABLE_CLASS,), _shared_claim()),
        Workload(
            "plain",
            _PLAIN,
            (_PLAIN_CLASS,),
            {"devices": {"requests": [{"name": "device", "exactly": {"deviceClassName": "plain"}}]}},
        ),
        Workload("first", _PLAIN, (_PLAIN_CLASS, _ABSENT_CLASS), _first_claim()),
        Workload("template", _SHAREABLE, (_SHAREABLE_CLASS,), _shared_claim(), is_template=True),
    )
}
