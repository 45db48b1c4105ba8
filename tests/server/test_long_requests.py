"""Requests for much: thousands of objects are answered in steps, and what stands for too much is refused."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.transport import ClientRequest
from dralloc.server.http.application import ApiApplication
from dralloc.server.http.exchange import Exchange
from dralloc.server.http.request_parser import RequestHead
from tests.support.api_server import TOKEN, api_application
from tests.support.idle_connection import IdleConnection
from tests.support.local_api import AS_TABLE
from tests.support.loop_steps import longest_step

PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
YAML = {"Content-Type": "application/yaml"}
PROTOBUF = {"Content-Type": "application/vnd.kubernetes.protobuf"}
COUNT = 800


@pytest.fixture
def without_garbage_collections() -> Iterator[None]:
    """They would be a part of what is measured, and take as long as the tests that ran before have left objects."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@asynccontextmanager
async def application_with_pods() -> AsyncIterator[ApiApplication]:
    async with api_application() as application:
        client = InProcessTransport(application, token=TOKEN)
        for number in range(COUNT):
            env = [{"name": f"V{index}", "value": "x"} for index in range(20)]
            containers = [{"name": "c", "image": "x", "env": env}]
            document = {"metadata": {"name": f"p{number}"}, "spec": {"containers": containers}}
            body = json.dumps(document).encode()
            assert (await client.send(ClientRequest(method="POST", path=PODS, body=body))).status == 201
        yield application


class NotingConnection(IdleConnection):
    """Says when the last pod is written."""

    def __init__(self) -> None:
        super().__init__()
        self.is_complete = asyncio.Event()

    def write(self, piece: bytes) -> None:
        super().write(piece)
        if f"p{COUNT - 1}".encode() in piece:
            self.is_complete.set()


class LeavingConnection(IdleConnection):
    """Its client leaves when the response has begun."""

    def write(self, piece: bytes) -> None:
        super().write(piece)
        self.is_gone = True


def list_request(connection: IdleConnection, query: bytes, accept: str) -> Exchange:
    headers = [(b"authorization", f"Bearer {TOKEN}".encode()), (b"accept", accept.encode())]
    return Exchange(connection, RequestHead("GET", PODS, query, headers))


@pytest.mark.usefixtures("without_garbage_collections")
@pytest.mark.parametrize(
    ("query", "accept"),
    [
        pytest.param(b"", AS_TABLE, id="table"),
        pytest.param(b"", "application/vnd.kubernetes.protobuf", id="protobuf"),
        pytest.param(b"fieldSelector=spec.nodeName!%3Dn", "application/json", id="field selector"),
        pytest.param(b"watch=1", AS_TABLE, id="watch of a table"),
        pytest.param(b"watch=1", "application/vnd.kubernetes.protobuf;stream=watch", id="watch of protobuf"),
    ],
)
@pytest.mark.slow
def test_other_requests_are_answered_while_a_long_list_is_made(query: bytes, accept: str) -> None:
    async def main() -> tuple[float, float]:
        async with application_with_pods() as application:
            connection = NotingConnection()
            with longest_step() as longest:
                started = time.thread_time()
                serving = asyncio.create_task(application.serve(list_request(connection, query, accept)))
                await connection.is_complete.wait()
                taken_s = time.thread_time() - started
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
        return longest.seconds, taken_s

    longest_s, taken_s = asyncio.run(main())
    assert longest_s < taken_s / 3


def test_a_client_that_leaves_before_the_first_events_of_a_watch_is_no_error() -> None:
    async def main() -> None:
        async with application_with_pods() as application:
            connection = LeavingConnection()
            serving = asyncio.create_task(application.serve(list_request(connection, b"watch=1", "application/json")))
            while not connection.is_gone:
                await asyncio.sleep(0)
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(main())


def member(number: int, content: bytes) -> bytes:
    """A member of a protobuf message."""
    length = len(content)
    return bytes((number << 3 | 2, length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14)) + content


# The metadata of a lease, and entries of managed fields that have a time only.
TIMES = member(1, b"".join((member(1, b"a"), b"\x8a\x01\x04\x22\x02\x08\x01" * 250_000)))


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        pytest.param(
            YAML, b'metadata: {name: a}\na: &a "' + b"\\x01" * 15_000 + b'"\nb: [' + b"*a," * 90 + b"]", id="YAML"
        ),
        pytest.param(PROTOBUF, b"k8s\0" + member(1, b"\x0a\x02v1\x12\x09ConfigMap") + member(2, TIMES), id="protobuf"),
    ],
)
def test_what_stands_for_more_than_a_large_request_is_refused(headers: dict[str, str], body: bytes) -> None:
    async def main() -> int:
        async with api_application() as application:
            sent = ClientRequest(method="POST", path=CONFIG_MAPS, headers=headers, body=body)
            return (await InProcessTransport(application, token=TOKEN).send(sent)).status

    assert asyncio.run(main()) == 413
