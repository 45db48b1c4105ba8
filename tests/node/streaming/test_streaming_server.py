"""The streaming server of a node: who may connect, and what it answers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dralloc.api.codec import decode, encode
from dralloc.apiserver.credentials.certificates import TlsFiles, ensure_certificates
from dralloc.apiserver.http.node_connection import NodeAddress, NodeCredentials, ask_node
from dralloc.kubelet.cdi_registry import CdiRegistry
from dralloc.node.pod_view import NodePod
from dralloc.node.process_runtime import ProcessRuntime
from dralloc.node.runtime import Launch
from dralloc.node.streaming.server_identity import make_identity
from dralloc.node.streaming.streaming_server import StreamingServer
from dralloc.node.streaming.streaming_tls import StreamingTls
from dralloc.primitives.errors import ApiError, BadRequest, Forbidden, NotFound, ServiceUnavailable
from dralloc.system_clock import SystemClock
from tests.support.client_certificates import client_certificate
from tests.support.limited_files import files_of_at_most


class Listener:
    """Ignores the events of containers."""

    def container_started(self, *_: object) -> None:
        pass

    def container_exited(self, *_: object) -> None:
        pass


def pod_of(command: list[str]) -> NodePod:
    spec = {"containers": [{"name": "c", "image": "none", "command": command}]}
    return decode(encode({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec}), NodePod)


class Scene:
    def __init__(self, files: TlsFiles, address: NodeAddress) -> None:
        self.files = files
        self.address = address

    async def get(self, target: str, credentials: NodeCredentials | None = None) -> bytes:
        credentials = credentials or NodeCredentials(self.files.client_certificate, self.files.client_key)
        answer = await ask_node(credentials, self.address, "GET", target)
        return b"".join([piece async for piece in answer.body()])


@asynccontextmanager
async def scene(directory: Path, *command: str) -> AsyncIterator[Scene]:
    clock = SystemClock()
    files = ensure_certificates(directory / "tls", [], clock.now())
    runtime = ProcessRuntime(directory / "node", CdiRegistry(()), clock)
    runtime.listen(Listener())
    pod = pod_of(list(command) or ["sh", "-c", "echo started; exec sleep 1000"])
    server = StreamingServer(runtime, lambda namespace, name: pod if (namespace, name) == ("n", "p") else None, clock)
    identity = make_identity(directory / "pki", "here", "127.0.0.1")
    tls = StreamingTls(identity, files.authority.read_text, check_every_s=0)
    async with server.listen("127.0.0.1", 0, tls) as port:
        await runtime.start(Launch(pod=pod, container=pod.spec.containers[0]))
        try:
            yield Scene(files, NodeAddress("here", "127.0.0.1", port, identity.fingerprint))
        finally:
            await runtime.close(keep=False)


def test_a_full_disk_is_told_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="large") as raised, files_of_at_most(10):
        make_identity(tmp_path, "here", "127.0.0.1")
    assert raised.value.filename == str(tmp_path / "kubelet.key")


def test_an_api_server_reads_logs(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path, "sh", "-c", "echo started") as node:
            assert await node.get("/containerLogs/n/p/c?follow=true") == b"started\n"
            for target, error in (
                ("/containerLogs/n/p/c?previous=true", BadRequest),
                ("/containerLogs/n/other/c", NotFound),
                ("/containerLogs/n/p/c?sinceTime=yesterday", BadRequest),
                ("/exec/n/p/c?command=ls", ApiError),
                ("/run/n/p/c", NotFound),
            ):
                with pytest.raises(error):
                    await node.get(target)

    asyncio.run(main())


def test_other_holders_of_certificates_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as node:
            for name, group in (("system:node:other", "system:nodes"), ("admin", "system:masters")):
                certificate, key = client_certificate(tmp_path, tmp_path / "tls", name, group)
                with pytest.raises(Forbidden, match="only an API server"):
                    await node.get("/containerLogs/n/p/c", NodeCredentials(Path(certificate), Path(key)))

    asyncio.run(main())


def test_a_client_without_a_certificate_of_the_cluster_gets_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as node:
            foreign = ensure_certificates(tmp_path / "foreign", [], SystemClock().now())
            with pytest.raises(ServiceUnavailable):
                await node.get("/healthz", NodeCredentials(foreign.client_certificate, foreign.client_key))
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            reader, writer = await asyncio.open_connection(node.address.host, node.address.port, ssl=context)
            writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            writer.transport.abort()

    asyncio.run(main())


def test_a_server_with_another_certificate_is_not_the_node(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as node:
            assert await node.get("/healthz") == b"ok"
            address = node.address
            impostor = NodeAddress(address.node, address.host, address.port, "0" * 64)
            with pytest.raises(ServiceUnavailable, match="not the one that the node publishes"):
                await Scene(node.files, impostor).get("/healthz")

    asyncio.run(main())
