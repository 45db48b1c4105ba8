"""Operational failures: answers of an API to a well-formed request that it cannot serve.

ApiError                     500  internal error
├── BadRequest               400  the request is malformed
├── Unauthorized             401  the caller is not authenticated
├── Forbidden                403  not allowed
├── NotFound                 404  the object does not exist
├── MethodNotAllowed         405  the resource does not support this verb
├── NotAcceptable            406  the requested media type is not available
├── AlreadyExists            409  an object with that name exists
├── Conflict                 409  the object changed since it was read
├── Gone                     410  the requested revision is compacted
├── RequestEntityTooLarge    413  the body exceeds the size limit
├── UnsupportedMediaType     415  the media type of the body is not supported
├── Invalid                  422  the object has field errors
├── TooManyRequests          429  rate limited, retry later
├── ServiceUnavailable       503  temporarily unavailable
└── Timeout                  504  the request timed out
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dralloc.primitives.field_errors import FieldError

__all__ = [
    "AlreadyExists",
    "ApiError",
    "BadRequest",
    "Cause",
    "Conflict",
    "ErrorDetails",
    "Forbidden",
    "Gone",
    "Invalid",
    "MethodNotAllowed",
    "NotAcceptable",
    "NotFound",
    "RequestEntityTooLarge",
    "ResourceVersionTooLarge",
    "ServiceUnavailable",
    "Timeout",
    "TooManyRequests",
    "Unauthorized",
    "UnsupportedMediaType",
]


@dataclass(frozen=True, slots=True)
class Cause:
    """One machine-readable cause of an error: reason, message and field."""

    reason: str
    message: str
    field: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorDetails:
    """The object that an error is about. `kind` is a kind or a resource, as Kubernetes fills it in."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[Cause, ...] = ()
    retry_after_s: int = 0


class ApiError(Exception):
    """An error with the HTTP code and reason that Kubernetes gives it."""

    code: ClassVar[int] = 500
    reason: ClassVar[str] = "InternalError"

    def __init__(self, message: str, *, details: ErrorDetails | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class BadRequest(ApiError):
    """The request cannot be read."""

    code = 400
    reason = "BadRequest"


class Unauthorized(ApiError):
    """No valid credential."""

    code = 401
    reason = "Unauthorized"


class Forbidden(ApiError):
    """The user may not do this, or a quota forbids it."""

    code = 403
    reason = "Forbidden"


class NotFound(ApiError):
    """There is no such object."""

    code = 404
    reason = "NotFound"


class MethodNotAllowed(ApiError):
    """The resource does not support the method."""

    code = 405
    reason = "MethodNotAllowed"


class NotAcceptable(ApiError):
    """The server cannot answer in the requested format."""

    code = 406
    reason = "NotAcceptable"


class AlreadyExists(ApiError):
    """An object of this name exists."""

    code = 409
    reason = "AlreadyExists"


class Conflict(ApiError):
    """The object was changed since it was read: read it again."""

    code = 409
    reason = "Conflict"


class Gone(ApiError):
    """The resource version is too old: list again."""

    code = 410
    reason = "Expired"


class RequestEntityTooLarge(ApiError):
    """The body is too large."""

    code = 413
    reason = "RequestEntityTooLarge"


class UnsupportedMediaType(ApiError):
    """The content type is not supported."""

    code = 415
    reason = "UnsupportedMediaType"


class Invalid(ApiError):
    """The object has field errors; `causes` holds all of them."""

    code = 422
    reason = "Invalid"

    def __init__(self, message: str, causes: Sequence[FieldError] = (), *, details: ErrorDetails | None = None) -> None:
        super().__init__(message, details=details)
        self.causes = tuple(causes)


class TooManyRequests(ApiError):
    """Too many requests at once: try again later."""

    code = 429
    reason = "TooManyRequests"


class ServiceUnavailable(ApiError):
    """The server cannot answer now."""

    code = 503
    reason = "ServiceUnavailable"


class Timeout(ApiError):
    """The server did not answer in time; the outcome is unknown."""

    code = 504
    reason = "Timeout"


class ResourceVersionTooLarge(Timeout):
    """The server has not reached the requested revision; after a restore it never will, so list again."""

    cause = "ResourceVersionTooLarge"


# --- Aggregate errors -----------------------------------------------------------------------------------------------
# Several errors as one text, in the form of Kubernetes' messages.


def joined_errors(errors: Iterable[str]) -> str:
    """Each error once: the error itself, or `[one, two]`."""
    texts = list(dict.fromkeys(errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]" if texts else ""
