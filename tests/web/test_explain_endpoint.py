"""The explain endpoint: the answers of `dralloc explain`, with the caller's permissions, without blocking the server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dralloc.primitives.errors import Forbidden
from dralloc.primitives.features import FeatureGates
from dralloc.server.access.users import ADMINISTRATOR, User
from dralloc.server.http.messages import HttpRequest, HttpResponse
from dralloc.server.http.statuses import status_of, status_response
from dralloc.server.server import ApiServer
from dralloc.web import explain_endpoint
from dralloc.web.explain_endpoint import ExplainEndpoint
from tests.support.api_server import api_server
from tests.support.workloads import existing, pod

RESOURCE = "/apis/resource.k8s.io/v1"
# May read everything but what a test takes away.
READER = User(name="reader")

Document = dict[str, Any]
Talk = Callable[[ApiServer], Awaitable[None]]


def run(talk: Talk) -> None:
    async def main() -> None:
        async with explaining_server() as server:
            await talk(server)

    asyncio.run(main())


@asynccontextmanager
async def explaining_server() -> AsyncIterator[ApiServer]:
    async with api_server(extensions=(ExplainEndpoint(FeatureGates.defaults()),)) as server:
        for path, document in OBJECTS:
            assert (await send(server, path, "POST", document)).status == 201
        yield server


async def send(
    server: ApiServer, path: str, method: str = "GET", body: Document | None = None, user: User = ADMINISTRATOR
) -> HttpResponse:
    content = json.dumps(body).encode() if body is not None else b""
    return await server.handle(HttpRequest(method, path, {}, {}, content, user))


async def ask(server: ApiServer, what: str, user: User = ADMINISTRATOR) -> tuple[int, Document]:
    response = await send(server, f"/dralloc/v1/explain/{what}", user=user)
    return response.status, json.loads(response.body)


def _claim(name: str, count: int) -> Document:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": count}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": {"requests": [request]}}}


SLICE = {
    "metadata": {"name": "n1"},
    "spec": {
        "driver": "gpu.example.com",
        "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}],
    },
}
OBJECTS: list[tuple[str, Document]] = [
    (
        "/api/v1/nodes",
        {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "9"}}},
    ),
    (f"{RESOURCE}/deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}}),
    (f"{RESOURCE}/resourceslices", SLICE),
    (f"{RESOURCE}/namespaces/default/resourceclaims", _claim("one", 1)),
    (f"{RESOURCE}/namespaces/default/resourceclaims", _claim("two", 2)),
    ("/api/v1/namespaces/default/pods", pod("fits", {"gpu": existing("one")})),
    ("/api/v1/namespaces/default/pods", pod("large", {"gpu": existing("two")})),
]


# --- Answers --------------------------------------------------------------------------------------------------------


def test_a_pod_and_a_claim_are_explained() -> None:
    async def talk(server: ApiServer) -> None:
        for what, subject, verdict in (
            ("pods/default/fits", "pod default/fits", "Fits"),
            ("claims/default/one", "claim default/one", "Fits"),
            ("pods/default/large", "pod default/large", "DoesNotFit"),
            ("claims/default/two/", "claim default/two", "DoesNotFit"),
        ):
            status, answer = await ask(server, what)
            assert status == 200
            assert answer.keys() == {"explanation", "text", "notes"}
            explanation = answer["explanation"]
            assert (explanation["subject"], explanation["verdict"]) == (subject, verdict)
            assert answer["text"].splitlines()[0] == explanation["message"]
            assert answer["notes"] == []

    run(talk)


@pytest.mark.parametrize(
    ("what", "status", "message"),
    [
        ("pods/default/nothing", 404, "no pod default/nothing in the cluster"),
        ("claims/elsewhere/one", 404, "did you mean default/one?"),
        ("pods/default", 404, "/dralloc/v1/explain/pods|claims|podgroups/NAMESPACE/NAME"),
        ("nodes/default/n1", 404, "/dralloc/v1/explain/pods|claims|podgroups/NAMESPACE/NAME"),
        ("pods//fits", 404, "/dralloc/v1/explain/pods|claims|podgroups/NAMESPACE/NAME"),
        ("pods/default/fits/status", 404, "/dralloc/v1/explain/pods|claims|podgroups/NAMESPACE/NAME"),
    ],
)
def test_unknown_names_and_paths(what: str, status: int, message: str) -> None:
    async def talk(server: ApiServer) -> None:
        found, answer = await ask(server, what)
        assert (found, answer["kind"]) == (status, "Status")
        assert message in answer["message"]

    run(talk)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_only_get_is_supported(method: str) -> None:
    async def talk(server: ApiServer) -> None:
        assert (await send(server, "/dralloc/v1/explain/pods/default/fits", method)).status == 405

    run(talk)


def test_a_server_without_the_endpoint_has_no_such_path() -> None:
    async def main() -> None:
        async with api_server() as server:
            assert (await send(server, "/dralloc/v1/explain/pods/default/fits")).status == 404

    asyncio.run(main())


# --- The story of a claim -------------------------------------------------------------------------------------------

EVENT = {
    "metadata": {"name": "one.1", "namespace": "default"},
    "involvedObject": {"kind": "ResourceClaim", "namespace": "default", "name": "gone", "uid": "u"},
    "reason": "Deleted",
    "message": "deleted",
    "firstTimestamp": "2026-01-01T00:00:00Z",
    "lastTimestamp": "2026-01-01T00:00:00Z",
    "type": "Normal",
    "count": 1,
}
EVENTS = "/api/v1/namespaces/default/events"


def test_a_claims_story_is_told_as_long_as_its_events_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(server: ApiServer) -> None:
        assert (await send(server, EVENTS, "POST", EVENT)).status == 201
        for name, want in (("one", ["Created"]), ("gone", ["Deleted"]), ("never", []), ("a,b=c", [])):
            response = await send(server, f"/dralloc/v1/story/claims/default/{name}")
            assert response.status == 200
            assert [step["reason"] for step in json.loads(response.body)["steps"]] == want
        assert (await send(server, "/dralloc/v1/story/claims/default/one", "POST")).status == 405
        status, answer = await ask(server, "claims/default/gone")
        assert (status, answer["explanation"]["verdict"]) == (200, "Deleted")
        assert answer["text"].splitlines()[0] == "claim default/gone does not exist any more"
        deny(server, monkeypatch, EVENTS)
        assert (await send(server, "/dralloc/v1/story/claims/default/one", user=READER)).status == 403

    run(talk)


# --- Permissions ----------------------------------------------------------------------------------------------------


def deny(server: ApiServer, monkeypatch: pytest.MonkeyPatch, *paths: str) -> list[HttpRequest]:
    """Makes the server refuse these paths to the reader; returns the requests that it gets."""
    handle, requests = server.handle, list[HttpRequest]()

    async def guarded(request: HttpRequest) -> HttpResponse:
        requests.append(request)
        if request.user == READER and request.path in paths:
            return status_response(status_of(Forbidden(f"reader may not read {request.path}")))
        return await handle(request)

    monkeypatch.setattr(server, "handle", guarded)
    return requests


def test_objects_are_read_as_the_caller_and_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(server: ApiServer) -> None:
        requests = deny(server, monkeypatch)
        assert (await ask(server, "pods/default/fits", READER))[0] == 200
        assert {(request.method, request.user.name) for request in requests} == {("GET", "reader")}

    run(talk)


def test_a_caller_who_may_not_list_what_every_answer_needs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(server: ApiServer) -> None:
        deny(server, monkeypatch, "/api/v1/pods", "/api/v1/namespaces/default/pods")
        status, answer = await ask(server, "pods/default/fits", READER)
        assert (status, answer["reason"]) == (403, "Forbidden")
        assert "cannot read pods: reader may not read /api/v1/pods" in answer["message"]
        assert (await ask(server, "pods/default/fits"))[0] == 200

    run(talk)


def test_what_the_caller_may_not_read_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(server: ApiServer) -> None:
        deny(server, monkeypatch, "/api/v1/pods", f"{RESOURCE}/devicetaintrules")
        status, answer = await ask(server, "pods/default/fits", READER)
        assert status == 200
        assert answer["notes"] == [
            f"cannot read devicetaintrules: reader may not read {RESOURCE}/devicetaintrules",
            "pods were read in namespace default only (no permission for others)",
        ]

    run(talk)


# --- Bounds ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def stuck_engine(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[str]]:
    """Explanations that do not end inside the block; the names that were asked about."""
    begun, end = list[str](), threading.Event()

    def wait(_: object, kind: str, namespace: str, name: str, gates: object) -> bytes:
        begun.append(name)
        assert end.wait(60)
        return b"{}"

    monkeypatch.setattr(explain_endpoint, "_explain", wait)
    try:
        yield begun
    finally:
        end.set()


def test_one_explanation_at_a_time_and_other_requests_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(server: ApiServer) -> None:
        async with asyncio.TaskGroup() as group, stuck_engine(monkeypatch) as begun:
            asking = [group.create_task(ask(server, f"pods/default/{name}")) for name in ("fits", "large")]
            while not begun:
                await asyncio.sleep(0.01)
            for _ in range(20):
                assert (await send(server, "/api/v1/pods")).status == 200
            assert begun == ["fits"]
            assert not any(task.done() for task in asking)
        assert [task.result()[0] for task in asking] == [200, 200]

    run(talk)


def test_too_many_questions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_endpoint, "WAITING_MAX", 2)

    async def talk(server: ApiServer) -> None:
        async with asyncio.TaskGroup() as group, stuck_engine(monkeypatch):
            for _ in range(2):
                group.create_task(ask(server, "pods/default/fits"))
            await asyncio.sleep(0)
            assert (await ask(server, "pods/default/fits"))[0] == 429

    run(talk)


def test_an_explanation_that_takes_too_long_is_given_up_and_keeps_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain_endpoint, "ANSWERS_WITHIN_S", 0.2)

    async def talk(server: ApiServer) -> None:
        async with stuck_engine(monkeypatch) as begun:
            assert (await ask(server, "pods/default/fits"))[0] == 504
            assert (await ask(server, "pods/default/large"))[0] == 504
            assert begun == ["fits"], "the second one had no thread"

    run(talk)


def test_fragmentation_is_for_callers_who_may_list_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(server: ApiServer) -> None:
        deny(server, monkeypatch, f"{RESOURCE}/resourceslices")
        assert (await send(server, "/dralloc/v1/fragmentation", user=READER)).status == 403
        answer = await send(server, "/dralloc/v1/fragmentation")
        assert (answer.status, json.loads(answer.body)) == (200, {"samples": []})

    run(talk)


def test_an_explanation_that_takes_too_long_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread cannot be stopped: one claim with costly selectors kept all others from being explained."""

    async def talk(server: ApiServer) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(explain_endpoint, "WORK_MAX", 0)
            status, answer = await ask(server, "pods/default/large")
            assert (status, answer["reason"]) == (504, "Timeout")
        assert (await ask(server, "pods/default/large"))[0] == 200

    run(talk)
