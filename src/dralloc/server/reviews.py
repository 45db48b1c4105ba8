"""Answers reviews: who am I, whose token is this, may this user do that, what may I do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from msgspec import Raw
from msgspec.structs import replace

from dralloc.kube import authentication_v1, authorization_v1, review_kinds
from dralloc.kube.authorization_v1 import NonResourceAttributes, ResourceAttributes, SelectorAttributes
from dralloc.kube.codec import encode
from dralloc.kube.meta_v1 import LabelSelectorRequirement, ObjectMeta
from dralloc.kube.rbac_v1 import PolicyRule
from dralloc.kube.review_kinds import REVIEW_KINDS, ReviewKind
from dralloc.primitives import names
from dralloc.primitives.errors import BadRequest
from dralloc.primitives.field_errors import FieldError, FieldPath, required
from dralloc.primitives.field_errors import invalid as invalid_value
from dralloc.server.access.authorizer import AccessRequest, Decision, Opinion, SelectorRequirement
from dralloc.server.access.rbac import KnownRules
from dralloc.server.access.users import User
from dralloc.server.documents.json_documents import Document
from dralloc.server.http.access_requests import read_field_terms
from dralloc.server.http.authentication import VerifiedToken
from dralloc.server.http.messages import HttpRequest, HttpResponse
from dralloc.server.http.statuses import invalid, method_not_allowed, no_such_resource
from dralloc.server.http.url_paths import ResourcePath
from dralloc.server.read.selectors import LabelOperator, parse_label_selector
from dralloc.server.write.request_bodies import read_unstored

_SPEC: Final = FieldPath.of("spec")
_ATTRIBUTES: Final = _SPEC.child("resourceAttributes")
_LABEL_OPERATORS: Final = {
    LabelOperator.EXISTS: "Exists",
    LabelOperator.DOES_NOT_EXIST: "DoesNotExist",
    LabelOperator.EQUALS: "In",
    LabelOperator.IN: "In",
    LabelOperator.NOT_EQUALS: "NotIn",
    LabelOperator.NOT_IN: "NotIn",
    LabelOperator.GREATER: "Gt",
    LabelOperator.LESS: "Lt",
}

Requirements = tuple[SelectorRequirement, ...]


class AccessDecisions(Protocol):
    """Decides access (`dralloc.server.read.access_control.AccessControl`)."""

    async def decide(self, asked: AccessRequest) -> Decision: ...

    async def rules_of(self, user: User, namespace: str) -> KnownRules: ...


VerifyToken = Callable[[str, Sequence[str]], Awaitable[VerifiedToken | None]]
Review = Callable[[HttpRequest, ResourcePath], Awaitable[Document]]


class Reviews:
    """Responds to the creation of reviews."""

    def __init__(self, access: AccessDecisions, verify_token: VerifyToken) -> None:
        self._access = access
        self._verify_token = verify_token
        by_kind: Mapping[ReviewKind, Review] = {
            review_kinds.SELF_SUBJECT_REVIEW: self._self_subject_review,
            review_kinds.TOKEN_REVIEW: self._token_review,
            review_kinds.SELF_SUBJECT_ACCESS_REVIEW: self._self_subject_access_review,
            review_kinds.SUBJECT_ACCESS_REVIEW: self._subject_access_review,
            review_kinds.LOCAL_SUBJECT_ACCESS_REVIEW: self._local_subject_access_review,
            review_kinds.SELF_SUBJECT_RULES_REVIEW: self._self_subject_rules_review,
        }
        self._reviews = {
            (kind.group, kind.version, kind.plural): (kind, review)
            for kind, review in by_kind.items()
            if kind in REVIEW_KINDS
        }

    async def answer(self, request: HttpRequest, path: ResourcePath) -> HttpResponse | None:
        """The answered review; `None` if the path is not that of a review."""
        found = self._reviews.get((path.group, path.version, path.resource))
        if found is None:
            return None
        kind, review = found
        if path.name or path.subresource or (path.namespace and not kind.namespaced):
            raise no_such_resource()
        if request.method != "POST" or (kind.namespaced and not path.namespace):
            raise method_not_allowed()
        document = {"kind": kind.kind, "apiVersion": kind.api_version, **await review(request, path)}
        return HttpResponse(201, encode(document))

    # --- identities -----------------------------------------------------------------------------------------

    async def _self_subject_review(self, request: HttpRequest, _: ResourcePath) -> Document:
        read_unstored(request, authentication_v1.SelfSubjectReview)
        return {"metadata": {}, "status": {"userInfo": _user_document(request.user)}}

    async def _token_review(self, request: HttpRequest, _: ResourcePath) -> Document:
        spec = (read_unstored(request, authentication_v1.TokenReview)).spec
        if not spec.token:
            raise BadRequest("token is required for TokenReview in authentication")
        verified = await self._verify_token(spec.token, spec.audiences)
        if verified is None:
            return {"metadata": {}, "spec": spec, "status": {"error": "invalid bearer token", "user": {}}}
        status: Document = {"authenticated": True, "user": _user_document(verified.user)}
        if verified.audiences:
            status["audiences"] = list(verified.audiences)
        return {"metadata": {}, "spec": spec, "status": status}

    # --- access ---------------------------------------------------------------------------------------------

    async def _self_subject_access_review(self, request: HttpRequest, _: ResourcePath) -> Document:
        review = read_unstored(request, authorization_v1.SubjectAccessReview)
        _refuse(_faults_of_spec(review.spec), _faults_of_metadata(review.metadata))
        return await self._reviewed(review, request.user)

    async def _subject_access_review(self, request: HttpRequest, _: ResourcePath) -> Document:
        review = read_unstored(request, authorization_v1.SubjectAccessReview)
        _refuse(_faults_of_spec(review.spec), _faults_of_user(review.spec), _faults_of_metadata(review.metadata))
        return await self._reviewed(review, _user_of(review.spec))

    async def _local_subject_access_review(self, request: HttpRequest, path: ResourcePath) -> Document:
        review = read_unstored(request, authorization_v1.SubjectAccessReview)
        # A namespace that the body does not state is that of the URL.
        if not review.metadata.namespace:
            review = replace(review, metadata=replace(review.metadata, namespace=path.namespace))
        if review.metadata.namespace != path.namespace:
            raise BadRequest("the namespace of the provided object does not match the namespace sent on the request")
        _refuse(
            _faults_of_spec(review.spec),
            _faults_of_user(review.spec),
            _faults_of_metadata(review.metadata),
            _faults_of_local(review.spec, path.namespace),
        )
        return await self._reviewed(review, _user_of(review.spec))

    async def _self_subject_rules_review(self, request: HttpRequest, _: ResourcePath) -> Document:
        review = read_unstored(request, authorization_v1.SelfSubjectRulesReview)
        if not review.spec.namespace:
            raise BadRequest("no namespace on request")
        rules = await self._access.rules_of(request.user, review.spec.namespace)
        return {"metadata": {}, "spec": review.spec, "status": _rules_status(rules)}

    async def _reviewed(self, review: authorization_v1.SubjectAccessReview, user: User) -> Document:
        asked, unread = _asked(user, review.spec)
        decision = await self._access.decide(asked)
        status: Document = {"allowed": decision.allowed}
        if decision.opinion is Opinion.DENY:
            status["denied"] = True
        if decision.reason:
            status["reason"] = decision.reason
        errors = [error for error in (decision.evaluation_error, *unread) if error]
        if errors:
            status["evaluationError"] = "; ".join(errors)
        return {"metadata": review.metadata, "spec": review.spec, "status": status}


def _rules_status(rules: KnownRules) -> Raw:
    """Encoded: a user can have many thousands of rules."""
    status: Document = {
        "resourceRules": [_resource_rule(rule) for rule in rules.resource_rules],
        "nonResourceRules": [_non_resource_rule(rule) for rule in rules.non_resource_rules],
        "incomplete": rules.incomplete,
    }
    if rules.evaluation_error:
        status["evaluationError"] = rules.evaluation_error
    return Raw(encode(status))


def _user_of(spec: authorization_v1.SubjectAccessReviewSpec) -> User:
    extra = tuple(sorted(spec.extra.items()))
    return User(name=spec.user, uid=spec.uid, groups=spec.groups, extra=extra)


def _user_document(user: User) -> Document:
    document: Document = {"username": user.name}
    if user.uid:
        document["uid"] = user.uid
    if user.groups:
        document["groups"] = list(user.groups)
    if user.extra:
        document["extra"] = {key: list(values) for key, values in user.extra}
    return document


def _resource_rule(rule: PolicyRule) -> Document:
    members = {"apiGroups": rule.api_groups, "resources": rule.resources, "resourceNames": rule.resource_names}
    return {"verbs": rule.verbs, **{name: values for name, values in members.items() if values}}


def _non_resource_rule(rule: PolicyRule) -> Document:
    return {"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}


# --- validation -------------------------------------------------------------------------------------------------


class _GoValue:
    """A value that a message shows as Kubernetes prints it."""

    def __init__(self, attributes: NonResourceAttributes) -> None:
        self._attributes = attributes

    def __str__(self) -> str:
        return encode({"Path": self._attributes.path, "Verb": self._attributes.verb}).decode()


def _refuse(*faults: Iterator[FieldError]) -> None:
    """Kubernetes leaves the kind out of these messages."""
    if found := [fault for each in faults for fault in each]:
        raise invalid(authorization_v1.GROUP, "", "", found)


def _faults_of_spec(spec: authorization_v1.SubjectAccessReviewSpec) -> Iterator[FieldError]:
    paths = spec.non_resource_attributes
    if (spec.resource_attributes is None) == (paths is None):
        value = None if paths is None else _GoValue(paths)
        yield invalid_value(
            _SPEC, value, "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        )
    if spec.resource_attributes is not None:
        yield from _faults_of_selector(spec.resource_attributes.field_selector, "fieldSelector")
        yield from _faults_of_selector(spec.resource_attributes.label_selector, "labelSelector")


def _faults_of_selector(selector: SelectorAttributes | None, name: str) -> Iterator[FieldError]:
    path = _ATTRIBUTES.child(name)
    if selector is None:
        return
    if selector.raw_selector and selector.requirements:
        detail = "may not specified at the same time as requirements"
        yield invalid_value(path.child("rawSelector"), selector.raw_selector, detail)
    if not selector.raw_selector and not selector.requirements:
        detail = f"when {path} is specified, requirements or rawSelector is required"
        yield required(path.child("requirements"), detail)


def _faults_of_user(spec: authorization_v1.SubjectAccessReviewSpec) -> Iterator[FieldError]:
    if not spec.user and not spec.groups:
        yield invalid_value(_SPEC.child("user"), spec.user, "at least one of user or group must be specified")


def _faults_of_metadata(metadata: ObjectMeta) -> Iterator[FieldError]:
    """A namespace is allowed: where there is none, it is dropped."""
    if replace(metadata, namespace="", managed_fields=()) != ObjectMeta():
        yield invalid_value(FieldPath.of("metadata"), encode(metadata).decode(), "must be empty")


def _faults_of_local(spec: authorization_v1.SubjectAccessReviewSpec, namespace: str) -> Iterator[FieldError]:
    attributes, paths = spec.resource_attributes, spec.non_resource_attributes
    if attributes is not None and attributes.namespace != namespace:
        yield invalid_value(_ATTRIBUTES.child("namespace"), attributes.namespace, "must match metadata.namespace")
    if paths is not None:
        detail = "disallowed on this kind of request"
        yield invalid_value(_SPEC.child("nonResourceAttributes"), _GoValue(paths), detail)


# --- the question -----------------------------------------------------------------------------------------------


def _asked(user: User, spec: authorization_v1.SubjectAccessReviewSpec) -> tuple[AccessRequest, list[str]]:
    """The access that the review asks about, and what of its selectors cannot be read."""
    attributes = spec.resource_attributes
    if attributes is None:
        paths = spec.non_resource_attributes or NonResourceAttributes()
        return AccessRequest(user=user, verb=paths.verb, path=paths.path or "/"), []
    fields, field_faults = _read_selector(attributes.field_selector, _field_requirements, _field_requirement)
    labels, label_faults = _read_selector(attributes.label_selector, _label_requirements, _label_requirement)
    unread = [
        f"{_ATTRIBUTES.child(name)} {'partially ' if read else ''}ignored due to parse error"
        for name, read, faults in (
            ("fieldSelector", fields, field_faults),
            ("labelSelector", labels, label_faults),
        )
        if faults
    ]
    return _resource_request(user, attributes, fields, labels), unread


def _resource_request(
    user: User, attributes: ResourceAttributes, fields: Requirements, labels: Requirements
) -> AccessRequest:
    return AccessRequest(
        user=user,
        verb=attributes.verb,
        group=attributes.group,
        version=attributes.version or "*",
        resource=attributes.resource,
        subresource=attributes.subresource,
        namespace=attributes.namespace,
        name=attributes.name,
        field_selector=fields,
        label_selector=labels,
    )


def _read_selector(
    selector: SelectorAttributes | None,
    read_text: Callable[[str], Requirements],
    read_requirement: Callable[[LabelSelectorRequirement], SelectorRequirement | None],
) -> tuple[Requirements, bool]:
    """The requirements that can be read, and whether there are others."""
    if selector is None:
        return (), False
    if selector.raw_selector:
        try:
            return read_text(selector.raw_selector), False
        except BadRequest:
            return (), True
    read = [read_requirement(each) for each in selector.requirements]
    return tuple(each for each in read if each is not None), None in read


def _field_requirements(text: str) -> Requirements:
    return tuple(
        SelectorRequirement(term.field, "NotIn" if term.negated else "In", (term.value,))
        for term in read_field_terms(text)
    )


def _field_requirement(requirement: LabelSelectorRequirement) -> SelectorRequirement | None:
    if requirement.operator not in ("In", "NotIn") or len(requirement.values) != 1:
        return None
    return SelectorRequirement(requirement.key, requirement.operator, requirement.values)


def _label_requirements(text: str) -> Requirements:
    return tuple(
        SelectorRequirement(each.key, _LABEL_OPERATORS[each.operator], tuple(sorted(each.values)))
        for each in parse_label_selector(text).requirements
    )


def _label_requirement(requirement: LabelSelectorRequirement) -> SelectorRequirement | None:
    takes_values: Mapping[str, bool] = {"In": True, "NotIn": True, "Exists": False, "DoesNotExist": False}
    faults: Any = names.label_key(requirement.key) or [
        fault for value in requirement.values for fault in names.label_value(value)
    ]
    if faults or takes_values.get(requirement.operator) is not bool(requirement.values):
        return None
    return SelectorRequirement(requirement.key, requirement.operator, requirement.values)
