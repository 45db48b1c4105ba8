"""Escalation: a user may only put rights into roles, or bind roles with rights, that the user has.

The check compares rules, not requests: it holds if every smallest part of the new rules (one verb on one resource of one group, or
on one URL) is covered by a single rule of the user.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from dralloc.access.rbac import RulesOfUser
from dralloc.access.rule_matches import ALL, includes_resource, includes_url
from dralloc.access.users import User
from dralloc.api.rbac_v1 import GROUP, PolicyRule
from dralloc.cel.library.text_format import go_quoted
from dralloc.primitives.aggregate_errors import joined_errors

# Every verb on every resource, as an aggregated role may gather it; URLs are not part of it.
FULL_AUTHORITY: Final = (PolicyRule(verbs=(ALL,), api_groups=(ALL,), resources=(ALL,)),)


def uncovered_parts(held: Sequence[PolicyRule], wanted: Sequence[PolicyRule]) -> list[PolicyRule]:
    """The smallest parts of the wanted rules that no held rule covers."""
    return [part for rule in wanted for part in _parts(rule) if not any(_covers(each, part) for each in held)]


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


def _covers(held: PolicyRule, part: PolicyRule) -> bool:
    if not _includes(held.verbs, part.verbs[0]):
        return False
    if part.non_resource_urls:
        return not held.resource_names and includes_url(held.non_resource_urls, part.non_resource_urls[0])
    resource = part.resources[0]
    names = part.resource_names
    return (
        _includes(held.api_groups, part.api_groups[0])
        and includes_resource(held.resources, resource, resource.partition("/")[2])
        and (not held.resource_names or (bool(names) and names[0] in held.resource_names))
    )


def _includes(values: Sequence[str], value: str) -> bool:
    return ALL in values or value in values


def _joined(parts: Sequence[PolicyRule]) -> list[PolicyRule]:
    """The parts, with those that differ in their verb only as one rule. Parts with a URL stay apart."""
    joined: dict[PolicyRule, tuple[str, ...]] = {}
    for part in parts:
        key = part if part.non_resource_urls else replace(part, verbs=())
        joined[key] = joined.get(key, ()) + part.verbs
    return [rule if rule.non_resource_urls else replace(rule, verbs=verbs) for rule, verbs in joined.items()]


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
