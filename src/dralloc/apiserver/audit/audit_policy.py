"""Audit policies in Kubernetes' format (`audit.k8s.io/v1`, kind `Policy`): the first rule that matches a request decides."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, IntEnum
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from dralloc.access.access_request import AccessRequest
from dralloc.api.positions import SourceError
from dralloc.api.yaml_reader import read_yaml_stream

API_VERSION: Final = "audit.k8s.io/v1"


class BadAuditPolicy(ValueError):
    """A policy file that cannot be used; the message lists what is wrong."""


class AuditLevel(IntEnum):
    """How much of a request is logged; a higher level includes the lower ones."""

    NONE = 0
    METADATA = 1
    REQUEST = 2
    REQUEST_RESPONSE = 3


class AuditStage(Enum):
    """When an event is logged. `ResponseStarted` exists for watches, and for requests without a valid credential."""

    REQUEST_RECEIVED = "RequestReceived"
    RESPONSE_STARTED = "ResponseStarted"
    RESPONSE_COMPLETE = "ResponseComplete"
    # Accepted in `omitStages`; an internal error is a ResponseComplete with code 500 here.
    PANIC = "Panic"


_LEVELS: Final = {
    "None": AuditLevel.NONE,
    "Metadata": AuditLevel.METADATA,
    "Request": AuditLevel.REQUEST,
    "RequestResponse": AuditLevel.REQUEST_RESPONSE,
}


class AuditedResources(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Resources of one API group: none listed means all, names restrict them."""

    group: str = ""
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()

    def cover(self, asked: AccessRequest) -> bool:
        if self.group != asked.group:
            return False
        if not self.resources:
            return True
        if self.resource_names and asked.name not in self.resource_names:
            return False
        return any(_is_resource(each, asked) for each in self.resources)


class AuditRule(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """What a request must be like, and how it is logged then."""

    level: Literal["None", "Metadata", "Request", "RequestResponse"]
    users: tuple[str, ...] = ()
    user_groups: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    resources: tuple[AuditedResources, ...] = ()
    namespaces: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = msgspec.field(default=(), name="nonResourceURLs")
    omit_stages: tuple[AuditStage, ...] = ()
    omit_managed_fields: bool | None = None

    def matches(self, asked: AccessRequest, *, is_authenticated: bool) -> bool:
        """Whether the rule decides about this request; a user without a valid credential is in no list of users."""
        if self.users and not (is_authenticated and asked.user.name in self.users):
            return False
        if self.user_groups and not (is_authenticated and any(each in asked.user.groups for each in self.user_groups)):
            return False
        if self.verbs and asked.verb not in self.verbs:
            return False
        if self.namespaces or self.resources:
            return self._matches_resource(asked)
        if self.non_resource_urls:
            return bool(asked.path) and any(_covers_path(each, asked.path) for each in self.non_resource_urls)
        return True

    def _matches_resource(self, asked: AccessRequest) -> bool:
        if asked.path or (self.namespaces and asked.namespace not in self.namespaces):
            return False
        return not self.resources or any(each.cover(asked) for each in self.resources)


class AuditChoice(Struct, frozen=True):
    """What a policy says about one request."""

    level: AuditLevel
    stages: frozenset[AuditStage]
    omits_managed_fields: bool


_NOTHING: Final = AuditChoice(AuditLevel.NONE, frozenset(), False)


class _PolicyMetadata(Struct, frozen=True):
    name: str = ""


class AuditPolicy(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A policy file."""

    api_version: str
    kind: str
    rules: tuple[AuditRule, ...] = ()
    omit_stages: tuple[AuditStage, ...] = ()
    omit_managed_fields: bool = False
    metadata: _PolicyMetadata = _PolicyMetadata()

    def choices(self) -> tuple[tuple[AuditRule, AuditChoice], ...]:
        """The rules in order, each with what it says."""
        return tuple((rule, self._choice(rule)) for rule in self.rules)

    def _choice(self, rule: AuditRule) -> AuditChoice:
        omitted = rule.omit_managed_fields
        return AuditChoice(
            level=_LEVELS[rule.level],
            stages=frozenset(AuditStage) - {*self.omit_stages, *rule.omit_stages},
            omits_managed_fields=self.omit_managed_fields if omitted is None else omitted,
        )


class AuditChooser:
    """Finds the choice of a policy for a request; a request that no rule matches is not logged."""

    def __init__(self, policy: AuditPolicy) -> None:
        self._choices = policy.choices()

    def choose(self, asked: AccessRequest, *, is_authenticated: bool = True) -> AuditChoice:
        for rule, choice in self._choices:
            if rule.matches(asked, is_authenticated=is_authenticated):
                return choice
        return _NOTHING


def load_policy(path: Path) -> AuditPolicy:
    """The policy of a file; raises BadAuditPolicy."""
    try:
        return read_policy(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadAuditPolicy(f"the audit policy {path} cannot be read: {reason}") from None
    except BadAuditPolicy as error:
        raise BadAuditPolicy(f"the audit policy {path} is invalid: {error}") from None


def read_policy(text: str) -> AuditPolicy:
    """The policy of a YAML or JSON document; raises BadAuditPolicy."""
    try:
        documents = [each for each in read_yaml_stream(text) if each is not None]
    except SourceError as error:
        raise BadAuditPolicy(f"line {error.position.line}: {error}") from None
    if len(documents) != 1:
        raise BadAuditPolicy(f"it has {len(documents)} documents instead of one Policy")
    try:
        policy = msgspec.convert(documents[0], AuditPolicy)
    except msgspec.ValidationError as error:
        raise BadAuditPolicy(str(error).replace("`$", "`policy")) from None
    if faults := list(_faults_of(policy)):
        raise BadAuditPolicy("; ".join(faults))
    return policy


def _faults_of(policy: AuditPolicy) -> Iterator[str]:
    if (policy.api_version, policy.kind) != (API_VERSION, "Policy"):
        yield f"it is a {policy.kind} of {policy.api_version} instead of a Policy of {API_VERSION}"
    if not policy.rules:
        yield "it has no rules, so nothing would be logged"
    for number, rule in enumerate(policy.rules):
        where = f"rules[{number}]"
        if rule.non_resource_urls and (rule.resources or rule.namespaces):
            yield f"{where}: rules cannot apply to both regular resources and non-resource URLs"
        for url in rule.non_resource_urls:
            if url != "*" and not url.startswith("/"):
                yield f"{where}.nonResourceURLs: {url!r} must begin with '/' or be '*'"
            if "*" in url[:-1]:
                yield f"{where}.nonResourceURLs: the '*' of {url!r} must be its last character"
        for each in rule.resources:
            if each.resource_names and not each.resources:
                yield f"{where}.resources: resourceNames require at least one resource"
            if "*" in each.group or "/" in each.group:
                yield f"{where}.resources: {each.group!r} is not the name of an API group"


def _is_resource(listed: str, asked: AccessRequest) -> bool:
    """`pods`, `pods/log`, `pods/*` (with pods itself), `*/log`, or `*` for everything."""
    if listed in ("*", asked.full_resource):
        return True
    resource, _, subresource = listed.partition("/")
    if subresource == "*":
        return resource == asked.resource
    return resource == "*" and bool(subresource) and subresource == asked.subresource


def _covers_path(listed: str, path: str) -> bool:
    return path.startswith(listed[:-1]) if listed.endswith("*") else path == listed
