"""Impersonation: whether a user may act as another one, and who that is.

As in Kubernetes, the constrained modes are tried first: they need a right to the identity (`impersonate:MODE`) and one to the request
(`impersonate-on:MODE:VERB`). The legacy verb `impersonate` gives every right of the other user. Nothing is cached, so a revoked right
counts at once.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

from msgspec.structs import replace

from dralloc.primitives import names
from dralloc.server.access.authorizer import AccessRequest, Decision, Opinion
from dralloc.server.access.users import (
    ADMINS,
    ANONYMOUS,
    AUTHENTICATED,
    NODE_NAME,
    NODE_PREFIX,
    NODES,
    UNAUTHENTICATED,
    User,
    service_account_groups,
    split_service_account,
)

AUTHENTICATION_GROUP: Final = "authentication.k8s.io"
# From so many groups or extra values on, the right to all of them is tried first.
MANY: Final = 4
REMEMBERED_USERS_MAX: Final = 10_000

_LEGACY: Final = "legacy"
_MODES: Final = ("associated-node", "arbitrary-node", "serviceaccount", "user-info", _LEGACY)
_PATH: Final = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")

Decide = Callable[[AccessRequest], Decision]


class ImpersonationRefused(Exception):
    """The access that the user lacks, and why."""

    def __init__(self, asked: AccessRequest, decision: Decision) -> None:
        super().__init__(asked, decision)
        self.asked = asked
        self.decision = decision


class Impersonation:
    """Decides impersonations. The mode that worked last for a user is tried first: its refusal is the one that is reported."""

    def __init__(self, decide: Decide) -> None:
        self._decide = decide
        self._last_mode: OrderedDict[str, str] = OrderedDict()

    def impersonated(self, wanted: User, request: AccessRequest) -> User:
        """The user to serve the request for; raises `ImpersonationRefused`. `wanted` is what the client asks for, no more."""
        requester = request.user.name
        last = self._last_mode.get(requester)
        modes = sorted(_MODES, key=lambda mode: mode != last) if last else _MODES
        first: ImpersonationRefused | None = None
        for mode in modes:
            if not _applies(mode, wanted, request.user):
                continue
            try:
                user = self._checked(mode, wanted, request)
            except ImpersonationRefused as refused:
                first = first or refused
                continue
            self._last_mode[requester] = mode
            self._last_mode.move_to_end(requester)
            if len(self._last_mode) > REMEMBERED_USERS_MAX:
                self._last_mode.popitem(last=False)
            return user
        assert first is not None, "the legacy mode applies to every user"
        raise first

    def _checked(self, mode: str, wanted: User, request: AccessRequest) -> User:
        constrained = mode != _LEGACY
        requester = request.user
        if mode == "associated-node":
            requester = _without_extra_values(requester)
        if constrained:
            self._check(replace(request, user=requester, verb=f"impersonate-on:{mode}:{request.verb}"))
        verb = f"impersonate:{mode}" if constrained else "impersonate"
        allowed = self._allowed_as_a_whole(wanted, requester, verb) if constrained else frozenset[str]()
        for asked, refusal in _identity_checks(wanted, requester, verb, constrained=constrained):
            if refusal:
                raise ImpersonationRefused(asked, Decision(Opinion.NONE, refusal))
            if mode == "associated-node":
                # The node is checked already: the right is one to the node of the requester, whichever it is.
                asked = replace(asked, name="*")
            if asked.resource not in allowed:
                self._check(asked)
        return _completed(wanted, constrained=constrained)

    def _check(self, asked: AccessRequest) -> None:
        decision = self._decide(asked)
        if not decision.allowed:
            raise ImpersonationRefused(asked, decision)

    def _allowed_as_a_whole(self, wanted: User, requester: User, verb: str) -> frozenset[str]:
        """The resources, of which the identity has many values, with a right to all values."""
        counts = {"groups": len(wanted.groups), "userextras": sum(len(values) for _, values in wanted.extra)}
        return frozenset(
            resource
            for resource, count in counts.items()
            if count >= MANY and self._decide(_right_to_all(resource, requester, verb)).allowed
        )


def _right_to_all(resource: str, requester: User, verb: str) -> AccessRequest:
    subresource = "*" if resource == "userextras" else ""
    group = AUTHENTICATION_GROUP
    return AccessRequest(
        user=requester, verb=verb, group=group, version="v1", resource=resource, subresource=subresource, name="*"
    )


def node_name(user_name: str) -> str | None:
    """The node that a user of this name is, or `None`."""
    if not user_name.startswith(NODE_PREFIX):
        return None
    name = user_name.removeprefix(NODE_PREFIX)
    return None if names.dns_subdomain(name) else name


def _applies(mode: str, wanted: User, requester: User) -> bool:
    only_named = not (wanted.uid or wanted.groups or wanted.extra)
    node, account = node_name(wanted.name), split_service_account(wanted.name)
    match mode:
        case "associated-node":
            associated = dict(requester.extra).get(NODE_NAME, ())
            is_account = split_service_account(requester.name) is not None
            return only_named and node is not None and is_account and associated == (node,)
        case "arbitrary-node":
            return only_named and node is not None
        case "serviceaccount":
            return only_named and account is not None
        case "user-info":
            return node is None and account is None
        case _:
            return True


def _identity_checks(
    wanted: User, requester: User, verb: str, *, constrained: bool
) -> Iterator[tuple[AccessRequest, str]]:
    """The rights that the identity needs, in order. A text says why no right suffices."""
    group = AUTHENTICATION_GROUP if constrained else ""

    def asked(
        resource: str, name: str, *, namespace: str = "", subresource: str = "", group: str = ""
    ) -> AccessRequest:
        return AccessRequest(
            user=requester,
            verb=verb,
            group=group,
            version="v1",
            resource=resource,
            subresource=subresource,
            namespace=namespace,
            name=name,
        )

    account, node = split_service_account(wanted.name), node_name(wanted.name)
    if account is not None:
        yield asked("serviceaccounts", account[1], namespace=account[0], group=group), ""
    elif constrained and node is not None:
        yield asked("nodes", node, group=group), ""
    else:
        yield asked("users", wanted.name, group=group), ""
    if wanted.uid:
        yield asked("uids", wanted.uid, group=AUTHENTICATION_GROUP), ""
    if constrained and "" in wanted.groups:
        yield asked("groups", "", group=group), "impersonating the empty string group is not allowed"
    if constrained and ADMINS in wanted.groups:
        yield asked("groups", ADMINS, group=group), f"impersonating the {ADMINS} group is not allowed"
    for name in wanted.groups:
        yield asked("groups", name, group=group), ""
    if constrained and (fault := _fault_of_extra(wanted)):
        yield asked("userextras", "", group=AUTHENTICATION_GROUP), fault
    for key, values in wanted.extra:
        for value in values:
            yield asked("userextras", value, subresource=key, group=AUTHENTICATION_GROUP), ""


def _fault_of_extra(wanted: User) -> str:
    for key, values in wanted.extra:
        if not key:
            return "impersonating the empty string key in extra is not allowed"
        if fault := _fault_of_key(key):
            return f"impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {fault}"
        if key != key.lower():
            return f'impersonating a non-lowercase key in extra is not allowed: "{key}"'
        if "" in values:
            return "impersonating the empty string value in extra is not allowed"
    return ""


def _fault_of_key(key: str) -> str:
    """Keys are paths below a domain, such as `example.com/project`."""
    host, _, path = key.partition("/")
    if not host or not path:
        return f'"{key}": must be a domain-prefixed path (such as "acme.io/foo")'
    if faults := names.dns_subdomain(host):
        return f'"{host}": {faults[0]}'
    return "" if _PATH.fullmatch(path) else f'"{path}": Invalid path'


def _without_extra_values(requester: User) -> User:
    """The requester as rights to its own node are decided: which node and pod it runs on must not matter."""
    keys = tuple(sorted(key for key, _ in requester.extra))
    return replace(requester, extra=(("authentication.kubernetes.io/associated-node-keys", keys),))


def _completed(wanted: User, *, constrained: bool) -> User:
    """The wanted user with the groups that it has in any case."""
    groups = wanted.groups
    account = split_service_account(wanted.name)
    if account is not None and not groups:
        groups = service_account_groups(account[0])
    elif constrained and node_name(wanted.name) is not None:
        groups = (NODES,)
    if wanted.name == ANONYMOUS.name:
        implied = UNAUTHENTICATED
    elif UNAUTHENTICATED not in groups:
        implied = AUTHENTICATED
    else:
        return replace(wanted, groups=groups)
    return replace(wanted, groups=groups if implied in groups else (*groups, implied))
