"""The limits on requests in flight: of all clients, and of one user."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from dralloc.primitives.errors import TooManyRequests
from dralloc.server.access.users import User
from dralloc.server.http import application
from dralloc.server.http.application import ApiApplication, RequestLimits
from dralloc.server.http.exchange import Exchange
from dralloc.server.http.messages import HttpRequest, HttpResponse
from dralloc.server.http.request_parser import RequestHead
from tests.support.api_server import api_application
from tests.support.idle_connection import IdleConnection
from tests.support.local_api import CLAIMS


@pytest.fixture(autouse=True)
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "REQUESTS_OF_USER_MAX", 2)
    monkeypatch.setattr(application, "REQUESTS_MAX", 3)


def test_one_user_leaves_room_for_others() -> None:
    limits = RequestLimits()
    for _ in range(2):
        limits.enter("/version", "flood")
    with pytest.raises(TooManyRequests) as refused:
        limits.enter("/version", "flood")
    assert refused.value.details is not None
    assert refused.value.details.retry_after_s == 1
    limits.enter("/version", "system:kube-scheduler")
    # All clients together have as many as there may be.
    with pytest.raises(TooManyRequests):
        limits.enter("/version", "other")
    # A supervisor would end a busy server that does not answer.
    limits.enter("/livez", "probe")
    limits.leave("probe")
    limits.leave("flood")
    limits.enter("/version", "other")


def exchange(connection: IdleConnection, token: str, query: bytes = b"") -> Exchange:
    return Exchange(connection, RequestHead("GET", CLAIMS, query, [(b"authorization", f"Bearer {token}".encode())]))


async def answer(application: ApiApplication, token: str) -> bytes:
    connection = IdleConnection()
    await application.serve(exchange(connection, token))
    return connection.written


def test_beyond_the_limit_a_client_is_told_to_come_again_and_watches_do_not_count() -> None:
    users = {name: User(name=name) for name in ("flood", "good")}

    async def main() -> None:
        async with api_application(users) as application:
            watches = [
                asyncio.create_task(application.serve(exchange(IdleConnection(), "flood", b"watch=1")))
                for _ in range(5)
            ]
            for _ in range(20):
                await asyncio.sleep(0)
            assert (await answer(application, "flood")).startswith(b"HTTP/1.1 200")

            held = asyncio.Event()
            handle = application._server.handle

            async def handle_later(request: HttpRequest) -> HttpResponse:
                if request.user.name == "flood":
                    await held.wait()
                return await handle(request)

            application._server.handle = handle_later  # type: ignore[method-assign]
            flood = [asyncio.create_task(answer(application, "flood")) for _ in range(2)]
            await asyncio.sleep(0)
            refused = await answer(application, "flood")
            assert refused.startswith(b"HTTP/1.1 429")
            assert b"\r\nretry-after: 1\r\n" in refused.lower()
            assert (await answer(application, "good")).startswith(b"HTTP/1.1 200")
            held.set()
            assert all(each.startswith(b"HTTP/1.1 200") for each in await asyncio.gather(*flood))
            for watch in watches:
                watch.cancel()
                with suppress(asyncio.CancelledError):
                    await watch

    asyncio.run(main())
