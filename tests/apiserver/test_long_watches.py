"""The first events of a watch: many objects, or an expensive selector, take their turns as lists do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter

import pytest

from dralloc.api.resource_v1 import ResourceClaim
from dralloc.apiserver.http.application import ApiApplication
from dralloc.apiserver.http.exchange import Exchange
from dralloc.apiserver.http.flow_control import STEP_S, RequestFlow
from dralloc.apiserver.http.request_parser import RequestHead
from dralloc.apiserver.objects.selectors import LabelQuery
from dralloc.client.api_calls import ApiCalls
from dralloc.client.in_process_transport import InProcessTransport
from dralloc.client.known_resources import resource_for
from tests.support.api_server import TOKEN, api_application
from tests.support.idle_connection import IdleConnection
from tests.support.local_api import CLAIMS, claim_document

COUNT = 60
MATCHING_S = 0.001


@asynccontextmanager
async def application_with_claims() -> AsyncIterator[ApiApplication]:
    async with api_application() as application:
        calls = ApiCalls(InProcessTransport(application, token=TOKEN))
        for number in range(COUNT):
            await calls.create(resource_for(ResourceClaim), claim_document(f"c-{number}"), namespace="default")
        yield application


def watch_request(connection: IdleConnection) -> Exchange:
    credential = (b"authorization", f"Bearer {TOKEN}".encode())
    return Exchange(connection, RequestHead("GET", CLAIMS, b"watch=1&labelSelector=!old", [credential]))


class NotingConnection(IdleConnection):
    """Says when all first events are written."""

    def __init__(self) -> None:
        super().__init__()
        self.is_complete = asyncio.Event()

    def write(self, piece: bytes) -> None:
        super().write(piece)
        if self.written.count(b'"ADDED"') == COUNT:
            self.is_complete.set()


class LeavingConnection(IdleConnection):
    """Its client leaves when the response has begun."""

    def write(self, piece: bytes) -> None:
        super().write(piece)
        self.is_gone = True


@pytest.fixture
def slow_selector(monkeypatch: pytest.MonkeyPatch) -> None:
    def matches(_: LabelQuery, __: object) -> bool:
        end = perf_counter() + MATCHING_S
        while perf_counter() < end:
            pass
        return True

    monkeypatch.setattr(LabelQuery, "matches", matches)


@pytest.mark.usefixtures("slow_selector")
def test_first_events_are_sent_in_steps_that_are_charged_to_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[float] = []

    async def main() -> None:
        async with application_with_claims() as application:
            use = application.flow_control.use

            def noted(flow: RequestFlow, seconds: float) -> None:
                steps.append(seconds)
                use(flow, seconds)

            monkeypatch.setattr(application.flow_control, "use", noted)
            connection = NotingConnection()
            serving = asyncio.create_task(application.serve(watch_request(connection)))
            await connection.is_complete.wait()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(main())
    assert sum(steps) >= COUNT * MATCHING_S
    assert len([step for step in steps if step >= MATCHING_S]) >= COUNT * MATCHING_S / STEP_S / 3


@pytest.mark.usefixtures("slow_selector")
def test_a_client_that_leaves_before_the_first_events_is_no_error() -> None:
    async def main() -> bytes:
        async with application_with_claims() as application:
            connection = LeavingConnection()
            async with asyncio.timeout(20):
                await application.serve(watch_request(connection))
            return connection.written

    assert asyncio.run(main()).count(b"ADDED") < COUNT
