"""The kinds that are only created and answered at once, never stored: reviews of identities and of access."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dralloc.kube import authentication_v1, authorization_v1
from dralloc.kube.conversion import V1


@dataclass(frozen=True, slots=True)
class ReviewKind:
    group: str
    kind: str
    namespaced: bool = False
    version: str = V1

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def plural(self) -> str:
        return f"{self.singular}s"

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"


SELF_SUBJECT_REVIEW: Final = ReviewKind(authentication_v1.GROUP, "SelfSubjectReview")
TOKEN_REVIEW: Final = ReviewKind(authentication_v1.GROUP, "TokenReview")
LOCAL_SUBJECT_ACCESS_REVIEW: Final = ReviewKind(authorization_v1.GROUP, "LocalSubjectAccessReview", namespaced=True)
SELF_SUBJECT_ACCESS_REVIEW: Final = ReviewKind(authorization_v1.GROUP, "SelfSubjectAccessReview")
SELF_SUBJECT_RULES_REVIEW: Final = ReviewKind(authorization_v1.GROUP, "SelfSubjectRulesReview")
SUBJECT_ACCESS_REVIEW: Final = ReviewKind(authorization_v1.GROUP, "SubjectAccessReview")

REVIEW_KINDS: Final[tuple[ReviewKind, ...]] = (
    SELF_SUBJECT_REVIEW,
    TOKEN_REVIEW,
    LOCAL_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_RULES_REVIEW,
    SUBJECT_ACCESS_REVIEW,
)
