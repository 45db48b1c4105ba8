"""What a request has used is free when it is answered, and not when garbage is collected: the server collects rarely."""

from __future__ import annotations

import asyncio
import gc
import json
import types
from collections.abc import Iterator

import pytest

from dralloc.client.http_transport import HttpTransport
from dralloc.client.kubeconfig import ConnectionConfig
from dralloc.client.transport import ClientRequest
from dralloc.server.access.users import ADMINISTRATOR
from dralloc.server.http.application import ApiApplication
from dralloc.server.http.authentication import Authenticator
from dralloc.server.http.listener import ListenAddress, listen
from tests.support.api_server import api_server

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LARGE = "x" * 1_200_000


def document(**members: object) -> bytes:
    return json.dumps({"metadata": {"name": "c"}, **members}).encode()


def post(body: bytes, media_type: str = "json") -> ClientRequest:
    return ClientRequest(
        method="POST", path=CONFIG_MAPS, headers={"Content-Type": f"application/{media_type}"}, body=body
    )


def patch(name: str, body: bytes, media_type: str) -> ClientRequest:
    headers = {"Content-Type": f"application/{media_type}"}
    query = {"fieldManager": "m"}
    return ClientRequest(method="PATCH", path=f"{CONFIG_MAPS}/{name}", query=query, headers=headers, body=body)


# In this order; the second makes the object of those after it.
REQUESTS = {
    "invalid": (post(document(data={"a": LARGE})), 422),
    "created": (post(document(data={"a": LARGE[:900_000]})), 201),
    "exists": (post(document(data={"a": LARGE[:900_000]})), 409),
    "not JSON": (post(document(data={"a": LARGE})[:-1]), 400),
    "of another type": (post(document(data={"a": 1, "b": LARGE})), 400),
    "invalid as YAML": (post(f"metadata: {{name: d}}\ndata: {{a: {LARGE}}}".encode(), "yaml"), 422),
    "not YAML": (post(f"metadata: {{name: d}}\ndata: {{a: {LARGE}".encode(), "yaml"), 400),
    "not protobuf": (post(b"k8s\0" + LARGE.encode(), "vnd.kubernetes.protobuf"), 400),
    "patch of nothing": (patch("missing", document(data={"a": LARGE}), "merge-patch+json"), 404),
    "patch that is refused": (patch("c", document(data={"b": LARGE}), "merge-patch+json"), 422),
    "patch that cannot be applied": (patch("c", b'[{"op":"test","path":"/a","value":"%b"}]' % LARGE.encode(), "json-patch+json"), 422),
    "apply that is refused": (patch("c", document(data={"b": LARGE}, apiVersion="v1", kind="ConfigMap"), "apply-patch+yaml"), 422),
    "list": (ClientRequest(method="GET", path=CONFIG_MAPS, query={"labelSelector": "a in ("}), 400),
}  # fmt: skip


@pytest.fixture
def garbage() -> Iterator[list[object]]:
    """What only a collection finds."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield gc.garbage
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def test_errors_leave_no_cycles(garbage: list[object]) -> None:
    async def main() -> dict[str, list[str]]:
        left: dict[str, list[str]] = {}
        async with api_server() as server:
            application = ApiApplication(server, Authenticator({}, without_credential=ADMINISTRATOR))
            async with listen(application, ListenAddress()) as url:
                client = HttpTransport(ConnectionConfig(server=url))
                for name, (request, status) in REQUESTS.items():
                    assert (await client.send(request)).status == status, name
                    gc.collect()
                    frames = [str(each.f_code) for each in garbage if isinstance(each, types.FrameType)]
                    left |= {name: frames} if frames else {}
                    garbage.clear()
                await client.close()
        return left

    assert not asyncio.run(main())
