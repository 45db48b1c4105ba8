"""One API server and its store, in a simulated process of their own that can be killed and started again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from dralloc.client.transport import ClientRequest
from dralloc.primitives.features import FeatureGates
from dralloc.server.access.users import ADMINISTRATOR
from dralloc.server.http.application import ApiApplication
from dralloc.server.http.authentication import Authenticator
from dralloc.server.http.messages import HttpResponse
from dralloc.server.server import ApiServer
from dralloc.server.store.errors import StoreError
from dralloc.server.store.interface import Store
from dralloc.testing.api_server import running_api_server
from dralloc.testing.virtual_time import SimulatedProcess, VirtualClock
from tests.simulator.network import NoAnswer
from tests.simulator.simulated_gates import GATES
from tests.simulator.store_backends import StoreBackend

TOKEN: Final = "simulation"
AUTHORIZATION: Final = {b"authorization": f"Bearer {TOKEN}".encode(), b"accept": b"application/json"}
RETRY_S: Final = 1.0

_logger = logging.getLogger(__name__)


class SimulatedServer:
    def __init__(self, name: str, backend: StoreBackend, new_uid: Callable[[], str]) -> None:
        self.name = name
        self.process = SimulatedProcess(name)
        self.process.dead = True
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.gates = GATES
        self.ready = asyncio.Event()
        self._backend = backend
        self._new_uid = new_uid
        self._application: ApiApplication | None = None

    async def answer(self, request: ClientRequest) -> HttpResponse:
        if self._application is None:
            raise NoAnswer(f"{self.name} does not listen yet")
        headers = {name.lower().encode(): text.encode() for name, text in request.headers.items()}
        return await self._application.answer(
            request.method, request.path, request.query, AUTHORIZATION | headers, request.body
        )

    def start(self, gates: FeatureGates) -> None:
        self.gates = gates
        self.process = SimulatedProcess(self.name)
        self.process.start(self._serve())

    async def kill(self) -> None:
        """End the server between any two of its writes; every watch breaks."""
        self._application = None
        self.ready.clear()
        self._backend.on_killed()
        await self.process.kill()

    async def _serve(self) -> None:
        """Like the program and a supervisor that starts it again if it cannot start."""
        while True:
            try:
                await self._serve_once(await self._backend.open(self.name))
            except StoreError as error:
                _logger.warning("%s cannot start: %s", self.name, error)
                await asyncio.sleep(RETRY_S)

    async def _serve_once(self, store: Store) -> None:
        async with running_api_server(
            ApiServer(store, clock=self.clock, gates=self.gates, new_uid=self._new_uid)
        ) as server:
            self._application = ApiApplication(server, Authenticator({TOKEN: ADMINISTRATOR}))
            self.ready.set()
            await asyncio.Event().wait()
