"""Logs of pods at the API server: who may read them, of which container, and clear refusals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dralloc.primitives.features import FeatureGates
from dralloc.server.access.users import User
from dralloc.server.server import ApiServer
from dralloc.server.store.memory import MemoryStore
from dralloc.system_clock import SystemClock
from tests.support.local_api import PODS, LocalApi, pod_document, with_api


async def make_pod(api: LocalApi, *, node: str = "", containers: tuple[str, ...] = ("c",)) -> None:
    document = pod_document()
    document["spec"]["containers"] = [{"name": name, "image": "x"} for name in containers]
    if node:
        document["spec"]["nodeName"] = node
    await api.create(PODS, document)


async def make_node(api: LocalApi, name: str = "n", **status: Any) -> None:
    await api.create("/api/v1/nodes", {"metadata": {"name": name}, "status": status})


@with_api
async def test_a_simulated_pod_has_no_logs_and_the_refusal_says_what_to_do(api: LocalApi) -> None:
    await make_node(api, addresses=[{"type": "InternalIP", "address": "127.0.0.1"}])
    await make_pod(api, node="n")
    answer = await api.call("GET", f"{PODS}/p/log")
    assert (answer.code, answer.document["reason"]) == (400, "BadRequest")
    assert "dralloc node" in answer.document["message"]


@with_api
async def test_a_server_without_certificates_says_so(api: LocalApi) -> None:
    endpoints = {"kubeletEndpoint": {"Port": 10250}}
    await make_node(api, addresses=[{"type": "InternalIP", "address": "127.0.0.1"}], daemonEndpoints=endpoints)
    await make_pod(api, node="n")
    answer = await api.call("GET", f"{PODS}/p/log")
    assert (answer.code, "--insecure-http" in answer.document["message"]) == (400, True)


@with_api
async def test_a_pod_without_a_node_has_an_empty_log(api: LocalApi) -> None:
    await make_pod(api)
    assert (await api.call("GET", f"{PODS}/p/log")).code == 200
    assert (await api.call("GET", f"{PODS}/missing/log")).code == 404


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        ({}, 400, "choose one of: [a b]"),
        ({"container": "z"}, 400, "container z is not valid for pod p"),
        ({"container": "a", "tailLines": "-1"}, 422, "tailLines"),
        ({"container": "a", "limitBytes": "0"}, 422, "limitBytes"),
        ({"container": "a", "sinceSeconds": "0"}, 422, "sinceSeconds"),
        ({"container": "a", "sinceSeconds": "1", "sinceTime": "2026-01-01T00:00:00Z"}, 422, "at most one of"),
        ({"container": "a", "tailLines": "many"}, 400, "tailLines"),
    ],
)
def test_options_of_logs_are_checked(query: dict[str, str], code: int, words: str) -> None:
    @with_api
    async def main(api: LocalApi) -> None:
        await make_pod(api, containers=("a", "b"))
        answer = await api.call("GET", f"{PODS}/p/log", **query)
        assert (answer.code, words in answer.document["message"]) == (code, True)

    main()


@with_api
async def test_a_pod_has_no_streams(api: LocalApi) -> None:
    await make_pod(api)
    for part in ("exec", "attach", "portforward"):
        for method in ("GET", "POST"):
            answer = await api.call(method, f"{PODS}/p/{part}")
            assert answer.code == 404
            assert f"pods/{part}" in answer.document["message"]
            assert "is gone since 0.2.0" in answer.document["message"]


@pytest.mark.parametrize(
    ("rule", "method", "part", "allowed"),
    [
        (("pods/log", "get"), "GET", "log", True),
        (("pods", "get"), "GET", "log", False),
        (("pods", "update"), "PUT", "ephemeralcontainers", False),
        (("pods/ephemeralcontainers", "update"), "PUT", "ephemeralcontainers", True),
    ],
)
def test_each_subresource_needs_its_own_right(rule: tuple[str, str], method: str, part: str, allowed: bool) -> None:
    async def main() -> None:
        clock = SystemClock()
        async with MemoryStore() as store:
            server = ApiServer(store, clock=clock, gates=FeatureGates.defaults(), enforces_roles=True)
            await server.start()
            try:
                api = LocalApi(server)
                await make_pod(api)
                group = "rbac.authorization.k8s.io"
                roles, bindings = (
                    f"/apis/{group}/v1/namespaces/default/{plural}" for plural in ("roles", "rolebindings")
                )
                rules = [{"apiGroups": [""], "resources": [rule[0]], "verbs": [rule[1]]}]
                await api.create(roles, {"metadata": {"name": "r"}, "rules": rules})
                subject = {"kind": "User", "apiGroup": group, "name": "ann"}
                ref = {"apiGroup": group, "kind": "Role", "name": "r"}
                await api.create(bindings, {"metadata": {"name": "r"}, "roleRef": ref, "subjects": [subject]})
                ann = LocalApi(server, User(name="ann", groups=("system:authenticated",)))
                answer = await ann.call(method, f"{PODS}/p/{part}", pod_document() if method == "PUT" else None)
                assert (answer.code != 403) == allowed
            finally:
                await server.stop()

    asyncio.run(main())
