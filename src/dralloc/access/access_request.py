"""A request for access: the attributes of an API request that authorization decides on, as in a SubjectAccessReview."""

from __future__ import annotations

from msgspec import Struct

from dralloc.access.users import User


class SelectorRequirement(Struct, frozen=True, gc=False):
    """One requirement of a field or label selector: a key, an operator (In, NotIn, Exists, DoesNotExist) and values."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class AccessRequest(Struct, frozen=True, gc=False, kw_only=True):
    """A verb on a resource, or on a path outside of the API groups if `path` is set."""

    user: User
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    # Empty at the cluster scope.
    namespace: str = ""
    name: str = ""
    path: str = ""
    field_selector: tuple[SelectorRequirement, ...] = ()
    label_selector: tuple[SelectorRequirement, ...] = ()

    @property
    def full_resource(self) -> str:
        """`pods`, or `pods/status` for a subresource, as the rules of roles name it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource
