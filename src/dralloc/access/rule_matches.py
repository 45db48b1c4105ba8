"""Whether one rule of a role allows a verb on a resource or on a path.

A rule names resources with their subresource (`pods/status`); `*` is every resource with every subresource and `*/status` that
subresource of every resource. Other stars have no meaning in names.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from msgspec import Struct

from dralloc.api.rbac_v1 import PolicyRule

ALL: Final = "*"


class ResourceRule(Struct, frozen=True, gc=False):
    """The part of a rule that is compared after its resource was found, with fast membership tests."""

    verbs: frozenset[str]
    groups: frozenset[str]
    # Empty: every name.
    names: tuple[str, ...]

    @staticmethod
    def of(rule: PolicyRule) -> ResourceRule:
        return ResourceRule(frozenset(rule.verbs), frozenset(rule.api_groups), rule.resource_names)

    def allows(self, verb: str, group: str) -> bool:
        """True if the rule allows the verb on the names that it lists."""
        return (verb in self.verbs or ALL in self.verbs) and (group in self.groups or ALL in self.groups)


def includes_resource(resources: Collection[str], full_resource: str, subresource: str) -> bool:
    """True if the resources of a rule include this one."""
    if full_resource in resources or ALL in resources:
        return True
    return bool(subresource) and f"*/{subresource}" in resources


def allows_path(rule: PolicyRule, verb: str, path: str) -> bool:
    """True if the rule allows the verb on a path outside of the API groups. A star at the end of a URL is any suffix."""
    if verb not in rule.verbs and ALL not in rule.verbs:
        return False
    return includes_url(rule.non_resource_urls, path)


def includes_url(urls: Collection[str], path: str) -> bool:
    return any(url in (ALL, path) or (url.endswith("*") and path.startswith(url.rstrip("*"))) for url in urls)
