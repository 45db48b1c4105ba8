"""Retries of requests, and nodes that start before their API server."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from dralloc.client.async_client import connect_async
from dralloc.client.transport import TransportError
from dralloc.client.work_queue import Backoff
from dralloc.kube.core_v1 import Node
from dralloc.node.timings import retry_until_done
from dralloc.primitives.errors import ApiError, Forbidden, ServiceUnavailable, TooManyRequests
from dralloc.server.http.listener import ListenAddress, listen
from dralloc.server.identity.kubeconfig import write_kubeconfig
from tests.support.api_server import TOKEN, api_application
from tests.support.node_cluster import short_directory
from tests.support.node_process import kill
from tests.support.ports import free_port

AT_ONCE = Backoff(first_s=0.0, most_s=0.0)
DEADLINE_S = 60.0


class Answers:
    """Work that raises these failures one after another and then succeeds."""

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)
        self.tries = 0

    async def __call__(self) -> str:
        self.tries += 1
        if self._failures:
            raise self._failures.pop(0)
        return "done"


def test_transient_errors_are_retried_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    work = Answers(
        TransportError("no answer"), ServiceUnavailable("not now"), TooManyRequests("later"), ApiError("broken")
    )
    assert asyncio.run(retry_until_done("not there yet", work, AT_ONCE)) == "done"
    assert [record.getMessage() for record in caplog.records] == [
        f"not there yet: {reason}; retrying in 0.0 s" for reason in ("no answer", "not now", "later", "broken")
    ]


def test_a_refusal_is_raised_unless_despite_refusals() -> None:
    with pytest.raises(Forbidden):
        asyncio.run(retry_until_done("not there yet", Answers(Forbidden("no")), AT_ONCE))
    assert (
        asyncio.run(retry_until_done("not there yet", Answers(Forbidden("no")), AT_ONCE, despite_refusals=True))
        == "done"
    )


@asynccontextmanager
async def node_command(*options: str) -> AsyncIterator[Process]:
    command = (sys.executable, "-m", "dralloc", "node", *options)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    try:
        yield process
    finally:
        await kill(process)


async def says(stream: asyncio.StreamReader | None, text: str) -> None:
    assert stream is not None
    async with asyncio.timeout(DEADLINE_S):
        async for line in stream:
            if text in line.decode():
                return
    raise AssertionError(f"the output ended without {text!r}")


@pytest.mark.slow
def test_nodes_wait_for_their_api_server() -> None:
    async def scenario(directory: Path) -> None:
        port = free_port()
        kubeconfig = directory / "kubeconfig"
        write_kubeconfig(kubeconfig, server=f"http://127.0.0.1:{port}", authority_pem=None, token=TOKEN)
        options = ("--kubeconfig", str(kubeconfig))
        async with AsyncExitStack() as stack:
            node = await stack.enter_async_context(
                node_command(*options, "--name", "node-a", "--plugin-dir", str(directory))
            )
            fleet = await stack.enter_async_context(node_command(*options, "--fake", "2"))
            await says(node.stderr, "cannot register node node-a: no answer from")
            await says(fleet.stderr, "cannot publish all of 2 nodes: no answer from")
            application = await stack.enter_async_context(api_application())
            url = await stack.enter_async_context(listen(application, ListenAddress(port=port)))
            await says(node.stdout, "node node-a is ready")
            await says(fleet.stdout, "2 nodes are ready")
            client = await stack.enter_async_context(connect_async(url, token=TOKEN))
            assert {item.metadata.name for item in await client.list(Node)} == {"node-a", "fake-0", "fake-1"}

    with short_directory() as directory:
        asyncio.run(scenario(directory))
