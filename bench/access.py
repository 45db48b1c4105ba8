"""Cost of access control: one decision by roles, and requests to a server that enforces roles compared with one that does not."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle
from typing import Final

from bench.apiserver import CLAIMS, LoadClient
from bench.measurement import Figure, benchmark
from dralloc.kube.meta_v1 import ObjectMeta
from dralloc.kube.rbac_v1 import GROUP, PolicyRule, Role, RoleBinding, RoleRef, Subject
from dralloc.server.access.authorizer import AccessRequest
from dralloc.server.access.default_policy import default_policy
from dralloc.server.access.rbac import RbacAuthorizer
from dralloc.server.access.users import ADMINISTRATOR, AUTHENTICATED, User
from dralloc.server.http.application import ApiApplication
from dralloc.server.http.authentication import Authenticator
from dralloc.server.http.listener import ListenAddress, listen
from tests.support.api_server import TOKEN, api_server
from tests.support.local_api import LocalApi, claim_document

BINDINGS: Final = 1_000
QUESTIONS: Final = 2_000
REPEATS: Final = 20
TARGET_US: Final = 5.0

USER_TOKEN: Final = "a-token-of-a-user"
USER: Final = User(name="alice", groups=("team-7", "devs", "ops", AUTHENTICATED))
REQUESTS: Final = 1_000
ROUNDS: Final = 25
CONNECTIONS: Final = 8
LOSS_MAX: Final = 3.0


@benchmark("access")
def measure_access() -> Iterator[Figure]:
    yield from measure_decisions()
    yield from asyncio.run(measure_requests())


# --- decisions ----------------------------------------------------------------------------------------------


def measure_decisions() -> Iterator[Figure]:
    rbac = RbacAuthorizer([*default_policy(), *team_policy()])
    repeated = [question(number % 20, "resourceclaims", f"claim-{number}") for number in range(QUESTIONS)]
    yield figure("decision, question asked before", rbac, repeated)
    # No question is asked twice, so nothing is remembered.
    allowed = [question(number % BINDINGS, "resourceclaims", "c", f"-{number}") for number in range(QUESTIONS)]
    yield figure("decision, new question of one of 1,000 teams", rbac, allowed)
    refused = [question(number % BINDINGS, f"things-{number}", "c") for number in range(QUESTIONS)]
    yield figure("refusal, new question of one of 1,000 teams", rbac, refused)
    paths = [AccessRequest(user=USER, verb="get", path=f"/openapi/{number}") for number in range(QUESTIONS)]
    yield figure("decision on a path", rbac, paths)


def figure(name: str, rbac: RbacAuthorizer, questions: list[AccessRequest]) -> Figure:
    """The processor time of the best of several runs, without waiting for other programs on the machine."""
    best = float("inf")
    for _ in range(REPEATS):
        rbac._remembered = {}
        started = time.thread_time()
        for each in questions:
            rbac.decide(each)
        best = min(best, time.thread_time() - started)
    return Figure(f"{name}, {BINDINGS:,} bindings", best / len(questions) * 1e6, "µs", TARGET_US)


def team_policy() -> Iterator[Role | RoleBinding]:
    rules = tuple(
        PolicyRule(verbs=("get", "list", "watch", verb), api_groups=("", "resource.k8s.io"), resources=(resource,))
        for verb, resource in (("create", "pods"), ("patch", "resourceclaims/status"), ("update", "resourceclaims"))
    )
    for number in range(BINDINGS):
        metadata = ObjectMeta(name=f"team-{number}", namespace=f"ns-{number}")
        ref = RoleRef(api_group=GROUP, kind="Role", name=f"team-{number}")
        subjects = (Subject(kind="Group", name=f"team-{number}"), Subject(kind="User", name=f"lead-{number}"))
        yield Role(metadata=metadata, rules=rules)
        yield RoleBinding(metadata=metadata, role_ref=ref, subjects=subjects)


def question(team: int, resource: str, name: str, user: str = "") -> AccessRequest:
    asking = User(name=f"member-{team}{user}", groups=(f"team-{team}", "devs", "ops", AUTHENTICATED))
    return AccessRequest(
        user=asking, verb="get", group="resource.k8s.io", resource=resource, namespace=f"ns-{team}", name=name
    )


# --- requests -----------------------------------------------------------------------------------------------


async def measure_requests() -> list[Figure]:
    """Processor time per request, in turns, so that other load on the machine disturbs both servers alike."""
    async with AsyncExitStack() as stack:
        ports = [await stack.enter_async_context(server(enforces_roles=enforces)) for enforces in (False, True)]
        figures = []
        for name, requests in (("gets", gets), ("creates", creates)):
            without, with_roles = await best_costs(ports, requests)
            loss = (with_roles / without - 1) * 100
            figures.append(Figure(f"{name}: processor time per request, roles enforced", with_roles * 1e6, "µs"))
            figures.append(Figure(f"{name}: more than with everything allowed", loss, "%", LOSS_MAX))
        return figures


@asynccontextmanager
async def server(*, enforces_roles: bool) -> AsyncIterator[int]:
    async with api_server(enforces_roles=enforces_roles) as api:
        admin = LocalApi(api, ADMINISTRATOR)
        for item in team_policy() if enforces_roles else ():
            kind = "roles" if isinstance(item, Role) else "rolebindings"
            metadata = {"name": item.metadata.name, "namespace": "default"}
            path = f"/apis/{GROUP}/v1/namespaces/default/{kind}"
            await admin.create(path, {**json.loads(encode(item)), "metadata": metadata})
        for number in range(100):
            await admin.create(CLAIMS, claim_document(f"c-{number}"))
        if enforces_roles:
            rule = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["*"]}
            await admin.create(f"/apis/{GROUP}/v1/clusterroles", {"metadata": {"name": "claims"}, "rules": [rule]})
            ref = {"apiGroup": GROUP, "kind": "ClusterRole", "name": "claims"}
            subject = {"kind": "Group", "name": "devs"}
            bound = {"metadata": {"name": "claims"}, "roleRef": ref, "subjects": [subject]}
            await admin.create(f"/apis/{GROUP}/v1/namespaces/default/rolebindings", bound)
        application = ApiApplication(api, Authenticator({TOKEN: ADMINISTRATOR, USER_TOKEN: USER}))
        async with listen(application, ListenAddress()) as url:
            yield int(url.rpartition(":")[2])


def encode(item: Role | RoleBinding) -> bytes:
    from dralloc.kube.codec import encode as encode_object

    return encode_object(item)


_numbers: Final = iter(range(10**9))


def gets() -> Iterator[bytes]:
    for _, number in zip(range(REQUESTS), cycle(range(100)), strict=False):
        yield request("GET", f"{CLAIMS}/c-{number}")


def creates() -> Iterator[bytes]:
    for _ in range(REQUESTS // 2):
        yield request("POST", CLAIMS, json.dumps(claim_document(f"new-{next(_numbers)}")).encode())


def request(method: str, path: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {USER_TOKEN}\r\n"
    return f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


async def best_costs(ports: list[int], requests: object) -> list[float]:
    assert callable(requests)
    costs: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for port, spent in zip(ports, costs, strict=True):
            sent = list(requests())
            loop = asyncio.get_running_loop()
            pending = iter(sent)
            clients = [LoadClient(pending, loop.create_future()) for _ in range(CONNECTIONS)]
            started = time.process_time()
            for client in clients:
                await loop.create_connection(lambda client=client: client, "127.0.0.1", port)  # type: ignore[misc]
            await asyncio.gather(*(client.done for client in clients))
            spent.append((time.process_time() - started) / len(sent))
    return [min(each) for each in costs]
