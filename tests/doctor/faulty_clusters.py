"""Builders of clusters with a fault, for tests of checks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from dralloc.answers.cluster_objects import ClusterObjects, ReadKind
from dralloc.answers.doctor.cluster_facts import ClusterFacts
from dralloc.answers.doctor.examination import CHECKS, HealthCheckResult, examine
from dralloc.answers.side_facts import SideFacts
from dralloc.kube.batch_v1 import Job
from dralloc.kube.codec import decode
from dralloc.kube.core_v1 import Node
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from dralloc.primitives.features import FeatureGates

NOW = datetime(2026, 6, 1, 12, 0, 0, tzinfo=UTC)

KINDS: tuple[type[ApiObject], ...] = (ResourceClaim, Pod, Node, ResourceSlice, DeviceClass, DeviceTaintRule, Job)


def time(**ago: float) -> str:
    return (NOW - timedelta(**ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


NOTHING_BESIDE = SideFacts()

LONG = time(hours=3)

JUST_NOW = time(seconds=30)


def made(kind: type[ApiObject], name: str, *, namespace: str = "", created: str = LONG, **parts: Any) -> ApiObject:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "creationTimestamp": created}
    metadata |= parts.pop("metadata", {})
    return decode(msgspec.json.encode({"metadata": metadata, **parts}), kind)


def claim(name: str = "c", *users: dict[str, str], is_allocated: bool = True, **metadata: Any) -> ApiObject:
    result = {"request": "r", "driver": "gpu.example.com", "pool": "n", "device": "d"}
    status = {"allocation": {"devices": {"results": [result]}}} if is_allocated else {}
    return made(
        ResourceClaim, name, namespace="default", metadata=metadata, status={**status, "reservedFor": list(users)}
    )


def user(name: str, resource: str = "pods", group: str = "") -> dict[str, str]:
    return {"resource": resource, "apiGroup": group, "name": name, "uid": f"uid-{name}"}


def pod(name: str, claim_name: str = "", *, node: str = "", phase: str = "Running", **metadata: Any) -> ApiObject:
    claims = [{"name": "c", "resourceClaimName": claim_name}] if claim_name else []
    spec = {"nodeName": node, "containers": [{"name": "c"}], "resourceClaims": claims}
    return made(Pod, name, namespace="default", metadata=metadata, spec=spec, status={"phase": phase})


def node(name: str, *, ready: str = "True", since: str = LONG, **allocatable: str) -> ApiObject:
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": since}]
    amounts = {key.replace("__", "/").replace("_", "."): value for key, value in allocatable.items()}
    return made(Node, name, status={"conditions": conditions, "allocatable": amounts})


def slices(
    name: str = "s",
    node_name: str | None = "n",
    *,
    driver: str = "gpu.example.com",
    count: int = 1,
    generation: int = 1,
    of: int = 1,
    **metadata: Any,
) -> ApiObject:
    spec: dict[str, Any] = {
        "driver": driver,
        "pool": {"name": "n", "generation": generation, "resourceSliceCount": of},
        "devices": [{"name": f"d{number}"} for number in range(count)],
    }
    spec |= {"nodeName": node_name} if node_name else {"allNodes": True}
    return made(ResourceSlice, name, metadata=metadata, spec=spec)


def device_class(resource: str, expression: str = "true") -> ApiObject:
    spec = {"extendedResourceName": resource, "selectors": [{"cel": {"expression": expression}}]}
    return made(DeviceClass, "class", spec=spec)


def rule(effect: str = "NoSchedule", **selector: str) -> ApiObject:
    spec = {"deviceSelector": selector, "taint": {"key": "k", "effect": effect}}
    return made(DeviceTaintRule, "rule", spec=spec)


def written(text: str) -> dict[str, Any]:
    return {"managedFields": [{"manager": "m", "time": LONG}, {"manager": "newest", "time": text}]}


def facts(
    *objects: ApiObject,
    beside: SideFacts = NOTHING_BESIDE,
    read: Mapping[type[ApiObject], ReadKind] | None = None,
    **more: Any,
) -> ClusterFacts:
    """A cluster that was read completely, unless `read` says otherwise."""
    found = ClusterObjects(FeatureGates.defaults(), now=NOW, facts=beside)
    for each in objects:
        found.add(each)
    return ClusterFacts(objects=found, read={**dict.fromkeys(KINDS, ReadKind()), **(read or {})}, **more)


def result_of(check: str, cluster: ClusterFacts) -> HealthCheckResult:
    (found,) = examine(cluster, [CHECKS[check]])
    return found
