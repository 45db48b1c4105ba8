"""An API server that enforces RBAC roles and records which rights are used.

The server of dralloc does not enforce roles. With this one a test shows that a component needs exactly the rights of its manifests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dralloc.access.users import ADMINISTRATOR, User
from dralloc.apiserver.http.application import ApiApplication, Scope, Send
from dralloc.apiserver.http.authentication import Authenticator
from dralloc.apiserver.http.body_reader import Receive
from dralloc.apiserver.http.messages import HttpResponse, parse_query
from dralloc.apiserver.http.statuses import status_of, status_response
from dralloc.apiserver.http.url_paths import ResourcePath, parse_path
from dralloc.apiserver.server import ApiServer
from dralloc.primitives.errors import Forbidden
from tests.support.api_server import TOKEN

Document = Mapping[str, Any]

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch"}


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """A verb on a resource, such as patch on `resource.k8s.io` `resourceclaims/status`."""

    verb: str
    group: str
    resource: str


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """A right in a namespace (empty: everywhere) on one object (empty: all)."""

    right: Right
    namespace: str = ""
    name: str = ""

    def covers(self, right: Right, namespace: str, name: str) -> bool:
        return (
            self.right == right
            and (not self.namespace or self.namespace == namespace)
            and (not self.name or self.name == name)
        )


def account_name(namespace: str, name: str) -> str:
    return f"system:serviceaccount:{namespace}:{name}"


def grants_of(user: str, documents: Iterable[Document]) -> frozenset[Grant]:
    """The grants of all roles that are bound to the service account."""
    documents = tuple(documents)
    roles = {_identity(each): each for each in documents if each["kind"] in ("Role", "ClusterRole")}
    return frozenset(
        grant
        for binding in documents
        if binding["kind"] in ("RoleBinding", "ClusterRoleBinding") and user in _subjects(binding)
        for grant in _grants(roles[_role_of(binding)], binding["metadata"].get("namespace", ""))
    )


def _identity(document: Document) -> tuple[str, str, str]:
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]


def _role_of(binding: Document) -> tuple[str, str, str]:
    reference = binding["roleRef"]
    namespace = binding["metadata"].get("namespace", "") if reference["kind"] == "Role" else ""
    return reference["kind"], namespace, reference["name"]


def _subjects(binding: Document) -> Iterator[str]:
    for subject in binding.get("subjects", ()):
        assert subject["kind"] == "ServiceAccount", "roles of people are not ours to give"
        yield account_name(subject["namespace"], subject["name"])


def _grants(role: Document, namespace: str) -> Iterator[Grant]:
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames") or ("",):
                        yield Grant(Right(verb, group, resource), namespace, name)


class GuardedApplication(ApiApplication):
    """An application that enforces grants. `used` and `refused` record the rights by user."""

    def __init__(self, server: ApiServer, grants: Mapping[str, Iterable[Grant]]) -> None:
        """The token of a user is its name; `TOKEN` is the administrator's."""
        users = {name: User(name=name) for name in grants}
        super().__init__(server, Authenticator({**users, TOKEN: ADMINISTRATOR}))
        self._grants = {name: tuple(sorted(each)) for name, each in grants.items()}
        self.used: defaultdict[str, set[Grant]] = defaultdict(set)
        self.refused: defaultdict[str, set[Right]] = defaultdict(set)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        query, headers = parse_query(scope["query_string"]), dict(scope["headers"])
        needed = rights_needed(scope["method"], scope["path"], query)
        refusal = self._judge(headers.get(b"authorization", b""), needed, scope["path"])
        if refusal is None:
            return await super().__call__(scope, receive, send)
        start = {
            "type": "http.response.start",
            "status": refusal.status,
            "headers": [(b"content-type", b"application/json")],
        }
        await send(start)
        return await send({"type": "http.response.body", "body": refusal.body})

    async def answer(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[bytes, bytes], body: bytes
    ) -> HttpResponse:
        needed = rights_needed(method, path, query, body)
        refusal = self._judge(headers.get(b"authorization", b""), needed, path)
        return refusal or await super().answer(method, path, query, headers, body)

    def _judge(
        self, authorization: bytes, needed: Sequence[tuple[Right, ResourcePath]], path: str
    ) -> HttpResponse | None:
        user = authorization.removeprefix(b"Bearer ").decode()
        for right, where in needed if user in self._grants else ():
            found = [each for each in self._grants[user] if each.covers(right, where.namespace, where.name)]
            if not found:
                self.refused[user].add(right)
                return status_response(status_of(Forbidden(f"{user} may not {right.verb} {right.resource} ({path})")))
            # The narrowest grant counts as used.
            self.used[user].add(max(found, key=lambda each: (bool(each.name), bool(each.namespace))))
        return None


def rights_needed(
    method: str, path: str, query: Mapping[str, str], body: bytes = b""
) -> tuple[tuple[Right, ResourcePath], ...]:
    """The rights that a request needs, with their targets; empty for a path without a resource."""
    where = parse_path(path)
    if not isinstance(where, ResourcePath):
        return ()
    verb = _VERBS.get(method) or _reading_or_deleting(method, where, query)
    resource = f"{where.resource}/{where.subresource}" if where.subresource else where.resource
    needed = [(Right(verb, where.group, resource), where)]
    if resource == "resourceclaims/status" and body:
        needed += _rights_to_status(verb, where, msgspec.json.decode(body).get("status") or {})
    return tuple(needed)


def _rights_to_status(verb: str, where: ResourcePath, status: Document) -> Iterator[tuple[Right, ResourcePath]]:
    """The additional rights that Kubernetes requires since 1.36 for writes of a claim's status."""
    if status.keys() & {"allocation", "reservedFor"}:
        yield Right(verb, where.group, "resourceclaims/binding"), where
    for driver in sorted({each["driver"] for each in status.get("devices") or ()}):
        # The writer is assumed to run on the claim's node, as drivers do.
        right = Right(f"associated-node:{verb}", where.group, "resourceclaims/driver")
        yield right, msgspec.structs.replace(where, name=driver)


def _reading_or_deleting(method: str, where: ResourcePath, query: Mapping[str, str]) -> str:
    if method == "DELETE":
        return "delete" if where.name else "deletecollection"
    if where.name:
        return "get"
    return "watch" if query.get("watch") in ("1", "true") else "list"
