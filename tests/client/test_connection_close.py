"""Closing a client over TLS is immediate, even if the server does not respond."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dralloc.client.http_transport import HttpTransport
from dralloc.client.kubeconfig import ConnectionConfig
from dralloc.client.transport import ClientRequest
from dralloc.server.identity.certificates import ensure_certificates

WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
ENDLESS = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n{}\n\r\n"


@contextmanager
def falling_silent(directory: Path, *answers: bytes) -> Iterator[ConnectionConfig]:
    """A server that sends one answer on each connection and then does not respond, not even to a close."""
    files = ensure_certificates(directory, ["127.0.0.1"], datetime.now(UTC))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    held: list[ssl.SSLSocket] = []

    def serve(listener: socket.socket) -> None:
        for answer in answers:
            held.append(context.wrap_socket(listener.accept()[0], server_side=True))
            held[-1].recv(1 << 16)
            held[-1].sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve, args=(listener,), daemon=True)
        serving.start()
        address = f"https://127.0.0.1:{listener.getsockname()[1]}"
        yield ConnectionConfig(server=address, authority_pem=files.authority_pem.decode())
        serving.join()
        for connection in held:
            connection.close()


async def read_and_close(connection: ConnectionConfig) -> None:
    transport = HttpTransport(connection)
    assert (await transport.send(ClientRequest(method="GET", path="/"))).body == b"{}"
    async with transport.stream(ClientRequest(method="GET", path="/")) as stream:
        assert await anext(stream.pieces()) == b"{}\n"
    # Far less than the timeout of the TLS close handshake.
    async with asyncio.timeout(15):
        await transport.close()


@pytest.mark.slow
def test_an_unresponsive_server_does_not_delay_closing(tmp_path: Path) -> None:
    with falling_silent(tmp_path, WHOLE, ENDLESS) as connection, warnings.catch_warnings(record=True) as told:
        # Ignore tasks of other tests.
        gc.collect()
        told.clear()
        warnings.simplefilter("always", ResourceWarning)
        asyncio.run(read_and_close(connection))
        gc.collect()
    assert [str(warning.message) for warning in told] == []
