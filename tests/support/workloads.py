"""Documents of pods, templates, quotas and jobs, as a user writes them.

pod("p", {"gpu": template("gpu-template")}, node="node-a")
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dralloc.kube.batch_v1 import Job
from dralloc.kube.codec import decode, encode
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import DeviceRequest
from dralloc.kube.unstructured_object import UnstructuredObject, read_unstructured

Document = dict[str, Any]


def existing(claim: str) -> Document:
    """The source of a pod's claim: an existing claim."""
    return {"resourceClaimName": claim}


def template(name: str) -> Document:
    """The source of a pod's claim: a template."""
    return {"resourceClaimTemplateName": name}


def pod(
    name: str,
    claims: Mapping[str, Document] | None = None,
    *,
    namespace: str = "default",
    node: str | None = None,
    scheduler: str | None = None,
    requests: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    group: str | None = None,
) -> Document:
    """A pod. `claims` are the sources of its claims by entry name, `group` is its PodGroup."""
    container: Document = {"name": "main", "image": "registry.example/main:1"}
    resources: Document = {"requests": dict(requests)} if requests else {}
    if claims:
        resources["claims"] = [{"name": entry} for entry in claims]
    if resources:
        container["resources"] = resources
    spec: Document = {"containers": [container], "restartPolicy": "Never"}
    if claims:
        spec["resourceClaims"] = [{"name": entry, **source} for entry, source in claims.items()]
    if node is not None:
        spec["nodeName"] = node
    if scheduler is not None:
        spec["schedulerName"] = scheduler
    if group is not None:
        spec["schedulingGroup"] = {"podGroupName": group}
    metadata: Document = {"name": name, "namespace": namespace}
    if labels:
        metadata["labels"] = dict(labels)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def pod_group(
    name: str,
    claims: Mapping[str, Document] | None = None,
    *,
    namespace: str = "default",
    min_count: int | None = None,
    **spec: Any,
) -> Document:
    """A PodGroup: a gang if it has a `min_count`. `claims` are the sources of the shared claims by entry name."""
    policy: Document = {"basic": {}} if min_count is None else {"gang": {"minCount": min_count}}
    shared = [{"name": entry, **source} for entry, source in (claims or {}).items()]
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"schedulingPolicy": policy, **({"resourceClaims": shared} if shared else {}), **spec},
    }


def claim_template(name: str, *requests: DeviceRequest, namespace: str = "default", **metadata: Any) -> Document:
    """A claim template with these requests; `metadata` is that of the generated claims."""
    devices = msgspec.json.decode(encode({"requests": requests}))
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"metadata": metadata, "spec": {"devices": devices}},
    }


def quota(name: str, hard: Mapping[str, str], *, namespace: str = "default") -> Document:
    """A quota for a namespace, by resource: `{"count/pods": "2"}`."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"hard": dict(hard)},
    }


def seen(document: Document, *, uid: str | None = None, **status: Any) -> Pod:
    """The pod as a server returns it: with a UID and this status."""
    metadata = document["metadata"]
    known = {**metadata, "uid": uid or f"uid-of-{metadata['name']}"}
    return decode(encode({**document, "metadata": known, "status": status}), Pod)


def job(
    name: str,
    claims: Mapping[str, Document] | None = None,
    *,
    namespace: str = "default",
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Document:
    """A job whose pods use these claims; `spec` is the rest of its spec."""
    template = {"spec": pod(name, claims)["spec"]}
    metadata: Document = {"name": name, "namespace": namespace}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {**spec, "template": template},
    }


def job_document(**spec: Any) -> UnstructuredObject:
    """The job `train` as an informer returns it."""
    document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "default", "uid": "uid-of-train"},
        "spec": {"template": {"metadata": {"labels": {"team": "a"}}, "spec": pod("x")["spec"]}, **spec},
    }
    return read_unstructured(encode(document), Job)
