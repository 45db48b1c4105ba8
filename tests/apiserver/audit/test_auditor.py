"""Audit events of a server: who did what, at which stage, and nothing that is a credential."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from dralloc.access.access_request import AccessRequest
from dralloc.access.authorizer import ALLOWED, Decision, Opinion
from dralloc.access.users import ADMINISTRATOR, User
from dralloc.api.core_v1 import Node
from dralloc.api.yaml_reader import read_yaml_stream
from dralloc.apiserver.audit import audit_events
from dralloc.apiserver.audit.audit_metrics import AuditMetrics
from dralloc.apiserver.audit.audit_policy import read_policy
from dralloc.apiserver.audit.auditor import Auditor
from dralloc.apiserver.http import application as application_module
from dralloc.apiserver.http.application import ApiApplication
from dralloc.apiserver.http.authentication import Authenticator
from dralloc.apiserver.http.body_reader import BODY_BYTES_MAX
from dralloc.apiserver.http.flow_control import SIZE_INLINE_MAX
from dralloc.apiserver.http.impersonation_headers import impersonation_headers
from dralloc.apiserver.http.listener import ListenAddress, listen
from dralloc.apiserver.http.messages import HttpRequest
from dralloc.client.async_client import connect_async
from dralloc.client.http_transport import HttpTransport
from dralloc.client.kubeconfig import ConnectionConfig
from dralloc.client.transport import ClientRequest
from dralloc.primitives.errors import Unauthorized
from dralloc.testing.virtual_time import run_virtual
from tests.support.api_server import TOKEN, api_server
from tests.support.local_api import APPLY_PATCH, CLAIMS, PODS, FixedClock, LocalApi, claim_document

ALICE = User(name="alice", uid="7", groups=("team",), extra=(("k", ("v",)),))
PASSWORD = "aHVudGVyMi1odW50ZXIy"
SECRETS = "/api/v1/namespaces/default/secrets"
NODES = "/api/v1/nodes"


class Lines:
    """A sink that keeps events."""

    def __init__(self) -> None:
        self.metrics = AuditMetrics()
        self.text = b""

    def write(self, line: bytes) -> None:
        self.text += line

    @property
    def events(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(line) for line in self.text.splitlines()]

    @property
    def last(self) -> dict[str, Any]:
        return self.events[-1]


class RefusesDeletes:
    """Allows everything else."""

    def decide(self, request: AccessRequest) -> Decision:
        return Decision(Opinion.NONE, "no role allows it") if request.verb == "delete" else ALLOWED


@asynccontextmanager
async def audited(rules: str) -> AsyncIterator[tuple[LocalApi, Lines]]:
    """A server with this policy, as alice uses it."""
    lines = Lines()
    policy = read_policy(f"apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}")
    async with api_server(auditor=Auditor(policy, lines, FixedClock()), authorizer=RefusesDeletes()) as server:
        yield LocalApi(server, ALICE), lines


def test_an_event_says_who_did_what() -> None:
    async def scenario() -> None:
        async with audited("omitStages: [RequestReceived]\nrules: [{level: Metadata}]") as (api, lines):
            made = await api.create(
                CLAIMS, {**claim_document(""), "metadata": {"generateName": "c-"}}, fieldManager="m"
            )
            assert lines.last == {
                "kind": "Event",
                "apiVersion": "audit.k8s.io/v1",
                "level": "Metadata",
                "auditID": lines.last["auditID"],
                "stage": "ResponseComplete",
                "requestURI": f"{CLAIMS}?fieldManager=m",
                "verb": "create",
                "user": {"username": "alice", "uid": "7", "groups": ["team"], "extra": {"k": ["v"]}},
                "objectRef": {
                    "resource": "resourceclaims",
                    "namespace": "default",
                    "name": made["metadata"]["name"],
                    "uid": made["metadata"]["uid"],
                    "apiGroup": "resource.k8s.io",
                    "apiVersion": "v1",
                },
                "responseStatus": {"metadata": {}, "code": 201},
                "requestReceivedTimestamp": "2026-01-01T00:00:00.000001Z",
                "stageTimestamp": "2026-01-01T00:00:00.000001Z",
                "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""},
            }

    run_virtual(scenario())


def test_stages_share_their_id_and_the_response_names_it() -> None:
    async def scenario() -> None:
        async with audited("rules: [{level: Request}]") as (api, lines):
            headers = {b"audit-id": b"mine", b"content-type": b"application/json", b"user-agent": b"test/1"}
            body = msgspec.json.encode({"metadata": {"name": "n"}})
            request = HttpRequest("POST", NODES, {}, headers, body, ALICE, source_ip="192.0.2.1")
            response = await api.server.handle(request)
            assert (b"audit-id", b"mine") in response.headers
            received, complete = lines.events
            assert (received["stage"], complete["stage"]) == ("RequestReceived", "ResponseComplete")
            assert {event["auditID"] for event in lines.events} == {"mine"}
            assert "requestObject" not in received
            assert complete["requestObject"] == {"metadata": {"name": "n"}}
            assert (complete["sourceIPs"], complete["userAgent"]) == (["192.0.2.1"], "test/1")

    run_virtual(scenario())


def test_a_refusal_is_logged_with_its_reason() -> None:
    async def scenario() -> None:
        async with audited("rules: [{level: Metadata}]") as (api, lines):
            assert (await api.call("DELETE", f"{PODS}/p")).code == 403
            assert lines.last["annotations"] == {
                "authorization.k8s.io/decision": "forbid",
                "authorization.k8s.io/reason": "no role allows it",
            }
            status = lines.last["responseStatus"]
            assert (status["code"], status["reason"], status["status"]) == (403, "Forbidden", "Failure")
            assert 'User "alice" cannot delete' in status["message"]
            assert (await api.call("GET", f"{PODS}/p")).code == 404
            assert lines.last["responseStatus"]["reason"] == "NotFound"

    run_virtual(scenario())


def test_an_impersonator_is_the_user_and_decides_the_level() -> None:
    async def scenario() -> None:
        async with audited("rules: [{level: None, users: [alice]}, {level: Metadata}]") as (api, lines):
            await api.get(PODS)
            assert not lines.text
            request = HttpRequest("GET", PODS, {}, {}, b"", ADMINISTRATOR)
            request.impersonation = impersonation_headers([(b"impersonate-user", b"alice")])
            await api.server.handle(request)
            assert lines.events[0]["stage"] == "RequestReceived"
            assert "impersonatedUser" not in lines.events[0]
            assert lines.last["user"]["username"] == ADMINISTRATOR.name
            assert lines.last["impersonatedUser"]["username"] == "alice"

    run_virtual(scenario())


def test_a_watch_is_logged_when_it_starts_and_when_it_ends() -> None:
    async def scenario() -> None:
        async with audited("rules: [{level: Metadata}]") as (api, lines):
            await api.create(CLAIMS, claim_document())
            seen = len(lines.events)
            watch = api.watch(CLAIMS, resourceVersion="0")
            assert (await anext(watch))["type"] == "ADDED"
            assert [event["stage"] for event in lines.events[seen:]] == ["RequestReceived", "ResponseStarted"]
            await watch.aclose()  # type: ignore[attr-defined]
            assert [event["stage"] for event in lines.events[seen:]][2:] == ["ResponseComplete"]
            assert {event["verb"] for event in lines.events[seen:]} == {"watch"}

    run_virtual(scenario())


def test_bodies_are_logged_at_their_levels() -> None:
    async def scenario() -> None:
        async with audited("omitManagedFields: true\nrules: [{level: RequestResponse}]") as (api, lines):
            await api.create(NODES, {"metadata": {"name": "n"}}, fieldManager="m")
            assert lines.last["responseObject"]["metadata"]["name"] == "n"
            assert "managedFields" not in lines.last["responseObject"]["metadata"]
            applied = "{apiVersion: v1, kind: Node, metadata: {name: n, labels: {a: b}}}"
            await api.patch(f"{NODES}/n", applied, content_type=APPLY_PATCH, fieldManager="m")
            assert lines.last["requestObject"]["metadata"]["labels"] == {"a": "b"}
            for unreadable in (b"{broken", b'{"\xff": 1}', b"[" * 100_000):
                assert (await api.call("POST", NODES, unreadable)).code == 400
                assert "requestObject" not in lines.last

    run_virtual(scenario())


@pytest.mark.parametrize("kind", ["Secret", "TokenRequest", "TokenReview"])
def test_credentials_are_never_logged(kind: str) -> None:
    """Neither as the body of their own kind, nor in messages, nor sent to a wrong path, nor in a URL or a header."""

    async def scenario() -> None:
        async with audited("rules: [{level: RequestResponse}]") as (api, lines):
            document = {
                "apiVersion": "v1",
                "kind": kind,
                "metadata": {"name": "s"},
                "data": {"password": PASSWORD, "not a key": PASSWORD},
                "spec": {"token": PASSWORD},
            }
            paths = (
                SECRETS,
                "/api/v1/namespaces/default/serviceaccounts/default/token",
                "/apis/authentication.k8s.io/v1/tokenreviews",
                "/api/v1/namespaces/default/configmaps",
                NODES,
            )
            for path in paths:
                await api.call("POST", path, document)
                await api.call("POST", path, {"kind": "List", "apiVersion": "v1", "items": [document]})
            for path in paths[:3]:
                await api.call("POST", path, f'{{"data": {PASSWORD}')
                await api.call("PATCH", f"{path}/s", {"data": {"password": PASSWORD}}, content_type=APPLY_PATCH)
            await api.call("GET", SECRETS, access_token=PASSWORD)
            headers = {b"authorization": f"Bearer {PASSWORD}".encode()}
            api.server.refuse_unauthenticated(HttpRequest("GET", SECRETS, {"t": PASSWORD}, headers, b"", ALICE))
            assert len(lines.events) > 20
            assert [event for event in lines.events if PASSWORD in str(event)] == []

    run_virtual(scenario())


def test_a_request_without_a_valid_credential_is_logged() -> None:
    async def scenario() -> None:
        async with audited("rules: [{level: Metadata}]") as (api, lines):
            application = ApiApplication(api.server, Authenticator({TOKEN: ADMINISTRATOR}))
            async with listen(application, ListenAddress()) as url, connect_async(url, token="wrong") as client:
                with pytest.raises(Unauthorized):
                    await client.get(Node, "n")
            assert lines.last["responseStatus"] == {
                "metadata": {},
                "message": "Authentication failed, attempted: bearer",
                "code": 401,
            }
            assert lines.last["user"] == {}
            assert lines.last["sourceIPs"] == ["127.0.0.1"]

    asyncio.run(scenario())


def test_refusals_before_the_request_is_handled_are_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application_module, "WATCHES_OF_USER_MAX", 0)

    async def scenario() -> None:
        async with audited("omitStages: [RequestReceived]\nrules: [{level: Request}]") as (api, lines):
            application = ApiApplication(api.server, Authenticator({}, without_credential=ADMINISTRATOR))
            async with listen(application, ListenAddress()) as url:
                client = HttpTransport(ConnectionConfig(server=url))
                large = ClientRequest(method="POST", path=CLAIMS, body=b"x" * (BODY_BYTES_MAX + 1))
                watch = ClientRequest(method="GET", path=CLAIMS, query={"watch": "1"})
                foreign = ClientRequest(method="GET", path=CLAIMS, headers={"Origin": "http://example.com"})
                answers = [(await client.send(each)).status for each in (large, watch, foreign)]
                await client.close()
            told = [(each["verb"], each["responseStatus"]["code"], each["user"]["username"]) for each in lines.events]
            assert answers == [413, 429, 403]
            assert told == [
                ("create", 413, ADMINISTRATOR.name),
                ("watch", 429, ADMINISTRATOR.name),
                ("list", 403, "system:anonymous"),
            ]
            assert 'code="413"' in await api.server.metrics.text()

    asyncio.run(scenario())


def test_large_documents_are_read_for_the_log_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def read(text: str) -> Iterator[Any]:
        threads.append(threading.current_thread().name)
        return read_yaml_stream(text)

    monkeypatch.setattr(audit_events, "read_yaml_stream", read)

    async def scenario() -> None:
        async with audited("omitStages: [RequestReceived]\nrules: [{level: Request}]") as (api, lines):
            application = ApiApplication(api.server, Authenticator({}, without_credential=ADMINISTRATOR))
            async with listen(application, ListenAddress()) as url:
                client = HttpTransport(ConnectionConfig(server=url))
                body = b"metadata: {name: c}\nspec: {a: " + b"x" * SIZE_INLINE_MAX + b"}\n"
                headers = {"Content-Type": "application/yaml"}
                await client.send(ClientRequest(method="POST", path=CLAIMS, headers=headers, body=body))
                await client.close()
            assert lines.last["requestObject"]["metadata"] == {"name": "c"}

    asyncio.run(scenario())
    assert [name.startswith("dralloc-compute") for name in threads] == [True]
