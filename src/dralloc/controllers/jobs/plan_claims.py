"""Claims that a job creates for all its pods and that are reserved for the job (KEP-5194).

A claim with `spec.reservedFor` contains the UID of its consumer, so it cannot be written before the job exists. A job
therefore lists the claims that it needs in an annotation, as `claim=template` separated by commas; its pods refer
to the claims by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from dralloc.api.batch_v1 import GROUP
from dralloc.api.meta_v1 import ApiObject
from dralloc.api.pod_claims import controller_of
from dralloc.api.resource_v1 import ResourceClaim
from dralloc.api.unstructured_object import UnstructuredObject
from dralloc.controllers.claim_creation import CreateClaim, ReportProblem, claim_document, labels_of_template

SHARED_CLAIMS: Final = "dralloc.io/shared-claims"


ClaimAction = CreateClaim | ReportProblem


def stated_claims(job: ApiObject) -> Iterator[tuple[str, str] | ReportProblem]:
    """The claims in the job's annotation, each with its template."""
    for entry in filter(None, job.metadata.annotations.get(SHARED_CLAIMS, "").split(",")):
        claim, separator, template = (part.strip() for part in entry.partition("="))
        if separator and claim and template:
            yield claim, template
        else:
            yield ReportProblem(job, f"annotation {SHARED_CLAIMS}: {entry.strip()!r} is not of the form claim=template")


def plan_claims(
    job: UnstructuredObject,
    find_claim: Callable[[str], ResourceClaim | None],
    find_template: Callable[[str], UnstructuredObject | None],
    *,
    for_workloads: bool,
) -> Iterator[ClaimAction]:
    """The creation of the claims that the job needs and that do not exist, or why it is impossible."""
    for stated in stated_claims(job):
        if isinstance(stated, ReportProblem):
            yield stated
            continue
        claim_name, template_name = stated
        claim = find_claim(claim_name)
        if claim is not None:
            owner = controller_of(claim.metadata)
            if owner is None or owner.uid != job.metadata.uid:
                yield ReportProblem(job, f"claim {claim_name!r} exists and does not belong to this job")
            continue
        template = find_template(template_name)
        if template is None:
            yield ReportProblem(job, f"claim {claim_name!r}: resource claim template {template_name!r} not found")
        else:
            document = claim_document(job, template, {"apiVersion": "batch/v1", "kind": "Job"}, name=claim_name)
            if for_workloads:
                consumer = {"name": job.metadata.name, "uid": job.metadata.uid}
                document["spec"]["reservedFor"] = {"apiGroup": GROUP, "resource": "jobs", **consumer}
            yield CreateClaim(job, document, labels_of_template(template))
