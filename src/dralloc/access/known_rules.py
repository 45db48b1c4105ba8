"""The rules of a user as a SelfSubjectRulesReview lists them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from dralloc.api.rbac_v1 import PolicyRule


class KnownRules(Struct, frozen=True):
    """The rules that hold for a user in a namespace, as far as they can be listed."""

    resource_rules: Sequence[PolicyRule] = ()
    non_resource_rules: Sequence[PolicyRule] = ()
    evaluation_error: str = ""
    # Some authorizer allows more than rules can say.
    incomplete: bool = False
