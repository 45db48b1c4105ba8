"""`authentication.k8s.io/v1`: questions about identities, and requests for tokens. They are answered, never stored."""

from __future__ import annotations

from typing import ClassVar, Final

from msgspec import field

from dralloc.kube.meta_v1 import ApiObject
from dralloc.kube.wire import Int64, Wire

GROUP: Final = "authentication.k8s.io"


class SelfSubjectReview(ApiObject):
    UNREAD: ClassVar = ("status",)


class TokenReviewSpec(Wire):
    token: str = ""
    audiences: tuple[str, ...] = ()


class TokenReview(ApiObject):
    UNREAD: ClassVar = ("status",)

    spec: TokenReviewSpec = field(default_factory=lambda: TokenReviewSpec())


class BoundObjectReference(Wire):
    kind: str = ""
    api_version: str = ""
    name: str = ""
    uid: str = ""


class TokenRequestSpec(Wire):
    audiences: tuple[str, ...] = ()
    expiration_seconds: Int64 | None = None
    bound_object_ref: BoundObjectReference | None = None


class TokenRequest(ApiObject):
    UNREAD: ClassVar = ("status",)

    spec: TokenRequestSpec = field(default_factory=lambda: TokenRequestSpec())
