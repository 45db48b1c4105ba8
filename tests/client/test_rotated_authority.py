"""A client goes on after the certificate authority of its server was replaced: it reads its kubeconfig again, also its own certificate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from dralloc.client.api_calls import ApiCalls
from dralloc.client.http_transport import HttpTransport
from dralloc.client.known_resources import resource_for
from dralloc.client.kubeconfig import read_kubeconfig
from dralloc.client.transport import TransportError
from dralloc.kube.core_v1 import Node
from dralloc.server.http.listener import ListenAddress, listen
from dralloc.server.identity.certificates import ensure_certificates
from tests.support.api_server import TOKEN, api_application
from tests.support.ports import free_port

pytestmark = pytest.mark.slow
NODES = resource_for(Node)
# Of an administrator.
CERTIFICATE, KEY = "kubelet-client.crt", "kubelet-client.key"
BY_TOKEN = {"token": TOKEN}
BY_CERTIFICATE = {"client-certificate": CERTIFICATE, "client-key": KEY}


@asynccontextmanager
async def client_of_an_earlier_authority(directory: Path, user: dict[str, str]) -> AsyncIterator[HttpTransport]:
    """A client that has read its kubeconfig, and the files that this names, before the authority of its server was replaced."""
    now = datetime.now(UTC)
    ensure_certificates(directory / "tls", [], now)
    give(directory, "ca.crt", CERTIFICATE, KEY)
    port = free_port()
    client = HttpTransport(read_kubeconfig(kubeconfig(directory, f"https://127.0.0.1:{port}", user)))
    for file in (directory / "tls").iterdir():
        file.unlink()
    files = ensure_certificates(directory / "tls", [], now)
    try:
        async with api_application() as application, listen(application, ListenAddress(port=port, tls=files)):
            yield client
    finally:
        await client.close()


def kubeconfig(directory: Path, url: str, user: dict[str, str]) -> Path:
    document = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url, "certificate-authority": "ca.crt"}}],
        "users": [{"name": "u", "user": user}],
    }
    path = directory / "config"
    path.write_text(yaml.safe_dump(document))
    return path


async def refused(call: Coroutine[Any, Any, None], reason: str = "may not accept the client certificate") -> None:
    with pytest.raises(TransportError, match=reason):
        await call


def give(directory: Path, *names: str) -> None:
    """Replace the client's files by those that the server has made."""
    for name in names:
        (directory / name).write_bytes((directory / "tls" / name).read_bytes())


async def requests(client: HttpTransport) -> None:
    """Concurrent ones: one reads the authorities, all use them. Returns or raises when all have ended."""
    outcomes = await asyncio.gather(*(ApiCalls(client).list_all(NODES) for _ in range(5)), return_exceptions=True)
    for failure in outcomes:
        if isinstance(failure, BaseException):
            raise failure


async def write(client: HttpTransport) -> None:
    await ApiCalls(client).create(NODES, {"metadata": {"generateName": "node-"}})


async def watch(client: HttpTransport) -> None:
    async for _ in ApiCalls(client).watch(NODES, resource_version="", timeout_s=1):
        pass


@pytest.mark.parametrize("call", [requests, watch])
def test_a_new_authority_is_learned_when_the_server_is_not_trusted(tmp_path: Path, call: Any) -> None:
    async def scenario() -> None:
        async with client_of_an_earlier_authority(tmp_path, BY_TOKEN) as client:
            give(tmp_path, "ca.crt")
            await call(client)

    asyncio.run(scenario())


@pytest.mark.parametrize("call", [requests, watch])
def test_a_new_authority_may_come_late_and_in_pieces(tmp_path: Path, call: Any) -> None:
    async def scenario() -> None:
        async with client_of_an_earlier_authority(tmp_path, BY_TOKEN) as client:
            await refused(call(client), "certificate verify failed")
            for size in (0, 200):
                (tmp_path / "ca.crt").write_bytes((tmp_path / "tls" / "ca.crt").read_bytes()[:size])
                await refused(call(client), "certificate verify failed")
            give(tmp_path, "ca.crt")
            await call(client)

    asyncio.run(scenario())


@pytest.mark.parametrize("call", [requests, watch])
def test_a_new_client_certificate_is_learned_when_the_server_hangs_up(tmp_path: Path, call: Any) -> None:
    """A server that does not accept a client's certificate ends the connection without a word."""

    async def scenario() -> None:
        async with client_of_an_earlier_authority(tmp_path, BY_CERTIFICATE) as client:
            give(tmp_path, "ca.crt")
            await refused(call(client))
            # The key does not fit yet.
            give(tmp_path, CERTIFICATE)
            await refused(call(client))
            give(tmp_path, KEY)
            await call(client)

    asyncio.run(scenario())


def test_a_write_is_not_sent_again_with_the_new_client_certificate(tmp_path: Path) -> None:
    """Whether the server has read it is not known: the caller decides."""

    async def scenario() -> None:
        async with client_of_an_earlier_authority(tmp_path, BY_CERTIFICATE) as client:
            give(tmp_path, "ca.crt")
            await refused(write(client))
            give(tmp_path, CERTIFICATE, KEY)
            await refused(write(client))
            await write(client)

    asyncio.run(scenario())
