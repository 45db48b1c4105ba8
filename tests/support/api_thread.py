"""A real API server behind a socket, in a thread of its own, for tests of blocking commands.

    with api_thread(tmp_path) as api:
        run("get", "pods", "--kubeconfig", str(api.kubeconfig))
        assert api.requests == [("GET", "/api"), …]

Requests are recorded, and a test can replace answers, for example those of an old or refusing server.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dralloc.client.blocking_client import Client, connect
from dralloc.kube.codec import encode
from dralloc.primitives.clock import Clock
from dralloc.server.access.users import ADMINISTRATOR
from dralloc.server.http.application import ApiApplication
from dralloc.server.http.authentication import Authenticator
from dralloc.server.http.exchange import Exchange
from dralloc.server.http.listener import ListenAddress, listen
from dralloc.server.http.messages import HttpResponse
from dralloc.server.identity.kubeconfig import write_kubeconfig
from dralloc.server.server import ApiServer
from tests.support.api_server import TOKEN, api_server

START_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Said:
    """An answer that replaces the one of the server."""

    status: int
    document: Mapping[str, Any]


def refused(status: int, reason: str, message: str) -> Said:
    """A refusal in the form of Kubernetes."""
    return Said(status, {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": status})


@dataclass(eq=False)
class ApiThread:
    """A running server. `answers` by path replace those of the server."""

    url: str
    kubeconfig: Path
    client: Client
    requests: list[tuple[str, str]] = field(default_factory=list)
    answers: dict[str, Said] = field(default_factory=dict)

    def fill(self, documents: Iterable[dict[str, Any]]) -> None:
        """Creates the objects, with their status; nodes would write that of pods."""
        for document in documents:
            status = document.pop("status", None)
            self.client.create(document)
            if status and document["kind"] != "Pod":
                self.client.replace_status({**document, "status": status})

    @contextmanager
    def fresh(self) -> Iterator[ApiThread]:
        """For one test of several: without the requests and answers of those before it."""
        self.requests.clear()
        self.answers.clear()
        yield self
        self.answers.clear()


@contextmanager
def api_thread(directory: Path, clock: Clock | None = None) -> Iterator[ApiThread]:
    """A server inside the block, with a kubeconfig in the directory."""
    started: Future[str] = Future()
    loop = asyncio.new_event_loop()
    ending = asyncio.Event()
    kubeconfig = directory / "kubeconfig"
    requests: list[tuple[str, str]] = []
    answers: dict[str, Said] = {}

    async def serve() -> None:
        async with (
            api_server(clock=clock) as server,
            listen(_Overheard(server, requests, answers), ListenAddress()) as url,
        ):
            started.set_result(url)
            await ending.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    url = started.result(START_TIMEOUT_S)
    write_kubeconfig(kubeconfig, server=url, authority_pem=None, token=TOKEN)
    try:
        with connect(url, token=TOKEN) as client:
            yield ApiThread(url, kubeconfig, client, requests, answers)
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join()
        loop.close()


class _Overheard(ApiApplication):
    """Records requests and replaces answers."""

    def __init__(self, server: ApiServer, requests: list[tuple[str, str]], answers: Mapping[str, Said]) -> None:
        super().__init__(server, Authenticator({TOKEN: ADMINISTRATOR}))
        self._requests = requests
        self._answers = answers

    async def serve(self, exchange: Exchange) -> None:
        self._requests.append((exchange.method, exchange.path))
        said = self._answers.get(exchange.path)
        if said is None:
            await super().serve(exchange)
            return
        await exchange.respond(HttpResponse(said.status, encode(said.document)))
