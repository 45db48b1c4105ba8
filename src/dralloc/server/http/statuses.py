"""Errors as Kubernetes reports them: the only place where an error becomes a `Status` object.

Messages have Kubernetes' words and details, because scripts and client libraries parse both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from dralloc.cel.library.text_format import go_quoted
from dralloc.primitives import removals
from dralloc.primitives.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Cause,
    Conflict,
    ErrorDetails,
    Forbidden,
    Gone,
    Invalid,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    ResourceVersionTooLarge,
    Unauthorized,
    UnsupportedMediaType,
    joined_errors,
)
from dralloc.primitives.field_errors import FieldError
from dralloc.server.http.messages import HttpResponse

Status = dict[str, Any]

OBJECT_MODIFIED: Final = "the object has been modified; please apply your changes to the latest version and try again"


def status_of(error: ApiError) -> Status:
    status: Status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    status["message"] = error.message
    status["reason"] = error.reason
    if error.details is not None or isinstance(error, Invalid):
        status["details"] = _details_of(error)
    status["code"] = error.code
    return status


def success_status(code: int = 200, *, details: ErrorDetails | None = None) -> Status:
    """The `Status` object of a success; `details` name a deleted object."""
    status: Status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        status["details"] = _print_details(details, details.causes)
    status["code"] = code
    return status


def status_response(status: Status) -> HttpResponse:
    response = HttpResponse(status=status["code"], body=msgspec.json.encode(status))
    if retry_after_s := status.get("details", {}).get("retryAfterSeconds"):
        response.headers = ((b"retry-after", b"%d" % retry_after_s),)
    return response


def not_found(group: str, resource: str, name: str) -> NotFound:
    return NotFound(f"{_qualified(resource, group)} {go_quoted(name)} not found", details=_about(group, resource, name))


def no_such_resource(group: str = "", resource: str = "", subresource: str = "") -> NotFound:
    """Says since when an earlier version's resource or subresource is gone."""
    removal = removals.SUBRESOURCES.get(f"{resource}/{subresource}")
    gone = removal.told_of(f"{resource}/{subresource}") if removal else removals.removed_kind(group, resource)
    return NotFound(gone or "the server could not find the requested resource", details=ErrorDetails())


def method_not_allowed() -> MethodNotAllowed:
    return MethodNotAllowed("the server does not allow this method on the requested resource", details=ErrorDetails())


def already_exists(group: str, resource: str, name: str) -> AlreadyExists:
    message = f"{_qualified(resource, group)} {go_quoted(name)} already exists"
    return AlreadyExists(message, details=_about(group, resource, name))


def name_not_generated(group: str, resource: str, name: str) -> AlreadyExists:
    """Every name that was generated from a `generateName` is taken; the client may retry."""
    message = f"{_qualified(resource, group)} {go_quoted(name)} already exists, the server was not able to generate a unique name for the object"
    return AlreadyExists(message, details=ErrorDetails(name=name, group=group, kind=resource, retry_after_s=1))


def conflict(group: str, resource: str, name: str, why: str = OBJECT_MODIFIED) -> Conflict:
    message = f"Operation cannot be fulfilled on {_qualified(resource, group)} {go_quoted(name)}: {why}"
    return Conflict(message, details=_about(group, resource, name))


def invalid(group: str, kind: str, name: str, faults: Iterable[FieldError]) -> Invalid:
    """An error with the faults."""
    told = tuple(faults)
    message = f"{_qualified(kind, group)} {go_quoted(name)} is invalid: {joined_errors(map(str, told))}"
    return Invalid(message, told, details=_about(group, kind, name))


def invalid_options(kind: str, faults: Iterable[FieldError]) -> Invalid:
    """An error with the faults of a request's options; `kind` is CreateOptions, PatchOptions and so on."""
    return invalid("meta.k8s.io", kind, "", faults)


def forbidden(group: str, resource: str, name: str, why: str, causes: tuple[Cause, ...] = ()) -> Forbidden:
    subject = _qualified(resource, group)
    if not subject:
        return Forbidden(f"forbidden: {why}", details=ErrorDetails(name=name))
    message = f"{subject} {go_quoted(name)} is forbidden: {why}" if name else f"{subject} is forbidden: {why}"
    return Forbidden(message, details=ErrorDetails(name=name, group=group, kind=resource, causes=causes))


def bad_patch(why: str) -> Invalid:
    """A well-formed patch that cannot be applied to the object."""
    return Invalid(f"the server rejected our request due to an error in our request: {why}")


def expired(message: str = "The provided continue parameter is too old") -> Gone:
    return Gone(message)


def version_too_large(asked: int, current: int) -> ResourceVersionTooLarge:
    """A revision that this server has not seen yet; the client may retry."""
    cause = Cause(ResourceVersionTooLarge.cause, "Too large resource version")
    details = ErrorDetails(causes=(cause,), retry_after_s=1)
    return ResourceVersionTooLarge(f"Timeout: Too large resource version: {asked}, current: {current}", details=details)


def unreadable_body(media_types: Sequence[str]) -> UnsupportedMediaType:
    listed = ", ".join(media_types)
    return UnsupportedMediaType(
        f"the body of the request was in an unknown format - accepted media types include: {listed}"
    )


def unwritable_answer(media_types: Sequence[str]) -> NotAcceptable:
    return NotAcceptable(f"only the following media types are accepted: {', '.join(media_types)}")


def wrong_name(of_object: str, in_url: str) -> BadRequest:
    return BadRequest(f"the name of the object ({of_object}) does not match the name on the URL ({in_url})")


def _qualified(resource: str, group: str) -> str:
    return f"{resource}.{group}" if group else resource


def _about(group: str, kind: str, name: str) -> ErrorDetails:
    return ErrorDetails(name=name, group=group, kind=kind)


def _details_of(error: ApiError) -> dict[str, Any]:
    details = error.details or ErrorDetails()
    if isinstance(error, Invalid) and error.causes:
        return _print_details(details, [Cause(fault.reason, fault.message, str(fault.path)) for fault in error.causes])
    return _print_details(details, details.causes)


def _print_details(details: ErrorDetails, causes: Sequence[Cause]) -> dict[str, Any]:
    printed: dict[str, Any] = {
        "name": details.name,
        "group": details.group,
        "kind": details.kind,
        "uid": details.uid,
        "causes": [_print_cause(cause) for cause in causes],
        "retryAfterSeconds": details.retry_after_s,
    }
    return {name: value for name, value in printed.items() if value}


def _print_cause(cause: Cause) -> dict[str, str]:
    printed = {"reason": cause.reason, "message": cause.message}
    if cause.field:
        printed["field"] = cause.field
    return printed


UNAUTHORIZED: Final = status_of(Unauthorized("Unauthorized"))
