"""The claims that a job creates for all its pods."""

from __future__ import annotations

from msgspec.structs import replace

from dralloc.controllers.claim_creation import CreateClaim, ReportProblem
from dralloc.controllers.jobs.plan import SHARED_CLAIMS, plan_claims
from dralloc.kube.codec import encode
from dralloc.kube.resource_v1 import ResourceClaim, ResourceClaimTemplate
from dralloc.kube.unstructured_object import read_unstructured
from dralloc.testing.builders import request
from tests.support.workloads import claim_template, job_document


def test_a_job_creates_the_claims_of_its_annotation_and_reserves_them() -> None:
    job = job_document()
    job = replace(job, metadata=replace(job.metadata, annotations={SHARED_CLAIMS: "nic=t, disk = none,nonsense"}))
    template = read_unstructured(encode(claim_template("t", request(), labels={"a": "b"})), ResourceClaimTemplate)
    found = {"t": template}
    create, missing, wrong = plan_claims(job, dict[str, ResourceClaim]().get, found.get, for_workloads=True)
    assert isinstance(create, CreateClaim)
    assert create.document["metadata"]["name"] == "nic"
    assert create.document["metadata"]["labels"] == {"a": "b"}
    assert create.document["metadata"]["ownerReferences"][0]["uid"] == "uid-of-train"
    assert create.document["spec"]["reservedFor"] == {
        "apiGroup": "batch",
        "resource": "jobs",
        "name": "train",
        "uid": "uid-of-train",
    }
    assert missing == ReportProblem(job, "claim 'disk': resource claim template 'none' not found")
    assert isinstance(wrong, ReportProblem)
    assert "'nonsense' is not of the form claim=template" in wrong.message
    (without, *_) = plan_claims(job, dict[str, ResourceClaim]().get, found.get, for_workloads=False)
    assert isinstance(without, CreateClaim)
    assert "reservedFor" not in without.document["spec"]
