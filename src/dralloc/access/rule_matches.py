"""Whether one rule of a role allows a verb on a resource or on a path.

A rule names resources with their subresource (`pods/status`); `*` is every resource with every subresource and `*/status` that
subresource of every resource. Other stars have no meaning in names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec import Struct

from dralloc.api.rbac_v1 import PolicyRule

ALL: Final = "*"


class ResourceRule(Struct, frozen=True, gc=False):
    """The part of a rule that is compared after its resource was found, with fast membership tests."""

    verbs: frozenset[str]
    groups: frozenset[str]
    # Empty: every name.
    names: frozenset[str]

    @staticmethod
    def of(rule: PolicyRule) -> ResourceRule:
        return ResourceRule(frozenset(rule.verbs), frozenset(rule.api_groups), frozenset(rule.resource_names))

    def allows(self, verb: str, group: str) -> bool:
        """True if the rule allows the verb on the names that it lists."""
        return (verb in self.verbs or ALL in self.verbs) and (group in self.groups or ALL in self.groups)


def index_by_resource(rules: Iterable[PolicyRule]) -> dict[str, Sequence[ResourceRule]]:
    """The rules by each resource that they name."""
    several: dict[str, list[ResourceRule]] = {}
    index: dict[str, Sequence[ResourceRule]] = {}
    for rule in rules:
        compiled = ResourceRule.of(rule)
        # One for all resources that no other rule names: most of a large index.
        alone = (compiled,)
        for resource in dict.fromkeys(rule.resources):
            known = index.setdefault(resource, alone)
            if known is not alone:
                if resource not in several:
                    index[resource] = several[resource] = [*known]
                several[resource].append(compiled)
    return index


def names_of_resource(full_resource: str, subresource: str) -> tuple[str, ...]:
    """The names under which rules include a resource."""
    return (full_resource, ALL, f"*/{subresource}") if subresource else (full_resource, ALL)


def allows_path(rule: PolicyRule, verb: str, path: str) -> bool:
    """True if the rule allows the verb on a path outside of the API groups. A star at the end of a URL is any suffix."""
    if verb not in rule.verbs and ALL not in rule.verbs:
        return False
    return includes_url(rule.non_resource_urls, path)


def includes_url(urls: Collection[str], path: str) -> bool:
    return any(url in (ALL, path) or (url.endswith("*") and path.startswith(url.rstrip("*"))) for url in urls)
