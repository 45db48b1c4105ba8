"""The documents and names of a job's pods."""

from __future__ import annotations

import pytest

from dralloc.controllers.jobs.pod_template import PodNames, name_base, pod_document
from dralloc.controllers.jobs.pod_tracker import COMPLETION_INDEX
from tests.support.workloads import job_document


def test_a_pod_follows_the_template_and_is_controlled_by_its_job() -> None:
    job = job_document()
    job.content["spec"]["template"]["spec"]["fieldOfTheFuture"] = {"kept": True}
    made = pod_document(job, "train-x", None)
    assert made["spec"] == job.content["spec"]["template"]["spec"]
    assert made["metadata"]["labels"]["team"] == "a"
    assert made["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "train"
    assert made["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] == "uid-of-train"
    assert made["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "train",
            "uid": "uid-of-train",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_a_pod_of_an_indexed_job_has_its_index_as_label_annotation_and_variable() -> None:
    made = pod_document(job_document(), "train-7-x", 7)
    assert made["metadata"]["annotations"] == {COMPLETION_INDEX: "7"}
    assert made["metadata"]["labels"][COMPLETION_INDEX] == "7"
    assert made["spec"]["hostname"] == "train-7"
    assert made["spec"]["containers"][0]["env"] == [{"name": "JOB_COMPLETION_INDEX", "value": "7"}]


def test_names_of_pods_are_unique_and_repeatable() -> None:
    names = PodNames(job_document(), lambda _: False)
    first = [names.next(None) for _ in range(10_000)]
    assert len(set(first)) == 10_000
    again = PodNames(job_document(), lambda _: False)
    assert [again.next(None) for _ in range(3)] == first[:3]
    passing_over = PodNames(job_document(), set(first[:5]).__contains__)
    assert passing_over.next(None) == first[5]


@pytest.mark.parametrize(
    ("job", "index", "want"),
    [
        ("train", None, "train-"),
        ("train", 3, "train-3-"),
        ("j" * 63, None, "j" * 57 + "-"),
        ("j" * 63, 12, "j" * 54 + "-12-"),
    ],
)
def test_names_of_pods_start_with_the_name_of_the_job(job: str, index: int | None, want: str) -> None:
    assert name_base(job, index) == want
    assert len(want) + 5 <= 63
