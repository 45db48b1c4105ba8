"""Requests that are small and yet long to answer leave the event loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from dralloc.access.users import ADMINISTRATOR
from dralloc.apiserver.http import compute_threads
from dralloc.apiserver.http.application import ApiApplication
from dralloc.apiserver.http.authentication import Authenticator
from dralloc.apiserver.http.listener import ListenAddress, listen
from dralloc.client.http_transport import HttpTransport
from dralloc.client.kubeconfig import ConnectionConfig
from dralloc.client.transport import ClientRequest
from tests.support.api_server import api_server
from tests.support.local_api import CLAIMS, claim_document

CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
JSON_PATCH = {"Content-Type": "application/json-patch+json"}


def device_class(expression: str) -> bytes:
    selectors = [{"cel": {"expression": expression}}]
    return json.dumps({"metadata": {"generateName": "c-"}, "spec": {"selectors": selectors}}).encode()


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
        ClientRequest(method="PATCH", path=f"{CLAIMS}/c", headers=JSON_PATCH, body=json.dumps(DOUBLING).encode()),
        True,
        id="patch that copies",
    ),
    pytest.param(
        ClientRequest(method="PATCH", path=f"{CLAIMS}/c", headers=JSON_PATCH, body=json.dumps(DOUBLING[:1]).encode()),
        False,
        id="patch that does not copy",
    ),
]


@pytest.mark.parametrize(("request_", "leaves"), REQUESTS)
def test_small_requests_that_take_long(request_: ClientRequest, leaves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = 0
    run = compute_threads.ComputeThreads.run

    async def counted(self: Any, user: str, work: Callable[[], Any]) -> Any:
        nonlocal threads
        threads += 1
        return await run(self, user, work)

    monkeypatch.setattr(compute_threads.ComputeThreads, "run", counted)

    async def main() -> None:
        async with api_server() as server:
            application = ApiApplication(server, Authenticator({}, without_credential=ADMINISTRATOR))
            async with listen(application, ListenAddress()) as url:
                client = HttpTransport(ConnectionConfig(server=url))
                body = json.dumps(claim_document("c")).encode()
                assert (await client.send(ClientRequest(method="POST", path=CLAIMS, body=body))).status == 201
                assert not threads
                assert (await client.send(request_)).status < 500
                await client.close()

    asyncio.run(main())
    assert bool(threads) is leaves
