"""Follows requests for the audit log: asks the policy, and logs an event at each stage that it wants."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from datetime import datetime
from itertools import count
from types import TracebackType
from typing import Any, Final, Protocol
from uuid import uuid4

from msgspec import UNSET

from dralloc.access.access_request import AccessRequest
from dralloc.access.users import User
from dralloc.apiserver.audit.audit_events import (
    AuditEvent,
    annotations_of,
    encode_event,
    is_sensitive,
    name_created_object,
    print_user,
    request_object,
    response_object,
    response_status,
    stage_event,
    with_microseconds,
)
from dralloc.apiserver.audit.audit_metrics import AuditMetrics
from dralloc.apiserver.audit.audit_policy import AuditChoice, AuditChooser, AuditLevel, AuditPolicy, AuditStage
from dralloc.apiserver.http.access_requests import access_request
from dralloc.apiserver.http.flow_control import compute
from dralloc.apiserver.http.messages import HttpRequest, HttpResponse
from dralloc.apiserver.http.url_paths import Path, parse_path
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import TooManyRequests

AUDIT_ID_LENGTH_MAX: Final = 64

# IDs look like UUIDs; the first digits are random for each process, the last ones count.
_ID_PREFIX: Final = str(uuid4())[:24]
_numbers: Final = count(1)


class AuditSink(Protocol):
    """Where events go. Never blocks: an event that cannot be kept is dropped and counted."""

    metrics: AuditMetrics

    def write(self, line: bytes) -> None: ...


class Auditor:
    """Logs the requests of one server as its policy says."""

    def __init__(self, policy: AuditPolicy, sink: AuditSink, clock: Clock) -> None:
        self._chooser = AuditChooser(policy)
        self._sink = sink
        self._clock = clock
        self.metrics = sink.metrics

    def begin(self, request: HttpRequest, path: Path) -> AuditedRequest | None:
        """Log that a request was received; returns `None` if the policy does not want it."""
        asked = access_request(request, path)
        choice = self._chooser.choose(asked)
        if choice.level is AuditLevel.NONE:
            return None
        return AuditedRequest(self, request, asked, choice, request.user)

    def unauthenticated(self, request: HttpRequest) -> None:
        """Log a request without a valid credential."""
        asked = access_request(request, parse_path(request.path))
        choice = self._chooser.choose(asked, is_authenticated=False)
        if choice.level is not AuditLevel.NONE and AuditStage.RESPONSE_STARTED in choice.stages:
            scheme = request.headers.get(b"authorization", b"").partition(b" ")[0].lower()
            tried = scheme.decode() if scheme in (b"basic", b"bearer") else ""
            audited = AuditedRequest(self, request, asked, choice, None)
            audited.refuse(
                f"Authentication failed, attempted: {tried}"
                if tried
                else "Authentication failed, no credentials provided"
            )

    def now(self) -> datetime:
        return with_microseconds(self._clock.now())

    def log(self, event: AuditEvent) -> None:
        self.metrics.events.add()
        self._sink.write(encode_event(event) + b"\n")


class AuditedRequest:
    """A request that is logged."""

    def __init__(
        self, auditor: Auditor, request: HttpRequest, asked: AccessRequest, choice: AuditChoice, user: User | None
    ) -> None:
        self._auditor = auditor
        self._request = request
        self._is_sensitive = is_sensitive(asked, request.body)
        self._level = min(choice.level, AuditLevel.METADATA) if self._is_sensitive else choice.level
        self._choice = choice
        self._names_object = asked.verb == "create" and not asked.name and not asked.path
        self.audit_id = _audit_id(request)
        self._event = stage_event(
            request, asked, self._level, audit_id=self.audit_id, received=auditor.now(), user=user
        )
        if user is not None and AuditStage.REQUEST_RECEIVED in choice.stages:
            auditor.log(self._event)

    async def end(self, response: HttpResponse) -> None:
        """Log the response; that of a stream when the stream ends."""
        event = self._event
        event.annotations = annotations_of(self._request.decision)
        if self._request.impersonator is not None:
            event.impersonated_user = print_user(self._request.user)
        event.response_status = response_status(response, is_sensitive=self._is_sensitive)
        response.headers += ((b"audit-id", self.audit_id.encode()),)
        if response.stream is None:
            return await self.complete(response)
        if event.verb == "watch":
            self._log(AuditStage.RESPONSE_STARTED)
        response.stream = _AuditedStream(response.stream, self, response)
        return None

    def refuse(self, message: str) -> None:
        """Log that no credential proved a user."""
        self._event.response_status = {"metadata": {}, "message": message, "code": 401}
        self._log(AuditStage.RESPONSE_STARTED)

    async def complete(self, response: HttpResponse) -> None:
        """Log the end of the response. Large documents are read in a thread, as all work on them."""
        event, omits = self._event, self._choice.omits_managed_fields
        if self._names_object and response.status == 201 and event.object_ref is not UNSET:
            name_created_object(event.object_ref, response)
        if self._level >= AuditLevel.REQUEST:
            event.request_object = await _computed(
                len(self._request.body),
                lambda: request_object(self._request, was_accepted=response.status < 300, omits_managed_fields=omits),
            )
        if self._level >= AuditLevel.REQUEST_RESPONSE:
            event.response_object = await _computed(
                len(response.body), lambda: response_object(response, omits_managed_fields=omits)
            )
        self._log(AuditStage.RESPONSE_COMPLETE)

    def _log(self, stage: AuditStage) -> None:
        if stage in self._choice.stages:
            self._event.stage = stage.value
            self._event.stage_timestamp = self._auditor.now()
            self._auditor.log(self._event)


class _AuditedStream(AsyncGenerator[bytes, None]):
    """A stream whose end is logged. It hands out the pieces of the other one as they are."""

    def __init__(self, stream: AsyncGenerator[bytes, None], audited: AuditedRequest, response: HttpResponse) -> None:
        self._stream = stream
        self._audited: AuditedRequest | None = audited
        self._response = response

    def __anext__(self) -> Any:
        return self._stream.__anext__()

    def asend(self, value: None) -> Any:
        return self._stream.asend(value)

    def athrow(self, typ: Any, val: Any = None, tb: TracebackType | None = None) -> Any:
        return self._stream.athrow(typ, val, tb)

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            if (audited := self._audited) is not None:
                self._audited = None
                await audited.complete(self._response)


async def _computed(size: int, read: Callable[[], Any]) -> Any:
    """What was read; unset if the user has too much large work in progress already."""
    try:
        return await compute(size, read)
    except TooManyRequests:
        return UNSET


def _audit_id(request: HttpRequest) -> str:
    """The client's own ID if it sent one, so that it can find its request in the log; otherwise a new one."""
    sent = request.header(b"audit-id")
    if sent and len(sent) <= AUDIT_ID_LENGTH_MAX and sent.isascii() and sent.isprintable():
        return sent
    return f"{_ID_PREFIX}{next(_numbers):012x}"
