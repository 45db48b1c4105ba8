"""Who may do what: decisions of RBAC on recorded policies, and recorded requests of many users.

A line with `questions` is a policy, on top of the default roles and bindings; it is decided here, without a server. A line with `requests` is sent to a
server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from dralloc.conformance.access_over_http import AccessCase, run_cases
from dralloc.conformance.vector_family import BadVectors, LineFamily, VectorOptions, VectorVerdict
from dralloc.kube.rbac_v1 import ClusterRole, PolicyRule
from dralloc.primitives.decoders import UNREADABLE
from dralloc.server.access.authorizer import AccessRequest, Administrators, AuthorizerChain
from dralloc.server.access.default_policy import default_policy, read_policy_object, with_aggregated_rules
from dralloc.server.access.rbac import RbacAuthorizer
from dralloc.server.access.users import User


class RecordedQuestion(msgspec.Struct, frozen=True):
    """The fields of a SubjectAccessReview and its answer. The reason is absent where it is not stable."""

    user: str
    verb: str
    allowed: bool
    groups: tuple[str, ...] = ()
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    reason: str | None = None


class AccessFamily:
    """Policies, and cases for a server."""

    def run(self, lines: Iterable[bytes], options: VectorOptions) -> Iterator[VectorVerdict]:
        policies: list[bytes] = []
        cases: list[AccessCase] = []
        for number, text in enumerate(lines, start=1):
            try:
                line = msgspec.json.decode(text, type=dict[str, Any])
                if "questions" in line:
                    policies.append(text)
                else:
                    cases.append(msgspec.convert(line, AccessCase))
            except UNREADABLE as error:
                raise BadVectors(f"line {number}: {error}") from None
        yield from _POLICIES.run(policies, options)
        if cases:
            yield from run_cases(cases, options)


def _compare_policy(line: Mapping[str, Any], _: VectorOptions) -> Iterator[str]:
    objects = [*default_policy(), *map(read_policy_object, line["objects"])]
    roles = with_aggregated_rules(item for item in objects if isinstance(item, ClusterRole))
    filled = {role.metadata.name: role.rules for role in roles}
    for name, rules in line.get("aggregated", {}).items():
        if (expected := msgspec.convert(rules, tuple[PolicyRule, ...])) != filled[name]:
            yield f"rules of {name}: expected {expected}, got {filled[name]}"
    rbac = RbacAuthorizer([*(item for item in objects if not isinstance(item, ClusterRole)), *roles])
    chain = AuthorizerChain((Administrators(), rbac))
    for question in msgspec.convert(line["questions"], list[RecordedQuestion]):
        decision = chain.decide(
            AccessRequest(
                user=User(name=question.user, groups=question.groups),
                verb=question.verb,
                group=question.group,
                resource=question.resource,
                subresource=question.subresource,
                namespace=question.namespace,
                name=question.name,
                path=question.path,
            )
        )
        if decision.allowed != question.allowed:
            yield f"{question}: expected {question.allowed}, got {decision}"
        elif question.reason not in (None, decision.reason):
            yield f"{question}: got the reason {decision.reason}"


_POLICIES: Final = LineFamily(identify=lambda line: str(line["policy"]), compare=_compare_policy)

FAMILY: Final = AccessFamily()
