"""Claims that a job has made for all its pods, and holds for them (KEP-5194).

A claim that names its holder in `spec.reservedFor` must know the holder's UID, so nobody can write it before the job
exists. A job therefore says in an annotation which claims it wants from which templates, `claim=template`, with commas
between them; its pods name the claims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from dralloc.api.batch_v1 import GROUP
from dralloc.api.meta_v1 import ObjectMeta
from dralloc.api.pod_claims import controller_of
from dralloc.api.resource_v1 import ResourceClaim, ResourceClaimTemplate
from dralloc.api.unstructured_object import UnstructuredObject, view
from dralloc.controllers.metrics import SpecLabels

SHARED_CLAIMS: Final = "dralloc.io/shared-claims"


@dataclass(frozen=True, slots=True)
class CreateClaim:
    document: dict[str, Any]
    labels: SpecLabels


@dataclass(frozen=True, slots=True)
class ReportProblem:
    """Tell why a claim cannot be made."""

    message: str


ClaimAction = CreateClaim | ReportProblem


def stated_claims(metadata: ObjectMeta) -> Iterator[tuple[str, str] | ReportProblem]:
    """The claims that a job wants, each with its template."""
    for entry in filter(None, metadata.annotations.get(SHARED_CLAIMS, "").split(",")):
        claim, separator, template = (part.strip() for part in entry.partition("="))
        if separator and claim and template:
            yield claim, template
        else:
            yield ReportProblem(f"annotation {SHARED_CLAIMS}: {entry.strip()!r} is not of the form claim=template")


def plan_claims(
    job: UnstructuredObject,
    find_claim: Callable[[str], ResourceClaim | None],
    find_template: Callable[[str], UnstructuredObject | None],
    *,
    for_workloads: bool,
) -> Iterator[ClaimAction]:
    """What is missing of the claims that the job wants."""
    for stated in stated_claims(job.metadata):
        if isinstance(stated, ReportProblem):
            yield stated
            continue
        claim_name, template_name = stated
        claim = find_claim(claim_name)
        if claim is not None:
            owner = controller_of(claim.metadata)
            if owner is None or owner.uid != job.metadata.uid:
                yield ReportProblem(f"claim {claim_name!r} exists and is not this job's")
            continue
        template = find_template(template_name)
        if template is None:
            yield ReportProblem(f"claim {claim_name!r}: resource claim template {template_name!r} not found")
        else:
            labels = SpecLabels.of(view(template, ResourceClaimTemplate).spec.spec)
            yield CreateClaim(_claim_document(job, claim_name, template, for_workloads=for_workloads), labels)


def _claim_document(
    job: UnstructuredObject, name: str, template: UnstructuredObject, *, for_workloads: bool
) -> dict[str, Any]:
    wanted = template.member("spec")
    metadata, spec = wanted.get("metadata") or {}, dict(wanted.get("spec") or {})
    who = {"name": job.metadata.name, "uid": job.metadata.uid}
    if for_workloads:
        spec["reservedFor"] = {"apiGroup": GROUP, "resource": "jobs", **who}
    return {
        "metadata": {
            "name": name,
            "namespace": job.metadata.namespace,
            "labels": metadata.get("labels") or {},
            "annotations": metadata.get("annotations") or {},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "controller": True, **who}],
        },
        "spec": spec,
    }
