"""A server that enforces the roles of manifests, and records which rights their users use and which requests it refuses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from dralloc.client.async_client import AsyncClient
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.primitives.clock import Clock
from dralloc.primitives.errors import ApiError
from dralloc.primitives.features import FeatureGates
from dralloc.server.access.authorizer import NO_OPINION, AccessRequest, Decision
from dralloc.server.access.users import (
    ADMINISTRATOR,
    AUTHENTICATED,
    NODE_NAME,
    User,
    service_account_groups,
    service_account_user_name,
)
from dralloc.server.http.application import ApiApplication
from dralloc.server.http.authentication import Authenticator
from dralloc.server.http.messages import HttpRequest, HttpResponse
from dralloc.server.http.static_pages import StaticPages
from dralloc.server.server import ApiServer, ServerExtension
from tests.support.api_server import TOKEN, api_server

Document = Mapping[str, Any]
# The node on which accounts with a bound token run.
NODE = "node-a"


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """A verb on a resource, such as patch on `resource.k8s.io` `resourceclaims/status`, or on a path outside of the API groups."""

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

    def __str__(self) -> str:
        place = f" in {self.namespace}" if self.namespace else ""
        return f"{self.right.verb} {self.right.resource}{f' {self.name}' if self.name else ''}{place}"


def account_name(namespace: str, name: str) -> str:
    return service_account_user_name(namespace, name)


def account_user(name: str) -> User:
    """The service account as the token of one of its pods proves it."""
    groups = (*service_account_groups(name.split(":")[2]), AUTHENTICATED)
    return User(name=name, groups=groups, extra=((NODE_NAME, (NODE,)),))


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
        is_account = subject["kind"] == "ServiceAccount"
        yield account_name(subject["namespace"], subject["name"]) if is_account else subject["name"]


def _grants(role: Document, namespace: str) -> Iterator[Grant]:
    for rule in role["rules"]:
        for path, verb in product(rule.get("nonResourceURLs", ()), rule["verbs"]):
            yield Grant(Right(verb, "", path))
        for group in rule.get("apiGroups", ()):
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames") or ("",):
                        yield Grant(Right(verb, group, resource), namespace, name)


@dataclass(slots=True)
class _Trial:
    """Rights that are withheld while a request is handled, and those of them that it asked for."""

    withheld: Set[Grant]
    asked: set[Grant] = field(default_factory=set)


_trial: ContextVar[_Trial | None] = ContextVar("trial", default=None)


class GuardedApplication(ApiApplication):
    """An application of a server that enforces roles. The token of a user is its name; `TOKEN` is the administrator's.

    With `proves_need`, a request that needs a right for the first time is tried without the right before it is served. If it is then
    refused, which has no effects, the user needs the right.
    """

    def __init__(
        self,
        server: ApiServer,
        grants: Mapping[str, frozenset[Grant]],
        pages: StaticPages | None = None,
        *,
        proves_need: bool = False,
    ) -> None:
        self.server = server
        self._recorded = _RecordingServer(server, grants if proves_need else {})
        users = {name: account_user(name) for name in grants}
        super().__init__(self._recorded, Authenticator({**users, TOKEN: ADMINISTRATOR}), pages)
        self.used: defaultdict[str, set[Grant]] = defaultdict(set)
        self._grants = grants
        policy = server._policy
        assert policy is not None, "the server enforces roles"
        self._decide, policy.decide = policy.decide, self._record_decision  # type: ignore[method-assign, assignment]

    @property
    def refused(self) -> dict[str, list[str]]:
        """The refused requests of each user."""
        return dict(self._recorded.refused)

    def not_needed(self, user: str) -> frozenset[Grant]:
        """The rights without which no request of the user would have been refused."""
        return frozenset(self._recorded.unproven[user])

    def _record_decision(self, asked: AccessRequest) -> Decision:
        decision = self._decide(asked)
        grants = self._grants.get(asked.user.name)
        if not decision.allowed or grants is None:
            return decision
        right = Right(asked.verb, asked.group, asked.path or asked.full_resource)
        found = {each for each in grants if each.covers(right, asked.namespace, asked.name)}
        if asked.path and not found:
            # Discovery and the like, which every user may read.
            return decision
        assert found, f"{asked.user.name} is allowed {right} by no role of its manifest"
        trial = _trial.get()
        if trial is not None and found <= trial.withheld:
            trial.asked |= found
            return NO_OPINION
        # The narrowest grant counts as used.
        self.used[asked.user.name].add(max(found, key=lambda each: (bool(each.name), bool(each.namespace))))
        return decision


class _RecordingServer:
    """Passes requests on, and records the refused ones."""

    def __init__(self, server: ApiServer, grants: Mapping[str, frozenset[Grant]]) -> None:
        self._server = server
        self.metrics = server.metrics
        self.refused: defaultdict[str, list[str]] = defaultdict(list)
        self.unproven = {user: set(each) for user, each in grants.items()}

    async def handle(self, request: HttpRequest) -> HttpResponse:
        response = await self._prove(request) if self.unproven.get(request.user.name) else None
        if response is None:
            response = await self._server.handle(request)
        if _is_refusal(response):
            why = response.body.decode(errors="replace")
            self.refused[request.user.name].append(f"{request.method} {request.path}: {why}")
        return response

    async def _prove(self, request: HttpRequest) -> HttpResponse | None:
        """Finds the rights without any one of which the request is refused. Returns a response if the request was served."""
        unproven = self.unproven[request.user.name]
        while unproven:
            response, asked = await self._without(unproven, request)
            if not asked or not _is_refusal(response):
                return response
            for grant in asked:
                response, _ = await self._without({grant}, request)
                if not _is_refusal(response):
                    return response
                unproven.discard(grant)
        return None

    async def _without(self, withheld: Set[Grant], request: HttpRequest) -> tuple[HttpResponse, set[Grant]]:
        trial = _Trial(frozenset(withheld))
        before = _trial.set(trial)
        try:
            return await self._server.handle(request), trial.asked
        finally:
            _trial.reset(before)

    def refuse(self, request: HttpRequest, error: ApiError) -> HttpResponse:
        return self._server.refuse(request, error)

    def end_streams(self) -> None:
        self._server.end_streams()


def _is_refusal(response: HttpResponse) -> bool:
    """The rights to parts of a claim's status are refused as invalid fields."""
    return response.status == 403 or (response.status == 422 and b"FieldValueForbidden" in response.body)


@asynccontextmanager
async def guarded_server(
    clock: Clock,
    manifests: Mapping[str, Iterable[Document]],
    gates: FeatureGates | None = None,
    *,
    pages: StaticPages | None = None,
    extensions: Sequence[ServerExtension] = (),
    proves_need: bool = False,
) -> AsyncIterator[GuardedApplication]:
    """A server with the roles of these manifests, by user."""
    documents = {user: tuple(each) for user, each in manifests.items()}
    async with api_server(clock=clock, enforces_roles=True, gates=gates, extensions=extensions) as server:
        grants = {user: grants_of(user, each) for user, each in documents.items()}
        application = GuardedApplication(server, grants, pages, proves_need=proves_need)
        client = AsyncClient(InProcessTransport(application, token=TOKEN))
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dralloc-system"}})
        for each in documents.values():
            for document in each:
                if "Role" in document["kind"]:
                    await client.create(document)
        yield application
