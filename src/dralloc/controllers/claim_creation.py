"""The creation of claims from templates, for pods and for jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dralloc.client.informer import Informer
from dralloc.controllers.metrics import SpecLabels
from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.pod_claims import claims_of, may_use
from dralloc.kube.pod_v1 import Pod
from dralloc.kube.resource_v1 import ResourceClaim, ResourceClaimTemplate
from dralloc.kube.unstructured_object import UnstructuredObject, view


@dataclass(frozen=True, slots=True)
class CreateClaim:
    owner: ApiObject
    document: dict[str, Any]
    labels: SpecLabels


@dataclass(frozen=True, slots=True)
class ReportProblem:
    """Report in an event of the owner why a claim cannot be created or reserved."""

    owner: ApiObject
    message: str
    reason: str = "FailedResourceClaimCreation"


def labels_of_template(template: UnstructuredObject) -> SpecLabels:
    return SpecLabels.of(view(template, ResourceClaimTemplate).spec.spec)


def claim_document(
    owner: ApiObject, template: UnstructuredObject, reference: Mapping[str, Any], **metadata: Any
) -> dict[str, Any]:
    """The claim that the template describes, controlled by the owner. `reference` gives the owner's API version and kind."""
    wanted: dict[str, Any] = template.member("spec")
    given = wanted.get("metadata") or {}
    controller = {**reference, "name": owner.metadata.name, "uid": owner.metadata.uid, "controller": True}
    return {
        "metadata": {
            "namespace": owner.metadata.namespace,
            "labels": given.get("labels") or {},
            **metadata,
            "annotations": {**(given.get("annotations") or {}), **metadata.get("annotations", {})},
            "ownerReferences": [controller],
        },
        "spec": dict(wanted.get("spec") or {}),
    }


# --- Claim users ----------------------------------------------------------------------------------------------------
# Which pods use a claim, listed in `reservedFor` or not.


def is_done(pod: Pod) -> bool:
    """True if the pod will never use its claims again: it has finished, or is being deleted without a node.

    A pod that has a node may still run while it is being deleted.
    """
    return pod.is_finished or (pod.is_terminating and not pod.spec.node_name)


def users_of(claim: ResourceClaim, pods: Informer[Pod]) -> Iterator[Pod]:
    """The pods that use the claim and are not done. Those without a node may be bound at any moment."""
    name = claim.metadata.name
    for pod in pods.by("claim", (claim.metadata.namespace, name)):
        if any(use.claim == name and may_use(use, claim, pod) for use in claims_of(pod)):
            yield pod
