"""`authorization.k8s.io/v1`: questions about access. They are answered, never stored."""

from __future__ import annotations

from typing import ClassVar, Final

from msgspec import field

from dralloc.kube.meta_v1 import ApiObject, LabelSelectorRequirement
from dralloc.kube.wire import Wire

GROUP: Final = "authorization.k8s.io"


class SelectorAttributes(Wire):
    """A field or label selector: as text, or as requirements."""

    raw_selector: str = ""
    requirements: tuple[LabelSelectorRequirement, ...] = ()


class ResourceAttributes(Wire):
    namespace: str = ""
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    field_selector: SelectorAttributes | None = None
    label_selector: SelectorAttributes | None = None


class NonResourceAttributes(Wire):
    path: str = ""
    verb: str = ""


class SubjectAccessReviewSpec(Wire):
    """A question about the access of a user; for a review of oneself, the user is not stated."""

    resource_attributes: ResourceAttributes | None = None
    non_resource_attributes: NonResourceAttributes | None = None
    user: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = field(default_factory=dict)
    uid: str = ""


class SubjectAccessReview(ApiObject):
    UNREAD: ClassVar = ("status",)

    spec: SubjectAccessReviewSpec = field(default_factory=lambda: SubjectAccessReviewSpec())


class SelfSubjectRulesReviewSpec(Wire):
    namespace: str = ""


class SelfSubjectRulesReview(ApiObject):
    UNREAD: ClassVar = ("status",)

    spec: SelfSubjectRulesReviewSpec = field(default_factory=lambda: SelfSubjectRulesReviewSpec())
