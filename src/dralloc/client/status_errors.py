"""Converts a server's `Status` answers to errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dralloc.client.transport import ClientRequest, ClientResponse, Transport
from dralloc.kube.protobuf_reader import protobuf_to_json
from dralloc.kube.protobuf_schema import MAGIC
from dralloc.primitives import errors
from dralloc.primitives.decoders import UNREADABLE
from dralloc.primitives.errors import ApiError, Cause, ErrorDetails, Gone, ResourceVersionTooLarge

# Two errors share code 409, so the reason decides, and the code only if the reason is unknown.
BY_REASON: Final[Mapping[str, type[ApiError]]] = {
    error.reason: error
    for error in (
        errors.BadRequest,
        errors.Unauthorized,
        errors.Forbidden,
        errors.NotFound,
        errors.MethodNotAllowed,
        errors.NotAcceptable,
        errors.AlreadyExists,
        errors.Conflict,
        errors.Gone,
        errors.RequestEntityTooLarge,
        errors.UnsupportedMediaType,
        errors.Invalid,
        errors.TooManyRequests,
        errors.ServiceUnavailable,
        errors.Timeout,
    )
} | {"Gone": errors.Gone}
# The revision cannot be watched from any more: only a new list shows the current state.
LIST_AGAIN: Final = (Gone, ResourceVersionTooLarge)
BY_CODE: Final = {error.code: error for error in BY_REASON.values() if error is not errors.AlreadyExists}


async def send_request(
    transport: Transport,
    method: str,
    path: str,
    query: Mapping[str, str] | None = None,
    *,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> ClientResponse:
    """Sends a request and returns the answer; raises the error of a failed request."""
    request = ClientRequest(method=method, path=path, query=query or {}, headers=headers or {}, body=body)
    return succeeded(await transport.send(request))


def succeeded(response: ClientResponse) -> ClientResponse:
    """Returns the answer; raises the error of a failed request."""
    if response.status >= 400:
        raise error_of_response(response.status, response.body)
    return response


def error_of_response(code: int, body: bytes) -> ApiError:
    """Returns the error of the answer; if the body is not a `Status`, the error of its code."""
    try:
        status = msgspec.json.decode(protobuf_to_json(body) if body.startswith(MAGIC) else body)
    except (*UNREADABLE, errors.BadRequest):
        status = None
    if not isinstance(status, dict):
        status = {"message": body[:1000].decode(errors="replace") or f"the server answered {code}"}
    return error_of_status(status, code)


def error_of_status(status: dict[str, Any], code: int = 0) -> ApiError:
    kind = BY_REASON.get(status.get("reason") or "") or BY_CODE.get(status.get("code") or code) or ApiError
    message = status.get("message") or f"the server answered {status.get('code') or code}"
    details = _details(status.get("details") or {})
    if kind is errors.Timeout and any(cause.reason == ResourceVersionTooLarge.cause for cause in details.causes):
        kind = ResourceVersionTooLarge
    return kind(message, details=details)


def _details(details: dict[str, Any]) -> ErrorDetails:
    causes = details.get("causes") or ()
    return ErrorDetails(
        name=details.get("name", ""),
        group=details.get("group", ""),
        kind=details.get("kind", ""),
        uid=details.get("uid", ""),
        causes=tuple(
            Cause(cause.get("reason", ""), cause.get("message", ""), cause.get("field", "")) for cause in causes
        ),
        retry_after_s=details.get("retryAfterSeconds", 0),
    )
