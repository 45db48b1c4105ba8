"""Deletion: at once, after a grace period, or once there are no finalizers."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from dralloc.primitives.errors import ApiError, BadRequest, Conflict, Invalid
from dralloc.server.documents.json_documents import Document
from dralloc.server.write.deletion_rules import (
    AlreadyMarked,
    Decision,
    DeleteOptions,
    Marked,
    Propagation,
    Removed,
    decide_deletion,
    is_released,
    read_delete_options,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
THEN = "2026-01-01T00:00:00Z"


def claim(*finalizers: str, **metadata: Any) -> Document:
    named: Document = {"name": "c", "uid": "u", "resourceVersion": "7", **metadata}
    if finalizers:
        named["finalizers"] = list(finalizers)
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": named}


def marked(document: Document, *, at: str = THEN, grace_s: int = 0, **metadata: Any) -> Document:
    times = {"deletionTimestamp": at, "deletionGracePeriodSeconds": grace_s}
    return {**document, "metadata": {**document["metadata"], **times, **metadata}}


def pod(*finalizers: str, node: str = "n", phase: str = "Running", grace_s: int = 30) -> Document:
    return {
        **claim(*finalizers),
        "apiVersion": "v1",
        "kind": "Pod",
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": grace_s},
        "status": {"phase": phase},
    }


def namespace(*finalizers: str, phase: str = "Active") -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "n"},
        "spec": {"finalizers": list(finalizers)},
        "status": {"phase": phase},
    }


@dataclass(frozen=True)
class Case:
    id: str
    document: Document
    want: Decision
    options: DeleteOptions = field(default_factory=DeleteOptions)


JOB = {**claim(), "kind": "Job", "apiVersion": "batch/v1"}
CASES = [
    Case("nothing holds it", claim(), Removed(claim())),
    Case("a finalizer holds it", claim("x/keep"), Marked(marked(claim("x/keep")))),
    Case("its generation counts", claim("x/keep", generation=3), Marked(marked(claim("x/keep", generation=4)))),
    Case("it is held already", marked(claim("x/keep")), AlreadyMarked(marked(claim("x/keep")))),
    Case("grace means nothing to a claim", claim(), Removed(claim()), DeleteOptions(grace_period_s=30)),
    Case("dependents first", claim(), Marked(marked(claim("foregroundDeletion"))), DeleteOptions(propagation=Propagation.FOREGROUND)),
    Case("dependents stay", claim("x/keep"), Marked(marked(claim("x/keep", "orphan"))), DeleteOptions(propagation=Propagation.ORPHAN)),
    Case("dependents later, after all", claim("orphan"), Removed(claim("orphan")), DeleteOptions(propagation=Propagation.BACKGROUND)),
    Case("what was said before holds", claim("orphan"), Marked(marked(claim("orphan")))),
    Case("another word on the dependents", marked(claim("orphan")), Marked(marked(claim("foregroundDeletion"))), DeleteOptions(propagation=Propagation.FOREGROUND)),
    Case("the right object", claim(), Removed(claim()), DeleteOptions(uid="u", resource_version="7")),
    Case("a running pod gets its time", pod(), Marked(marked(pod(), at="2026-01-01T00:00:30Z", grace_s=30))),
    Case("a pod gets the time that is asked", pod(), Marked(marked(pod(), at="2026-01-01T00:00:05Z", grace_s=5)), DeleteOptions(grace_period_s=5)),
    Case("a pod is forced", pod(), Removed(marked(pod())), DeleteOptions(grace_period_s=0)),
    Case("a negative time is one second", pod(grace_s=-1), Marked(marked(pod(grace_s=-1), at="2026-01-01T00:00:01Z", grace_s=1))),
    Case("a pod without a node goes at once", pod(node=""), Removed(marked(pod(node="")))),
    Case("a finished pod goes at once", pod(phase="Failed"), Removed(marked(pod(phase="Failed")))),
    Case("a finished pod that is held", pod("x/keep", phase="Failed"), Marked(marked(pod("x/keep", phase="Failed")))),
    Case("a pod on its way out", marked(pod(), grace_s=30), AlreadyMarked(marked(pod(), grace_s=30))),
    Case("more time is not given", marked(pod(), grace_s=30), AlreadyMarked(marked(pod(), grace_s=30)), DeleteOptions(grace_period_s=60)),
    Case("less time is", marked(pod(), at="2026-01-01T00:00:40Z", grace_s=30), Marked(marked(pod(), at="2026-01-01T00:00:15Z", grace_s=5)), DeleteOptions(grace_period_s=5)),
    Case("less time than has passed", marked(pod(), at="2026-01-01T00:00:01Z", grace_s=30), Marked(marked(pod(), grace_s=5)), DeleteOptions(grace_period_s=5)),
    Case("the node lets go", marked(pod(), grace_s=30), Removed(marked(pod())), DeleteOptions(grace_period_s=0)),
    Case("a job leaves its pods", JOB, Marked(marked({**claim("orphan"), "kind": "Job", "apiVersion": "batch/v1"}))),
    Case("a job with its pods", JOB, Removed(JOB), DeleteOptions(propagation=Propagation.BACKGROUND)),
    Case("a namespace waits for its content", namespace("kubernetes"), Marked(marked(namespace("kubernetes", phase="Terminating")))),
    Case("a namespace that waits", marked(namespace("kubernetes", phase="Terminating")), AlreadyMarked(marked(namespace("kubernetes", phase="Terminating")))),
    Case("a namespace without content", namespace(), Removed(namespace())),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_decide_deletion(case: Case) -> None:
    assert decide_deletion(case.document["kind"], case.document, case.options, NOW) == case.want


def test_deleting_an_object_twice_changes_nothing() -> None:
    for document in (claim("x/keep", generation=2), pod(), pod("x/keep"), namespace("kubernetes")):
        first = decide_deletion(document["kind"], document, DeleteOptions(), NOW)
        assert isinstance(first, Marked)
        assert isinstance(decide_deletion(document["kind"], first.document, DeleteOptions(), NOW), AlreadyMarked)


@pytest.mark.parametrize(
    ("document", "want"),
    [
        pytest.param(claim(), False, id="never deleted"),
        pytest.param(marked(claim("x/keep")), False, id="held"),
        pytest.param(marked(claim()), True, id="the last finalizer is gone"),
        pytest.param(marked(pod(), grace_s=30), False, id="a pod in its grace period"),
        pytest.param(marked(namespace("kubernetes")), False, id="a namespace with content"),
        pytest.param(marked(namespace()), True, id="a namespace without content"),
    ],
)
def test_is_released(document: Document, want: bool) -> None:
    assert is_released(document) is want


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(
            DeleteOptions(uid="nope"),
            r'Operation cannot be fulfilled on ResourceClaim.resource.k8s.io "c": the UID in the precondition \(nope\) '
            r"does not match the UID in record \(u\)",
            id="another uid",
        ),
        pytest.param(
            DeleteOptions(resource_version="8"), r"the ResourceVersion in the precondition \(8\)", id="another version"
        ),
    ],
)
def test_preconditions_refuse_another_object(options: DeleteOptions, message: str) -> None:
    with pytest.raises(Conflict, match=message):
        decide_deletion("ResourceClaim", claim(), options, NOW)


@pytest.mark.parametrize(
    ("body", "query", "want"),
    [
        pytest.param(None, {}, DeleteOptions(), id="nothing said"),
        pytest.param({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "u", "resourceVersion": "1"}}, {}, DeleteOptions(uid="u", resource_version="1"), id="preconditions"),
        pytest.param({"gracePeriodSeconds": 5, "propagationPolicy": "Foreground", "dryRun": ["All"]}, {"gracePeriodSeconds": "9"}, DeleteOptions(grace_period_s=5, propagation=Propagation.FOREGROUND, dry_run=True), id="the body counts"),
        pytest.param({}, {"gracePeriodSeconds": "9", "propagationPolicy": "Orphan", "dryRun": "All"}, DeleteOptions(grace_period_s=9, propagation=Propagation.ORPHAN, dry_run=True), id="parameters"),
        pytest.param({"orphanDependents": True}, {}, DeleteOptions(propagation=Propagation.ORPHAN), id="the old word for orphans"),
        pytest.param(None, {"orphanDependents": "false"}, DeleteOptions(propagation=Propagation.BACKGROUND), id="the old word for none"),
    ],
)  # fmt: skip
def test_read_delete_options(body: Any, query: dict[str, str], want: DeleteOptions) -> None:
    assert read_delete_options(body, query) == want


@pytest.mark.parametrize(
    ("body", "error"),
    [
        pytest.param({"propagationPolicy": "Maybe"}, Invalid, id="an unknown policy"),
        pytest.param({"propagationPolicy": "Orphan", "orphanDependents": True}, Invalid, id="two words on one thing"),
        pytest.param({"dryRun": ["Some"]}, Invalid, id="an unknown dry run"),
        pytest.param({"gracePeriodSeconds": "soon"}, BadRequest, id="no number"),
        pytest.param({"preconditions": {"uid": 1}}, BadRequest, id="a uid that is no text"),
        pytest.param({"preconditions": 1}, BadRequest, id="preconditions that are none"),
        pytest.param({"kind": "Pod"}, BadRequest, id="another kind"),
        pytest.param([1], BadRequest, id="no object"),
    ],
)
def test_invalid_delete_options_are_refused(body: Any, error: type[ApiError]) -> None:
    with pytest.raises(error):
        read_delete_options(body, {})
