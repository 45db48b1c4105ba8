"""Escalation: a user may only put rights into roles, or bind roles with rights, that the user has.

The check compares rules, not requests: it holds if every smallest part of the new rules (one verb on one resource of one group, or
on one URL) is covered by a single rule of the user.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from dralloc.cel.library.text_format import go_quoted
from dralloc.kube.rbac_v1 import GROUP, PolicyRule
from dralloc.primitives.errors import joined_errors
from dralloc.server.access.rbac import (
    ALL,
    RulesOfUser,
    allows_path,
    allows_resource,
    names_of_resource,
)
from dralloc.server.access.users import User

# Every verb on every resource, as an aggregated role may gather it; URLs are not part of it.
FULL_AUTHORITY: Final = (PolicyRule(verbs=(ALL,), api_groups=(ALL,), resources=(ALL,)),)


def uncovered_parts(held: Sequence[PolicyRule], wanted: Sequence[PolicyRule]) -> list[PolicyRule]:
    """The smallest parts of the wanted rules that no held rule covers."""
    on_paths = [rule for rule in held if rule.non_resource_urls and not rule.resource_names]
    return [
        part
        for rule in wanted
        for part in _parts(rule)
        if not (_covers_url(on_paths, part) if part.non_resource_urls else _covers_resource(held, part))
    ]


def escalation_refusal(user: User, held: RulesOfUser, wanted: Sequence[PolicyRule], resource: str) -> str:
    """Why the user may not grant the wanted rules by writing the resource; empty if it may."""
    missing = uncovered_parts(held.rules, wanted)
    if not missing:
        return ""
    listed = "\n".join(sorted({_shown(rule) for rule in _joined(missing)}))
    who = f"user {go_quoted(user.name)} (groups={_quoted(user.groups)})"
    message = f"{who} is attempting to grant RBAC permissions not currently held:\n{listed}"
    if not held.missing_roles:
        return message
    # Kubernetes names the missing roles as if they were of the resource that is written.
    errors = joined_errors(f"{resource}.{GROUP} {go_quoted(name)} not found" for _, name in held.missing_roles)
    return f"{message}; resolution errors: [{errors}]"


def _parts(rule: PolicyRule) -> Iterator[PolicyRule]:
    for group in rule.api_groups:
        for resource in rule.resources:
            for verb in rule.verbs:
                part = PolicyRule(verbs=(verb,), api_groups=(group,), resources=(resource,))
                if not rule.resource_names:
                    yield part
                for name in rule.resource_names:
                    yield replace(part, resource_names=(name,))
    for url in rule.non_resource_urls:
        for verb in rule.verbs:
            yield PolicyRule(verbs=(verb,), non_resource_urls=(url,))


def _covers_url(held: Sequence[PolicyRule], part: PolicyRule) -> bool:
    return any(allows_path(rule, part.verbs[0], part.non_resource_urls[0]) for rule in held)


def _covers_resource(held: Sequence[PolicyRule], part: PolicyRule) -> bool:
    verb, group, resource = part.verbs[0], part.api_groups[0], part.resources[0]
    return any(
        allows_resource(rule, verb, group, named)
        and (not rule.resource_names or not set(rule.resource_names).isdisjoint(part.resource_names))
        for named in names_of_resource(resource, resource.partition("/")[2])
        for rule in held
    )


def _joined(parts: Sequence[PolicyRule]) -> list[PolicyRule]:
    """The parts, with those that differ in their verb only as one rule. Parts with a URL stay apart."""
    joined: dict[PolicyRule, list[str]] = {}
    for part in parts:
        joined.setdefault(part if part.non_resource_urls else replace(part, verbs=()), []).extend(part.verbs)
    return [rule if rule.non_resource_urls else replace(rule, verbs=tuple(verbs)) for rule, verbs in joined.items()]


def _shown(rule: PolicyRule) -> str:
    fields = {
        "APIGroups": rule.api_groups,
        "Resources": rule.resources,
        "NonResourceURLs": rule.non_resource_urls,
        "ResourceNames": rule.resource_names,
        "Verbs": rule.verbs,
    }
    return "{" + ", ".join(f"{name}:{_quoted(values)}" for name, values in fields.items() if values) + "}"


def _quoted(values: Sequence[str]) -> str:
    return f"[{' '.join(map(go_quoted, values))}]"
