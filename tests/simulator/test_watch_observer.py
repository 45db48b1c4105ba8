"""The observer of watches follows the rules of the API itself: otherwise it reports faults that are its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from dralloc.client.transport import ClientRequest, ClientResponse, Stream, TransportError
from dralloc.testing.virtual_time import run_virtual
from tests.simulator.history import StoreHistory
from tests.simulator.watch_observer import WatchObserver

NO_STREAMS: tuple[Stream, ...] = ()


class RestoredDuringTheList:
    """A server whose store is restored while it answers the first list."""

    def __init__(self, history: StoreHistory) -> None:
        self._history = history
        self.watched_from: asyncio.Queue[str] = asyncio.Queue()

    async def send(self, request: ClientRequest) -> ClientResponse:
        if not self._history.epoch:
            self._history.restore({}, 1000)
        return ClientResponse(
            status=200, body=b'{"metadata":{"resourceVersion":"%d"},"items":[]}' % self._history.revision
        )

    @asynccontextmanager
    async def stream(self, request: ClientRequest) -> AsyncIterator[Stream]:
        self.watched_from.put_nowait(request.query["resourceVersion"])
        for stream in NO_STREAMS:
            yield stream
        raise TransportError("ended")

    async def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("seed", range(2))
def test_a_restore_during_a_list_is_no_start_of_a_watch(seed: int) -> None:
    async def first_watch() -> str:
        history = StoreHistory()
        server = RestoredDuringTheList(history)
        observer = WatchObserver(server, Random(seed), history, "/api/v1/pods", "/registry/pods/")
        running = asyncio.create_task(observer.run())
        revision = await server.watched_from.get()
        running.cancel()
        return revision

    assert run_virtual(first_watch()) == "1000"
