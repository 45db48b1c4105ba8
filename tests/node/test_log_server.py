"""The log server of a node: who may connect, and what it answers."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

import pytest

from dralloc.kube.codec import decode, encode
from dralloc.node.kubelet.cdi_registry import CdiRegistry
from dralloc.node.log_server import LogServer, make_identity
from dralloc.node.pod_view import NodePod
from dralloc.node.process_runtime import ProcessRuntime
from dralloc.node.runtime import Launch
from dralloc.primitives.errors import BadRequest, Forbidden, NotFound, ServiceUnavailable
from dralloc.server.identity.certificates import TlsFiles, ensure_certificates
from dralloc.server.pod_logs import NodeAddress, NodeCredentials, read_log
from dralloc.system_clock import SystemClock
from tests.support.client_certificates import client_certificate
from tests.support.limited_files import files_of_at_most

LOG = "/containerLogs/n/p/c"
NONE: Mapping[str, str] = {}
FOLLOW = {"follow": "true"}


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

    def reading(
        self, options: Mapping[str, str], *, path: str = LOG, credentials: NodeCredentials | None = None
    ) -> AsyncGenerator[bytes, None]:
        credentials = credentials or NodeCredentials(self.files.client_certificate, self.files.client_key)
        return read_log(credentials, self.address, path, options)

    async def get(
        self, options: Mapping[str, str] = NONE, *, path: str = LOG, credentials: NodeCredentials | None = None
    ) -> bytes:
        return b"".join([piece async for piece in self.reading(options, path=path, credentials=credentials)])


@asynccontextmanager
async def scene(directory: Path, *command: str) -> AsyncIterator[Scene]:
    clock = SystemClock()
    files = ensure_certificates(directory / "tls", [], clock.now())
    runtime = ProcessRuntime(directory / "node", CdiRegistry(()), clock)
    runtime.listen(Listener())
    pod = pod_of(list(command) or ["sh", "-c", "echo started; exec sleep 1000"])
    server = LogServer(runtime, lambda namespace, name: pod if (namespace, name) == ("n", "p") else None, clock)
    identity = make_identity(directory / "pki", "here")
    async with server.listen("127.0.0.1", 0, identity.context(files.authority.read_text())) as port:
        await runtime.start(Launch(pod=pod, container=pod.spec.containers[0]))
        try:
            yield Scene(files, NodeAddress("here", "127.0.0.1", port, identity.fingerprint))
        finally:
            await runtime.close(keep=False)


def test_a_full_disk_is_told_with_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="large") as raised, files_of_at_most(10):
        make_identity(tmp_path, "here")
    assert raised.value.filename == str(tmp_path / "kubelet.key")


def test_an_api_server_reads_logs(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path, "sh", "-c", "echo started") as node:
            assert await node.get(FOLLOW) == b"started\n"
            for path, options, error in (
                (LOG, {"previous": "true"}, BadRequest),
                ("/containerLogs/n/other/c", NONE, NotFound),
                (LOG, {"sinceTime": "yesterday"}, BadRequest),
                (LOG, {"stream": "Stderr"}, BadRequest),
                ("/exec/n/p/c", {"command": "ls"}, NotFound),
                ("/run/n/p/c", NONE, NotFound),
            ):
                with pytest.raises(error):
                    await node.get(options, path=path)

    asyncio.run(main())


def test_a_silent_log_is_not_followed_any_more_when_its_reader_is_gone(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as node:
            log = node.reading(FOLLOW)
            assert await anext(log) == b""
            assert await anext(log) == b"started\n"
            assert len(followed(tmp_path)) == 1
            await log.aclose()
            async with asyncio.timeout(30):
                while followed(tmp_path):
                    await asyncio.sleep(0.01)

    asyncio.run(main())


def followed(directory: Path) -> list[str]:
    """The logs that this process has open."""
    opened = [os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()]
    return [path for path in opened if path.startswith(str(directory)) and path.endswith("c.log")]


def test_a_log_ends_with_its_node(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            node = await stack.enter_async_context(scene(tmp_path))
            log = node.reading(FOLLOW)
            assert [await anext(log), await anext(log)] == [b"", b"started\n"]
            await stack.aclose()
            assert [piece async for piece in log] == []
            with pytest.raises(ServiceUnavailable, match="cannot connect to node here at 127"):
                await node.get()

    asyncio.run(main())


def test_other_holders_of_certificates_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as node:
            for name, group in (("system:node:other", "system:nodes"), ("admin", "system:masters")):
                certificate, key = client_certificate(tmp_path, tmp_path / "tls", name, group)
                with pytest.raises(Forbidden, match="only an API server"):
                    await node.get(credentials=NodeCredentials(Path(certificate), Path(key)))

    asyncio.run(main())


def test_a_client_without_a_certificate_of_the_cluster_gets_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as node:
            foreign = ensure_certificates(tmp_path / "foreign", [], SystemClock().now())
            with pytest.raises(ServiceUnavailable):
                await node.get(credentials=NodeCredentials(foreign.client_certificate, foreign.client_key))
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            reader, writer = await asyncio.open_connection(node.address.host, node.address.port, ssl=context)
            writer.write(b"GET /containerLogs/n/p/c HTTP/1.0\r\n\r\n")
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            writer.transport.abort()

    asyncio.run(main())


def test_a_server_with_another_certificate_is_not_the_node(tmp_path: Path) -> None:
    async def main() -> None:
        async with scene(tmp_path) as node:
            async with aclosing(node.reading(FOLLOW)) as log:
                assert b"started\n" in [await anext(log), await anext(log)]
            address = node.address
            for fingerprint, reason in (
                ("0" * 64, "not the one that the node publishes"),
                ("none", "cannot connect"),
            ):
                impostor = NodeAddress(address.node, address.host, address.port, fingerprint)
                with pytest.raises(ServiceUnavailable, match=reason):
                    await Scene(node.files, impostor).get()

    asyncio.run(main())
