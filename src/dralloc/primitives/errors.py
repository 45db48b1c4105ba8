"""Operational failures: what an API answers when a request is well formed and still cannot be done.

ApiError                     500  something broke
├── BadRequest               400  not understood
├── Unauthorized             401  who is asking is not known
├── Forbidden                403  not allowed
├── NotFound                 404  the object does not exist
├── MethodNotAllowed         405  the resource does not know this verb
├── NotAcceptable            406  the answer cannot be given in the form asked for
├── AlreadyExists            409  an object of that name exists
├── Conflict                 409  the object changed since it was read
├── Gone                     410  the revision asked for is compacted away
├── RequestEntityTooLarge    413  the body is larger than we take
├── UnsupportedMediaType     415  the body is in a form that we do not read
├── Invalid                  422  the object has faults (field errors)
├── TooManyRequests          429  later, please
├── ServiceUnavailable       503  not now
└── Timeout                  504  it took too long
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from dralloc.primitives.field_errors import FieldError


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason of a refusal, for programs: why, in words, and about which field."""

    reason: str
    message: str
    field: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorDetails:
    """What a refusal is about. `kind` is a kind or a resource, as Kubernetes fills it in."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[Cause, ...] = ()
    retry_after_s: int = 0


class ApiError(Exception):
    """A refusal with the HTTP code and reason that Kubernetes gives it."""

    code: ClassVar[int] = 500
    reason: ClassVar[str] = "InternalError"

    def __init__(self, message: str, *, details: ErrorDetails | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class BadRequest(ApiError):
    code = 400
    reason = "BadRequest"


class Unauthorized(ApiError):
    code = 401
    reason = "Unauthorized"


class Forbidden(ApiError):
    code = 403
    reason = "Forbidden"


class NotFound(ApiError):
    code = 404
    reason = "NotFound"


class MethodNotAllowed(ApiError):
    code = 405
    reason = "MethodNotAllowed"


class NotAcceptable(ApiError):
    code = 406
    reason = "NotAcceptable"


class AlreadyExists(ApiError):
    code = 409
    reason = "AlreadyExists"


class Conflict(ApiError):
    code = 409
    reason = "Conflict"


class Gone(ApiError):
    code = 410
    reason = "Expired"


class RequestEntityTooLarge(ApiError):
    code = 413
    reason = "RequestEntityTooLarge"


class UnsupportedMediaType(ApiError):
    code = 415
    reason = "UnsupportedMediaType"


class Invalid(ApiError):
    """The object has faults; `causes` holds all of them."""

    code = 422
    reason = "Invalid"

    def __init__(self, message: str, causes: Sequence[FieldError] = (), *, details: ErrorDetails | None = None) -> None:
        super().__init__(message, details=details)
        self.causes = tuple(causes)


class TooManyRequests(ApiError):
    code = 429
    reason = "TooManyRequests"


class ServiceUnavailable(ApiError):
    code = 503
    reason = "ServiceUnavailable"


class Timeout(ApiError):
    code = 504
    reason = "Timeout"
