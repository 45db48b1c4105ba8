"""Requests that are small and yet long to answer leave the event loop, and so does what the server does by itself."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dralloc.access.rbac import RoleGrants
from dralloc.access.users import ADMINISTRATOR, User
from dralloc.api.codec import decode
from dralloc.api.core_v1 import ResourceQuota
from dralloc.api.rbac_v1 import Role
from dralloc.apiserver.http import compute_threads
from dralloc.apiserver.http.application import ApiApplication
from dralloc.apiserver.http.authentication import Authenticator
from dralloc.apiserver.http.flow_control import SERVER
from dralloc.apiserver.http.listener import ListenAddress, listen
from dralloc.apiserver.objects.escalation_check import PARTS_MAX
from dralloc.apiserver.server_process import ServerSettings, run_server
from dralloc.client.http_transport import HttpTransport
from dralloc.client.kubeconfig import ConnectionConfig
from dralloc.client.transport import ClientRequest
from tests.support.api_server import TOKEN, api_application, api_server
from tests.support.local_api import AS_TABLE, CLAIMS, claim_document
from tests.support.loop_steps import longest_step

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(autouse=True)
def without_garbage_collections() -> Iterator[None]:
    """They would be a part of what is measured, and take as long as the tests that ran before have left objects."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
JSON_PATCH = {"Content-Type": "application/json-patch+json"}
YAML = {"Content-Type": "application/yaml"}
PROTOBUF = {"Content-Type": "application/vnd.kubernetes.protobuf"}


def device_class(expression: str) -> bytes:
    selectors = [{"cel": {"expression": expression}}]
    return json.dumps({"metadata": {"generateName": "c-"}, "spec": {"selectors": selectors}}).encode()


# `''.matches('\\pL{99}')`
ESCAPED = rb"''.\u006datches('\\\\pL{99}')"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def review(**selectors: Any) -> bytes:
    attributes = {"verb": "list", "resource": "pods", **selectors}
    return json.dumps({"spec": {"user": "alice", "resourceAttributes": attributes}}).encode()


LONG = ",".join(f"key-{number}=x" for number in range(1_000))
SPEC = {"containers": [{"name": "c", "image": "x"}]}
DOUBLING = [{"op": "add", "path": "/metadata/labels", "value": {}}, {"op": "copy", "from": "", "path": "/metadata/x"}]

REQUESTS = [
    pytest.param(ClientRequest(method="GET", path="/openapi/v2"), True, id="description"),
    pytest.param(ClientRequest(method="GET", path="/version"), False, id="version"),
    pytest.param(
        ClientRequest(method="POST", path=CLASSES, body=device_class(" || ".join(["true"] * 1000))),
        True,
        id="long expression",
    ),
    pytest.param(ClientRequest(method="POST", path=CLASSES, body=device_class("true")), False, id="short expression"),
    pytest.param(
        ClientRequest(method="POST", path=CLASSES, body=device_class(r"''.matches('\\pL{99}')")),
        True,
        id="short expression with a regular expression",
    ),
    pytest.param(
        ClientRequest(method="POST", path=CLASSES, body=device_class("MATCHES").replace(b"MATCHES", ESCAPED)),
        True,
        id="short expression with escaped letters",
    ),
    pytest.param(
        ClientRequest(method="PATCH", path=f"{CLAIMS}/c", headers=JSON_PATCH, body=json.dumps(DOUBLING).encode()),
        True,
        id="patch that copies",
    ),
    pytest.param(
        ClientRequest(method="PATCH", path=f"{CLAIMS}/c", headers=JSON_PATCH, body=json.dumps(DOUBLING[:1]).encode()),
        False,
        id="patch that does not copy",
    ),
    pytest.param(ClientRequest(method="POST", path=REVIEWS, body=review()), False, id="review"),
    pytest.param(
        ClientRequest(method="POST", path=REVIEWS, body=review(labelSelector={"rawSelector": LONG})),
        True,
        id="review of a long label selector",
    ),
    pytest.param(
        ClientRequest(method="POST", path=REVIEWS, body=review(fieldSelector={"rawSelector": LONG})),
        True,
        id="review of a long field selector",
    ),
    pytest.param(
        ClientRequest(method="POST", path=CONFIG_MAPS, headers=YAML, body=b"metadata: {name: a}"), False, id="YAML"
    ),
    pytest.param(
        ClientRequest(method="POST", path=CONFIG_MAPS, headers=YAML, body=b"metadata: {name: a}\na: &a []\nb: *a"),
        True,
        id="YAML with an alias",
    ),
    pytest.param(
        ClientRequest(
            method="PATCH",
            path=f"{CONFIG_MAPS}/a",
            query={"fieldManager": "m"},
            headers={"Content-Type": "application/apply-patch+yaml"},
            body=b"apiVersion: v1\nkind: ConfigMap\na: &a []\nb: *a",
        ),
        True,
        id="apply with an alias",
    ),
]


class Counted:
    """How many computations have left the loop, and for whom."""

    def __init__(self) -> None:
        self.threads = 0
        self.users: Counter[str] = Counter()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counter = Counted()
    run = compute_threads.ComputeThreads.run

    async def count(self: Any, user: str, work: Callable[[], Any]) -> Any:
        counter.threads += 1
        counter.users[user] += 1
        return await run(self, user, work)

    monkeypatch.setattr(compute_threads.ComputeThreads, "run", count)
    return counter


@asynccontextmanager
async def client_with(path: str, document: dict[str, Any]) -> AsyncIterator[HttpTransport]:
    """A client of a server that has one object."""
    async with api_server() as server:
        application = ApiApplication(server, Authenticator({}, without_credential=ADMINISTRATOR))
        async with listen(application, ListenAddress()) as url:
            client = HttpTransport(ConnectionConfig(server=url))
            body = json.dumps(document).encode()
            assert (await client.send(ClientRequest(method="POST", path=path, body=body))).status == 201
            yield client
            await client.close()


@pytest.mark.parametrize(("request_", "leaves"), REQUESTS)
def test_small_requests_that_take_long(request_: ClientRequest, leaves: bool, counted: Counted) -> None:
    async def main() -> None:
        async with client_with(CLAIMS, claim_document("c")) as client:
            assert not counted.threads
            assert (await client.send(request_)).status < 500

    asyncio.run(main())
    assert bool(counted.threads) is leaves


def member(number: int, content: bytes) -> bytes:
    """A member of a protobuf message."""
    length = len(content)
    return bytes((number << 3 | 2, length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14)) + content


# The metadata of a lease, and entries of managed fields that have a time only.
TIMES = member(1, b"".join((member(1, b"a"), b"\x8a\x01\x04\x22\x02\x08\x01" * 250_000)))
EXPANDING = [
    pytest.param(
        YAML, b'metadata: {name: a}\na: &a "' + b"\\x01" * 15_000 + b'"\nb: [' + b"*a," * 90 + b"]", id="YAML"
    ),
    pytest.param(PROTOBUF, b"k8s\0" + member(1, b"\x0a\x02v1\x12\x09ConfigMap") + member(2, TIMES), id="protobuf"),
]


@pytest.mark.parametrize(("headers", "body"), EXPANDING)
def test_what_stands_for_more_than_a_large_request_is_refused(headers: dict[str, str], body: bytes) -> None:
    async def main() -> None:
        async with client_with(CLAIMS, claim_document("c")) as client:
            sent = ClientRequest(method="POST", path=CONFIG_MAPS, headers=headers, body=body)
            assert (await client.send(sent)).status == 413

    asyncio.run(main())


AS_METADATA = {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}
EVICTION = b'{"metadata":{"name":"p"}}'
ABOUT_LARGE_OBJECTS = [
    pytest.param(ClientRequest(method="GET", path=f"{PODS}/p"), 0, id="get"),
    pytest.param(ClientRequest(method="GET", path=PODS), 0, id="list"),
    pytest.param(ClientRequest(method="GET", path=f"{PODS}/p", headers={"Accept": AS_TABLE}), 1, id="table"),
    pytest.param(ClientRequest(method="GET", path=PODS, headers={"Accept": AS_TABLE}), 1, id="table of a list"),
    pytest.param(ClientRequest(method="GET", path=f"{PODS}/p", headers=AS_METADATA), 1, id="metadata"),
    pytest.param(
        ClientRequest(method="GET", path=PODS, query={"fieldSelector": "spec.nodeName=n"}), 1, id="field selector"
    ),
    pytest.param(ClientRequest(method="GET", path=f"{PODS}/p/ephemeralcontainers"), 1, id="part"),
    pytest.param(ClientRequest(method="DELETE", path=f"{PODS}/p"), 1, id="deletion"),
    # Its UID and the pod are read, and it is deleted.
    pytest.param(ClientRequest(method="POST", path=f"{PODS}/p/eviction", body=EVICTION), 3, id="eviction"),
    pytest.param(
        ClientRequest(method="POST", path=f"{PODS}/p/binding", body=b'{"target":{"kind":"Node","name":"n"}}'),
        1,
        id="binding",
    ),
    # The pod is patched, and its metadata shown.
    pytest.param(
        ClientRequest(method="PATCH", path=f"{PODS}/p", headers={**MERGE_PATCH, **AS_METADATA}, body=b"{}"),
        2,
        id="patch that shows metadata",
    ),
]


def large_pod() -> dict[str, Any]:
    env = [{"name": f"VARIABLE_{number}", "value": "x"} for number in range(2_000)]
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x", "env": env}]}}


@pytest.mark.parametrize(("request_", "threads"), ABOUT_LARGE_OBJECTS)
def test_what_decodes_a_large_object_leaves_the_loop(request_: ClientRequest, threads: int, counted: Counted) -> None:
    async def main() -> None:
        async with client_with(PODS, large_pod()) as client:
            counted.threads = 0
            assert (await client.send(request_)).status < 300

    asyncio.run(main())
    assert counted.threads == threads


def test_an_eviction_reads_large_budgets_off_the_loop(counted: Counted) -> None:
    expression = {"key": "app", "operator": "In", "values": [f"value-{number}" for number in range(5_000)]}
    budget = {"metadata": {"name": "b"}, "spec": {"selector": {"matchExpressions": [expression]}}}
    pod = {"metadata": {"name": "p"}, "spec": SPEC}

    async def main() -> None:
        async with client_with("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget) as client:
            await client.send(ClientRequest(method="POST", path=PODS, body=json.dumps(pod).encode()))
            counted.threads = 0
            assert (
                await client.send(ClientRequest(method="POST", path=f"{PODS}/p/eviction", body=EVICTION))
            ).status == 201

    asyncio.run(main())
    assert counted.threads == 1


def test_a_binding_of_many_claims_is_checked_off_the_loop(counted: Counted) -> None:
    claims = [{"name": f"c{number}", "resourceClaimName": f"c{number}"} for number in range(2_000)]
    spec = {"containers": [{"name": "c", "image": "x"}], "resourceClaims": claims}
    binding = ClientRequest(method="POST", path=f"{PODS}/p/binding", body=b'{"target":{"kind":"Node","name":"n"}}')

    async def main() -> None:
        async with client_with(PODS, {"metadata": {"name": "p"}, "spec": spec}) as client:
            counted.users.clear()
            assert (await client.send(binding)).status == 201

    asyncio.run(main())
    # The pod gets its node, and its claims are found for the guard.
    assert counted.users[ADMINISTRATOR.name] == 2


def test_a_pod_with_many_extended_resources_is_charged_off_the_loop(counted: Counted) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/pods": "9", "requests.example.com/r7": "9"}}}
    many = {f"example.com/r{number}": "1" for number in range(2_000)}
    container = {"name": "c", "image": "x", "resources": {"limits": many}}

    async def main() -> None:
        async with client_with("/api/v1/namespaces/default/resourcequotas", quota) as client:
            counted.users.clear()
            await created(client, PODS, {"metadata": {"name": "p"}, "spec": {"containers": [container]}})

    asyncio.run(main())
    # It is decoded, admitted and charged.
    assert counted.users[ADMINISTRATOR.name] == 3


def test_a_quota_with_many_limits_is_read_off_the_loop() -> None:
    hard = {f"count/things-{number}.example.com": "1" for number in range(30_000)}
    body = json.dumps({"metadata": {"name": "q"}, "spec": {"hard": hard}}).encode()
    started = time.thread_time()
    decode(body, ResourceQuota)
    reading_s = time.thread_time() - started

    async def main() -> float:
        # The index of quotas follows the store from here on.
        async with client_with(PODS, {"metadata": {"name": "p"}, "spec": SPEC}) as client:
            with longest_step() as longest:
                quotas = ClientRequest(method="POST", path="/api/v1/namespaces/default/resourcequotas", body=body)
                assert (await client.send(quotas)).status == 201
                await created(client, PODS, {"metadata": {"name": "second"}, "spec": SPEC})
        return longest.seconds

    assert asyncio.run(main()) < reading_s / 2


def test_large_events_are_rendered_off_the_loop_and_in_order(counted: Counted) -> None:
    accept = {"Accept": "application/vnd.kubernetes.protobuf;stream=watch"}

    async def main() -> bytes:
        async with client_with(PODS, large_pod()) as client:
            counted.threads = 0
            async with client.stream(
                ClientRequest(method="GET", path=PODS, query={"watch": "1"}, headers=accept)
            ) as stream:
                pieces, told = stream.pieces(), b""
                while b"ADDED" not in told:
                    told += await anext(pieces)
                assert counted.threads == 1
                for mark in (b"first-mark", b"second-mark"):
                    body = b'{"metadata":{"labels":{"mark":"%b"}}}' % mark
                    patch = ClientRequest(method="PATCH", path=f"{PODS}/p", headers=MERGE_PATCH, body=body)
                    assert (await client.send(patch)).status == 200
                assert (await client.send(ClientRequest(method="DELETE", path=f"{PODS}/p"))).status == 200
                while b"DELETED" not in told:
                    told += await anext(pieces)
                return told

    told = asyncio.run(main())
    assert told.index(b"first-mark") < told.index(b"second-mark") < told.index(b"DELETED")
    # The first event, two patches, a deletion; three events of changes.
    assert counted.threads == 7


def test_many_small_events_stay_on_the_loop(counted: Counted) -> None:
    """As those that every node gets of all pods."""
    annotation = "x" * 2000

    def pod(number: int) -> ClientRequest:
        metadata = {"name": f"p{number}", "labels": {"number": str(number)}, "annotations": {"a": annotation}}
        document = {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "x"}]}}
        return ClientRequest(method="POST", path=PODS, body=json.dumps(document).encode())

    async def main() -> None:
        async with client_with(CLAIMS, claim_document()) as client:
            listed = json.loads((await client.send(ClientRequest(method="GET", path=PODS))).body)
            for number in range(60):
                await client.send(pod(number))
            revision = listed["metadata"]["resourceVersion"]
            query = {"watch": "1", "labelSelector": "number=59", "resourceVersion": revision}
            async with client.stream(ClientRequest(method="GET", path=PODS, query=query)) as stream:
                pieces, told = stream.pieces(), b""
                while b'"p59"' not in told:
                    told += await anext(pieces)

    asyncio.run(main())
    assert counted.threads == 0


# --- the server's own tasks -----------------------------------------------------------------------------------

ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
CLUSTER_ROLE_BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
CLUSTER_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


async def created(client: HttpTransport, path: str, document: dict[str, Any]) -> dict[str, Any]:
    response = await client.send(ClientRequest(method="POST", path=path, body=json.dumps(document).encode()))
    assert response.status == 201
    return json.loads(response.body)  # type: ignore[no-any-return]


async def seen(client: HttpTransport, path: str, name: str, holds: Callable[[dict[str, Any]], bool]) -> None:
    """Watches an object until the condition holds."""
    query = {"watch": "1", "fieldSelector": f"metadata.name={name}"}
    told = b""
    async with asyncio.timeout(60), client.stream(ClientRequest(method="GET", path=path, query=query)) as stream:
        async for piece in stream.pieces():
            *lines, told = (told + piece).split(b"\n")
            if any(holds(json.loads(line)["object"]) for line in lines):
                return


@asynccontextmanager
async def client_of_server(directory: Path) -> AsyncIterator[HttpTransport]:
    async with run_server(ServerSettings(data_dir=directory, port=0, insecure_http=True)) as server:
        client = HttpTransport(ConnectionConfig(server=server.url))
        yield client
        await client.close()


def test_rules_of_roles_are_aggregated_off_the_loop(counted: Counted, tmp_path: Path) -> None:
    rules = [{"apiGroups": [f"g{number}"], "resources": ["r"], "verbs": ["get"]} for number in range(2_000)]

    async def main() -> None:
        async with client_of_server(tmp_path) as client:
            selectors = {"clusterRoleSelectors": [{"matchLabels": {"part": "yes"}}]}
            await created(client, CLUSTER_ROLES, {"metadata": {"name": "whole"}, "aggregationRule": selectors})
            counted.users.clear()
            part = {"metadata": {"name": "part", "labels": {"part": "yes"}}, "rules": rules}
            await created(client, CLUSTER_ROLES, part)
            await seen(client, CLUSTER_ROLES, "whole", lambda role: len(role["rules"] or ()) == len(rules))

    asyncio.run(main())
    assert SERVER.name in counted.users


def test_references_to_many_owners_are_removed_off_the_loop(counted: Counted, tmp_path: Path) -> None:
    def owner(name: str, uid: str) -> dict[str, str]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}

    async def main() -> None:
        async with client_of_server(tmp_path) as client:
            alive = await created(client, CONFIG_MAPS, {"metadata": {"name": "alive"}})
            owners = [owner(f"gone-{number}", str(number)) for number in range(3_000)]
            owners.append(owner("alive", alive["metadata"]["uid"]))
            counted.users.clear()
            await created(client, CONFIG_MAPS, {"metadata": {"name": "owned", "ownerReferences": owners}})
            await seen(client, CONFIG_MAPS, "owned", lambda found: found["metadata"]["ownerReferences"] == owners[-1:])

    asyncio.run(main())
    assert SERVER.name in counted.users


@pytest.mark.parametrize(
    ("groups", "leaves", "why"),
    [
        pytest.param(2, False, "permissions not currently held", id="few"),
        pytest.param(100, True, "permissions not currently held", id="many"),
        pytest.param(1_000, False, f"at most {PARTS_MAX} can be compared", id="too many"),
    ],
)
def test_rights_are_compared_off_the_loop(groups: int, leaves: bool, why: str, counted: Counted) -> None:
    """A rule of some kilobytes stands for as many rights as the product of its groups, resources and verbs."""
    names = [f"n{number}" for number in range(groups)]
    rule = {"apiGroups": names, "resources": names, "verbs": ["get"]}
    role = {"metadata": {"name": "r"}, "rules": [rule]}

    async def main() -> bytes:
        async with administrator_and_alice("create") as (_, alice):
            counted.threads = 0
            response = await alice.send(ClientRequest(method="POST", path=ROLES, body=json.dumps(role).encode()))
            assert response.status == 403
            return response.body

    assert why.encode() in asyncio.run(main())
    assert bool(counted.threads) is leaves


def test_a_small_role_is_compared_with_a_large_one_off_the_loop(counted: Counted) -> None:
    rules = [{"apiGroups": [f"g{number}"], "resources": ["r"], "verbs": ["get"]} for number in range(2_000)]

    async def main() -> None:
        async with administrator_and_alice("update") as (administrator, alice):
            await created(administrator, ROLES, {"metadata": {"name": "r"}, "rules": rules})
            counted.threads = 0
            body = json.dumps({"metadata": {"name": "r"}, "rules": []}).encode()
            assert (await alice.send(ClientRequest(method="PUT", path=f"{ROLES}/r", body=body))).status == 200

    asyncio.run(main())
    # What is sent is made for the check, the stored role is read for it, the check compares, and the change is made.
    assert counted.threads == 4


def test_large_roles_are_indexed_off_the_loop() -> None:
    resources = [f"r{number}" for number in range(150_000)]
    role = {"metadata": {"name": "large"}, "rules": [{"apiGroups": ["g"], "resources": resources, "verbs": ["get"]}]}
    read = decode(json.dumps(role).encode(), Role)
    started = time.thread_time()
    RoleGrants.indexed(read)
    indexing_s = time.thread_time() - started

    async def main() -> float:
        async with administrator_and_alice("get") as (administrator, alice):
            await created(administrator, CLUSTER_ROLES, role)
            await created(administrator, CLUSTER_ROLE_BINDINGS, binding_of("alice", "large"))
            with longest_step() as longest:
                assert (await alice.send(ClientRequest(method="GET", path=CLAIMS))).status == 403
        return longest.seconds

    assert asyncio.run(main()) < indexing_s / 2


def binding_of(user: str, role: str) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{user}-{role}"},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": role, "apiGroup": "rbac.authorization.k8s.io"},
    }


@asynccontextmanager
async def administrator_and_alice(verb: str) -> AsyncIterator[tuple[HttpTransport, HttpTransport]]:
    """Clients of the two users; alice has this right on roles, and no other."""
    may_write = {"metadata": {"name": "w"}, "rules": [{"apiGroups": ["*"], "resources": ["roles"], "verbs": [verb]}]}
    async with (
        api_application({"alice": User(name="alice")}, enforces_roles=True) as application,
        listen(application, ListenAddress()) as url,
    ):
        administrator = HttpTransport(ConnectionConfig(server=url, token=TOKEN))
        await created(administrator, CLUSTER_ROLES, may_write)
        await created(administrator, CLUSTER_ROLE_BINDINGS, binding_of("alice", "w"))
        alice = HttpTransport(ConnectionConfig(server=url, token="alice"))
        yield administrator, alice
        await administrator.close()
        await alice.close()
