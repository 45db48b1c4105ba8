"""Pods, and what is made from templates, as documents: what a user writes, and nothing else.

pod("p", {"gpu": template("gpu-template")}, node="node-a")
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dralloc.api.batch_v1 import Job
from dralloc.api.codec import decode, encode
from dralloc.api.pod_v1 import Pod
from dralloc.api.resource_v1 import DeviceRequest
from dralloc.api.unstructured_object import UnstructuredObject, read_unstructured

Document = dict[str, Any]


def existing(claim: str) -> Document:
    """The source of a pod's claim: one that exists, or will."""
    return {"resourceClaimName": claim}


def template(name: str) -> Document:
    """The source of a pod's claim: one to be made from a template."""
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
) -> Document:
    """A pod. `claims` gives, by the name that the pod knows it by, where each of its claims comes from."""
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
    metadata: Document = {"name": name, "namespace": namespace}
    if labels:
        metadata["labels"] = dict(labels)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def claim_template(name: str, *requests: DeviceRequest, namespace: str = "default", **metadata: Any) -> Document:
    """A template of claims with these requests; `metadata` is that of the claims made from it."""
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
    """The pod as a server shows it: with a UID, and this status."""
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
    """A job whose pods use these claims; `spec` is the rest of what it asks for."""
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
    """The job `train` as an informer has it."""
    document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "default", "uid": "uid-of-train"},
        "spec": {"template": {"metadata": {"labels": {"team": "a"}}, "spec": pod("x")["spec"]}, **spec},
    }
    return read_unstructured(encode(document), Job)
