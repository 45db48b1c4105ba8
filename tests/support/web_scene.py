"""Objects for the web page on `dralloc up --nodes gpu=3,nic=2,mig=1`: shares, alternatives, a job, pending pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.support.workloads import Document, existing, pod

NODES: Final = "gpu=3,nic=2,mig=1"
NAMESPACES: Final = ("research", "serving")

# Namespace, pod, class and requested capacity.
SHARES: Final[tuple[tuple[str, str, str, Mapping[str, str]], ...]] = (
    ("serving", "chat-0", "gpu.example.com", {"memory": "40Gi"}),
    ("serving", "chat-1", "gpu.example.com", {"memory": "40Gi"}),
    ("serving", "embeddings", "gpu.example.com", {"memory": "12Gi"}),
    # Rounded up to a whole number of gibibytes.
    ("research", "fine-tune", "gpu.example.com", {"memory": "50500Mi"}),
    ("research", "notebook-1", "gpu.example.com", {"memory": "10Gi"}),
    ("research", "notebook-2", "gpu.example.com", {"memory": "10Gi"}),
    ("research", "notebook-3", "gpu.example.com", {"memory": "24Gi"}),
    # No request: the policy's default, which is the whole card.
    ("research", "benchmark", "gpu.example.com", {}),
    ("serving", "gateway", "nic.example.com", {"bandwidth": "40G"}),
    ("serving", "mirror", "nic.example.com", {"bandwidth": "2450M"}),
    ("research", "loader", "nic.example.com", {"bandwidth": "25G"}),
)
# Pods for one node only, with the memory that they request.
PINNED: Final = {
    "gpu-0": {"speech-0": "30Gi", "speech-1": "30Gi", "eval-0": "16Gi", "eval-1": "16Gi", "vision": "64Gi"},
    "gpu-1": {"pretrain-0": "80Gi", "pretrain-1": "80Gi", "search": "20Gi", "rerank": "20Gi", "translate": "28Gi"},
}
# Requests that cannot be satisfied.
TOO_MUCH: Final = ("research", "giant", "gpu.example.com", {"memory": "96Gi"})
ALTERNATIVES: Final = ("research", "flexible")
JOB: Final = ("research", "sweep")


def scene(job_pods: int = 24) -> Iterator[Document]:
    """All objects in the order of creation."""
    for name in NAMESPACES:
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    yield from _partitions()
    for namespace, name, device_class, asked in (*SHARES, TOO_MUCH):
        yield from with_own_claim(namespace, name, {"exactly": _wish(device_class, asked)})
    yield from with_own_claim(*ALTERNATIVES, {"firstAvailable": _alternatives()})
    for node, shares in PINNED.items():
        for name, memory in shares.items():
            yield from with_own_claim("serving", name, {"exactly": _wish("gpu.example.com", {"memory": memory})}, node)
    yield from _job(job_pods)
    yield _taint_rule()


def with_own_claim(
    namespace: str, name: str, request: Mapping[str, Any], node: str | None = None
) -> Iterator[Document]:
    """A claim with one request and a pod of the same name that uses it, on the node if one is given."""
    yield _claim(namespace, name, {"name": "device", **request})
    user = pod(name, {"device": existing(name)}, namespace=namespace)
    if node is not None:
        user["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    yield user


def _claim(namespace: str, name: str, *requests: Document) -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"devices": {"requests": list(requests)}},
    }


def _wish(device_class: str, asked: Mapping[str, str]) -> Document:
    return {"deviceClassName": device_class, **({"capacity": {"requests": dict(asked)}} if asked else {})}


def _alternatives() -> list[Document]:
    five_cards = {"deviceClassName": "mig.example.com", "count": 5, "selectors": [_selector("mig", "type", "card")]}
    return [
        {"name": "five-cards", **five_cards},
        {"name": "large-share", **_wish("gpu.example.com", {"memory": "64Gi"})},
        {"name": "small-share", **_wish("gpu.example.com", {"memory": "16Gi"})},
    ]


def _selector(driver: str, attribute: str, value: str) -> Document:
    return {"cel": {"expression": f'device.attributes["{driver}.example.com"].{attribute} == "{value}"'}}


def _partitions() -> Iterator[Document]:
    for name, profile in (("small-0", "1g.5gb"), ("small-1", "1g.5gb"), ("medium", "3g.20gb")):
        wish = {"deviceClassName": "mig.example.com", "selectors": [_selector("mig", "profile", profile)]}
        yield from with_own_claim("serving", name, {"exactly": wish})


def _job(pods: int) -> Iterator[Document]:
    namespace, name = JOB
    request = {"name": "device", "exactly": _wish("gpu.example.com", {"memory": "72Gi"})}
    yield {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    one = pod(name, {"device": existing(name)}, namespace=namespace)
    yield {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {"dralloc.io/shared-claims": f"{name}={name}"},
        },
        "spec": {"completions": pods, "parallelism": pods, "template": {"spec": one["spec"]}},
    }


def _taint_rule() -> Document:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "gpu-2-runs-hot"},
        "spec": {
            "deviceSelector": {"driver": "gpu.example.com", "pool": "gpu-2", "device": "gpu-7"},
            "taint": {"key": "example.com/too-hot", "effect": "NoSchedule"},
        },
    }
