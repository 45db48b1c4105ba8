"""The longest step of the server's event loop for each expensive request, in processor time: others wait for at least so long.

Unlike the figures of `hostile_clients`, these are the same on a busy machine. The server runs in this process on asyncio's own loop, whose
steps can be measured; the client is a thread.
"""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path

from bench.expensive_requests import CLAIMS, PODS, REQUESTS, TENANT, claim, request, stored
from bench.measurement import Figure, benchmark
from dralloc.access.users import ADMINS, User
from dralloc.apiserver.server_process import ServerSettings, run_server
from dralloc.assembly.gc_settings import collect_rarely
from tests.support.loop_steps import LongestStep, longest_step

TARGET_MS = 100.0
STORED = 3_000
# What a request leaves to be done is over when the process has used this part of the processor for so long.
QUIET_SHARE = 0.1
QUIET_S = 0.5
WAIT_MAX_S = 60.0
USERS = {"bad": User(name="bad", groups=(ADMINS,)), TENANT: User(name=TENANT)}


@benchmark("loop_steps")
def measure_loop_steps() -> Iterator[Figure]:
    yield from _figures(())


def _figures(names: tuple[str, ...]) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as directory:
        yield from asyncio.run(_measure(Path(directory), names))


async def _measure(directory: Path, names: tuple[str, ...]) -> list[Figure]:
    settings = ServerSettings(data_dir=directory, port=0, insecure_http=True, tokens=USERS)
    async with run_server(settings) as server:
        # As `dralloc apiserver` has them.
        gc.set_threshold(100_000, 20, 100)
        collect_rarely()
        with longest_step() as longest:
            client = Client(int(server.url.rsplit(":", 1)[1]), longest)
            return await asyncio.to_thread(client.measure, names)


class Client:
    def __init__(self, port: int, longest: LongestStep) -> None:
        self._port = port
        self._longest = longest

    def measure(self, names: tuple[str, ...]) -> list[Figure]:
        self._fill()
        return [Figure(name, self._step_ms(REQUESTS[name]()), "ms", TARGET_MS) for name in names or REQUESTS]

    def _fill(self) -> None:
        """Store what the requests need, and have every index of the server started."""
        claims = [{"name": "c", "resourceClaimName": "c-00000"}]
        spec = {"containers": [{"name": "c", "image": "x"}], "resourceClaims": claims}
        pod = {"metadata": {"name": "small"}, "spec": spec}
        node = ("impersonate-user: system:node:n", "impersonate-group: system:nodes")
        for number in range(STORED):
            assert self._send(request("POST", CLAIMS, "bad", claim(f"c-{number:05}"))) == 201
        for path, document in [(PODS, pod), *stored()]:
            assert self._send(request("POST", path, "bad", json.dumps(document).encode())) == 201, path
        bind = request("POST", f"{PODS}/small/binding", "bad", b'{"target":{"kind":"Node","name":"n"}}')
        assert self._send(bind) == 201
        assert self._send(request("GET", f"{PODS}/small", "bad", b"", *node)) == 200

    def _step_ms(self, content: bytes) -> float:
        self._settle()
        self._longest.seconds = 0.0
        self._send(content)
        self._settle()
        return self._longest.seconds * 1000

    def _settle(self) -> None:
        """Wait until the server has nothing more to do."""
        end = time.perf_counter() + WAIT_MAX_S
        calm_since, used = time.perf_counter(), time.process_time()
        while calm_since + QUIET_S > (now := time.perf_counter()) < end:
            time.sleep(QUIET_S / 5)
            before, used = used, time.process_time()
            if used - before > QUIET_SHARE * (time.perf_counter() - now):
                calm_since = time.perf_counter()

    def _send(self, content: bytes) -> int:
        with socket.create_connection(("127.0.0.1", self._port), timeout=WAIT_MAX_S) as connection:
            connection.sendall(content)
            response = HTTPResponse(connection)
            response.begin()
            response.read()
            return response.status


if __name__ == "__main__":
    for figure in _figures(tuple(sys.argv[1:])):
        print(f"{figure.value:8.1f} ms  {figure.name}")
