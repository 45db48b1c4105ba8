"""Errors as `Status` objects with Kubernetes' messages, codes and details."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from dralloc.primitives.errors import ApiError, BadRequest, Cause, ErrorDetails, TooManyRequests
from dralloc.primitives.field_errors import FieldPath, invalid, not_supported, required
from dralloc.server.http import statuses

DRA = "resource.k8s.io"


@dataclass(frozen=True)
class Case:
    id: str
    error: ApiError
    want: dict[str, Any]


CASES = [
    Case(
        "an object that is not there",
        statuses.not_found(DRA, "resourceclaims", "c1"),
        {
            "message": 'resourceclaims.resource.k8s.io "c1" not found',
            "reason": "NotFound",
            "details": {"name": "c1", "group": DRA, "kind": "resourceclaims"},
            "code": 404,
        },
    ),
    Case(
        "the core group has no name",
        statuses.not_found("", "namespaces", "talk"),
        {
            "message": 'namespaces "talk" not found',
            "reason": "NotFound",
            "details": {"name": "talk", "kind": "namespaces"},
            "code": 404,
        },
    ),
    Case(
        "a name that is taken",
        statuses.already_exists(DRA, "resourceclaims", "c1"),
        {
            "message": 'resourceclaims.resource.k8s.io "c1" already exists',
            "reason": "AlreadyExists",
            "details": {"name": "c1", "group": DRA, "kind": "resourceclaims"},
            "code": 409,
        },
    ),
    Case(
        "an object that changed meanwhile",
        statuses.conflict(DRA, "resourceclaims", "c1"),
        {
            "message": 'Operation cannot be fulfilled on resourceclaims.resource.k8s.io "c1": the object has been modified; '
            "please apply your changes to the latest version and try again",
            "reason": "Conflict",
            "details": {"name": "c1", "group": DRA, "kind": "resourceclaims"},
            "code": 409,
        },
    ),
    Case(
        "one fault stands alone",
        statuses.invalid(
            DRA, "ResourceClaim", "", [required(FieldPath.of("metadata", "name"), "name or generateName is required")]
        ),
        {
            "message": 'ResourceClaim.resource.k8s.io "" is invalid: metadata.name: Required value: name or generateName is required',
            "reason": "Invalid",
            "details": {
                "group": DRA,
                "kind": "ResourceClaim",
                "causes": [
                    {
                        "reason": "FieldValueRequired",
                        "message": "Required value: name or generateName is required",
                        "field": "metadata.name",
                    }
                ],
            },
            "code": 422,
        },
    ),
    Case(
        "several faults are listed, repeated ones once in the message",
        statuses.invalid(
            "",
            "Pod",
            "p",
            [required(FieldPath.of("a")), invalid(FieldPath.of("b").index(0), 1, "no"), required(FieldPath.of("a"))],
        ),
        {
            "message": 'Pod "p" is invalid: [a: Required value, b[0]: Invalid value: 1: no]',
            "reason": "Invalid",
            "details": {
                "name": "p",
                "kind": "Pod",
                "causes": [
                    {"reason": "FieldValueRequired", "message": "Required value", "field": "a"},
                    {"reason": "FieldValueInvalid", "message": "Invalid value: 1: no", "field": "b[0]"},
                    {"reason": "FieldValueRequired", "message": "Required value", "field": "a"},
                ],
            },
            "code": 422,
        },
    ),
    Case(
        "faults in a request's parameters",
        statuses.invalid_options("PatchOptions", [not_supported(FieldPath.of("dryRun"), "Some", ("All",))]),
        {
            "message": 'PatchOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: "Some": supported values: "All"',
            "reason": "Invalid",
            "details": {
                "group": "meta.k8s.io",
                "kind": "PatchOptions",
                "causes": [
                    {
                        "reason": "FieldValueNotSupported",
                        "message": 'Unsupported value: "Some": supported values: "All"',
                        "field": "dryRun",
                    }
                ],
            },
            "code": 422,
        },
    ),
    Case(
        "an error about nothing in particular has no details",
        BadRequest("invalid JSON patch"),
        {"message": "invalid JSON patch", "reason": "BadRequest", "code": 400},
    ),
    Case(
        "not allowed, with the reasons",
        statuses.forbidden("", "pods", "p", "no quota", (Cause("QuotaExceeded", "too much"),)),
        {
            "message": 'pods "p" is forbidden: no quota',
            "reason": "Forbidden",
            "details": {"name": "p", "kind": "pods", "causes": [{"reason": "QuotaExceeded", "message": "too much"}]},
            "code": 403,
        },
    ),
    Case(
        "a revision of the future",
        statuses.version_too_large(9, 3),
        {
            "message": "Timeout: Too large resource version: 9, current: 3",
            "reason": "Timeout",
            "details": {
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                "retryAfterSeconds": 1,
            },
            "code": 504,
        },
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_errors_become_statuses(case: Case) -> None:
    head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    assert statuses.status_of(case.error) == {**head, **case.want}


def test_success_names_the_deleted_object() -> None:
    details = ErrorDetails(name="r", group=DRA, kind="devicetaintrules", uid="u")
    assert statuses.success_status(details=details) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "r", "group": DRA, "kind": "devicetaintrules", "uid": "u"},
        "code": 200,
    }


def test_the_response_has_the_code_and_retry_after_of_the_status() -> None:
    answer = statuses.status_response(
        statuses.status_of(TooManyRequests("busy", details=ErrorDetails(retry_after_s=3)))
    )
    assert (answer.status, answer.headers) == (429, ((b"retry-after", b"3"),))
    assert msgspec.json.decode(answer.body)["message"] == "busy"
