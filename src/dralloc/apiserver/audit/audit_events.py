"""Audit events in Kubernetes' format (`audit.k8s.io/v1`, kind `Event`), one JSON line each.

Credentials are never part of an event: headers are not logged, the bodies of secrets and tokens neither, and of the query only the
options of the API.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from dralloc.access.access_request import AccessRequest
from dralloc.access.authorizer import Decision
from dralloc.access.users import User
from dralloc.api.positions import SourceError
from dralloc.api.yaml_reader import read_yaml_stream
from dralloc.apiserver.audit.audit_policy import API_VERSION, AuditLevel, AuditStage
from dralloc.apiserver.http.messages import JSON, HttpRequest, HttpResponse
from dralloc.primitives.decoders import UNREADABLE

REDACTED: Final = "REDACTED"

_LEVEL_NAMES: Final = {
    AuditLevel.METADATA: "Metadata",
    AuditLevel.REQUEST: "Request",
    AuditLevel.REQUEST_RESPONSE: "RequestResponse",
}
_JSON_TYPES: Final = frozenset(
    (JSON, "application/merge-patch+json", "application/json-patch+json", "application/strategic-merge-patch+json")
)
# Options of the API. Anything else in a query may be a credential.
_OPTIONS: Final = frozenset(
    (
        *("watch", "limit", "continue", "fieldSelector", "labelSelector", "resourceVersion", "resourceVersionMatch"),
        *("timeoutSeconds", "timeout", "allowWatchBookmarks", "sendInitialEvents", "dryRun", "fieldManager", "force"),
        *("fieldValidation", "gracePeriodSeconds", "propagationPolicy", "orphanDependents", "pretty"),
    )
)
_SENSITIVE: Final = frozenset(
    {("", "secrets"), ("authentication.k8s.io", "tokenreviews"), ("authentication.k8s.io", "tokenrequests")}
)
_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9/.:_~-]*")
# In JSON and in YAML.
_SENSITIVE_KIND: Final = re.compile(rb"""kind["']?\s*:\s*["']?(Secret|TokenRequest|TokenReview)""")

encode_event: Final = msgspec.json.Encoder(order=None).encode


class AuditedObject(Struct, rename="camel", omit_defaults=True, gc=False):
    """The object that a request is about."""

    resource: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_group: str = ""
    api_version: str = ""
    subresource: str = ""


class AuditEvent(Struct, rename="camel", omit_defaults=True, gc=False, kw_only=True):
    """One stage of one request."""

    kind: str
    api_version: str
    level: str
    audit_id: str = msgspec.field(name="auditID")
    stage: str
    request_uri: str = msgspec.field(name="requestURI")
    verb: str
    user: Raw
    impersonated_user: Raw | UnsetType = UNSET
    source_ips: tuple[str, ...] = msgspec.field(name="sourceIPs", default=())
    user_agent: str = ""
    object_ref: AuditedObject | UnsetType = UNSET
    response_status: dict[str, Any] | UnsetType = UNSET
    request_object: Any = UNSET
    response_object: Any = UNSET
    request_received_timestamp: datetime
    stage_timestamp: datetime
    annotations: dict[str, str] | UnsetType = UNSET


def is_sensitive(asked: AccessRequest, body: bytes) -> bool:
    """True for requests whose bodies may be credentials, and for those outside of the API: only their metadata is logged.

    The body is searched, too: it may have been sent to the path of another kind by mistake, and errors quote it.
    """
    if asked.path or (asked.group, asked.resource, asked.subresource) == ("", "serviceaccounts", "token"):
        return True
    return (asked.group, asked.resource) in _SENSITIVE or _SENSITIVE_KIND.search(body) is not None


def level_name(level: AuditLevel) -> str:
    return _LEVEL_NAMES[level]


def with_microseconds(moment: datetime) -> datetime:
    """The time as events print it: Kubernetes does not read a MicroTime without a fraction."""
    return moment if moment.microsecond else moment.replace(microsecond=1)


@lru_cache(maxsize=4096)
def print_user(user: User | None) -> Raw:
    if user is None:
        return Raw(b"{}")
    printed: dict[str, Any] = {"username": user.name}
    if user.uid:
        printed["uid"] = user.uid
    if user.groups:
        printed["groups"] = user.groups
    if user.extra:
        printed["extra"] = dict(user.extra)
    return Raw(msgspec.json.encode(printed))


def request_uri(path: str, query: Mapping[str, str]) -> str:
    """The path with the options of the API; values of other parameters are redacted."""
    if _PLAIN_PATH.fullmatch(path) is None:
        path = quote(path, safe="/:@!$&'()*+,;=~")
    if not query:
        return path
    return f"{path}?{urlencode({name: text if name in _OPTIONS else REDACTED for name, text in query.items()})}"


def object_reference(asked: AccessRequest) -> AuditedObject | UnsetType:
    if asked.path:
        return UNSET
    return AuditedObject(
        resource=asked.resource,
        namespace=asked.namespace,
        name=asked.name,
        api_group=asked.group,
        api_version=asked.version,
        subresource=asked.subresource,
    )


class _CreatedMetadata(Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Created(Struct):
    metadata: _CreatedMetadata


_decode_created: Final = msgspec.json.Decoder(_Created).decode


def name_created_object(reference: AuditedObject, response: HttpResponse) -> None:
    """Complete the reference of a create, whose path has no name; the server may have generated it."""
    try:
        created = _decode_created(response.body).metadata
    except UNREADABLE:
        return
    reference.name, reference.uid = created.name, created.uid


def response_status(response: HttpResponse, *, is_sensitive: bool) -> dict[str, Any]:
    """The code, and for an error its reason and message. A message may quote the body, so a sensitive request has none."""
    status: dict[str, Any] = {"metadata": {}}
    if response.status >= 400 and response.content_type == JSON and response.stream is None:
        try:
            sent = msgspec.json.decode(response.body)
        except UNREADABLE:
            sent = None
        if isinstance(sent, dict) and sent.get("kind") == "Status":
            names = ("status", "reason") if is_sensitive else ("status", "message", "reason", "details")
            status |= {name: sent[name] for name in names if name in sent}
    status["code"] = response.status
    return status


def annotations_of(decision: Decision | None) -> dict[str, str] | UnsetType:
    if decision is None:
        return UNSET
    return {
        "authorization.k8s.io/decision": "allow" if decision.allowed else "forbid",
        "authorization.k8s.io/reason": decision.reason,
    }


def request_object(request: HttpRequest, *, was_accepted: bool, omits_managed_fields: bool) -> Any:
    """The document in the request's body; unset if there is none."""
    media_type = request.media_type
    if was_accepted and media_type in _JSON_TYPES and not omits_managed_fields and b"\n" not in request.body:
        # The server has read it, so it is valid JSON.
        return Raw(request.body) if request.body else UNSET
    if not request.body or "protobuf" in media_type:
        return UNSET
    document = _document(request.body, is_yaml="yaml" in media_type)
    return _without_managed_fields(document) if omits_managed_fields else document


def response_object(response: HttpResponse, *, omits_managed_fields: bool) -> Any:
    """The document in the response's body; unset for streams."""
    if response.stream is not None or response.content_type != JSON or not response.body:
        return UNSET
    document = _document(response.body, is_yaml=False)
    return _without_managed_fields(document) if omits_managed_fields else document


def _document(body: bytes, *, is_yaml: bool) -> Any:
    try:
        return msgspec.json.decode(body)
    except UNREADABLE:
        pass
    if not is_yaml:
        return UNSET
    try:
        return next(read_yaml_stream(body.decode()), UNSET)
    except (SourceError, UnicodeDecodeError):
        return UNSET


def _without_managed_fields(document: Any) -> Any:
    if not isinstance(document, dict):
        return document
    items = document.get("items")
    for part in (document, *(items if isinstance(items, list) else ())):
        if isinstance(part, dict) and isinstance(metadata := part.get("metadata"), dict):
            metadata.pop("managedFields", None)
    return document


def stage_event(
    request: HttpRequest,
    asked: AccessRequest,
    level: AuditLevel,
    *,
    audit_id: str,
    received: datetime,
    user: User | None,
) -> AuditEvent:
    """What all stages of a request have in common, as its first stage."""
    return AuditEvent(
        kind="Event",
        api_version=API_VERSION,
        level=level_name(level),
        audit_id=audit_id,
        stage=AuditStage.REQUEST_RECEIVED.value,
        request_uri=request_uri(request.path, request.query),
        verb=asked.verb,
        user=print_user(user),
        source_ips=(request.source_ip,) if request.source_ip else (),
        user_agent=request.header(b"user-agent"),
        object_ref=object_reference(asked),
        request_received_timestamp=received,
        stage_timestamp=received,
    )
