"""Operational failures: what an API answers when a request is well formed and still cannot be done.

    ApiError
    ├── NotFound        404  the object does not exist
    ├── AlreadyExists   409  an object of that name exists
    ├── Conflict        409  the object changed since it was read
    ├── Gone            410  the revision asked for is compacted away
    ├── Invalid         422  the object has faults (field errors)
    ├── Forbidden       403  not allowed
    └── BadRequest      400  not understood
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dralloc.primitives.field_errors import FieldError


class ApiError(Exception):
    """A refusal with the HTTP code and reason that Kubernetes gives it."""

    code: ClassVar[int] = 500
    reason: ClassVar[str] = "InternalError"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotFound(ApiError):
    code = 404
    reason = "NotFound"


class AlreadyExists(ApiError):
    code = 409
    reason = "AlreadyExists"


class Conflict(ApiError):
    code = 409
    reason = "Conflict"


class Gone(ApiError):
    code = 410
    reason = "Expired"


class Forbidden(ApiError):
    code = 403
    reason = "Forbidden"


class BadRequest(ApiError):
    code = 400
    reason = "BadRequest"


class Invalid(ApiError):
    """The object has faults; `causes` holds all of them."""

    code = 422
    reason = "Invalid"

    def __init__(self, message: str, causes: Sequence[FieldError] = ()) -> None:
        super().__init__(message)
        self.causes = tuple(causes)
