"""The log server of a node: gives the logs of containers to its API server, by the path and the parameters of a kubelet.

Only a client whose certificate is signed by the cluster's authority and has the name of an API server is answered: other holders of
certificates, such as other nodes, are not.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dralloc.atomic_files import naming
from dralloc.kube.timestamps import parse_timestamp
from dralloc.node.container_logs import LogOptions
from dralloc.node.pod_view import NodePod
from dralloc.node.process_runtime import ProcessRuntime
from dralloc.primitives.clock import Clock

# The name in the certificate of an API server's client.
API_SERVER: Final = "kube-apiserver-kubelet-client"
READERS_MAX: Final = 512
_CERTIFICATE_LIFETIME: Final = timedelta(days=3650)

FindPod = Callable[[str, str], NodePod | None]


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """The server's certificate and key, and the SHA-256 of the certificate, by which API servers recognize it."""

    certificate: Path
    key: Path
    fingerprint: str

    def context(self, authority: str) -> ssl.SSLContext:
        """Connections of clients with a certificate of the authority, which is in PEM."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        context.load_verify_locations(cadata=authority)
        context.verify_mode = ssl.CERT_REQUIRED
        return context


class LogServer:
    """Serves the logs of a runtime's containers. `find_pod` gets a namespace and a name."""

    def __init__(self, runtime: ProcessRuntime, find_pod: FindPod, clock: Clock) -> None:
        self._runtime = runtime
        self._find_pod = find_pod
        self._clock = clock
        self._readers = 0

    @asynccontextmanager
    async def listen(self, host: str, port: int, tls: ssl.SSLContext) -> AsyncIterator[int]:
        """Serve inside the block; yields the port."""
        application = web.Application()
        application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._answer)
        # Cancelled when its client leaves: a log that has nothing new would be followed for ever. The time-out ends those that are
        # followed when the agent ends; 0 would be none.
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.01)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port, ssl_context=tls).start()
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if _client_name(request) != API_SERVER:
            raise web.HTTPForbidden(
                text=f"only an API server with a certificate for {API_SERVER} may connect to this node"
            )
        if self._readers >= READERS_MAX:
            raise web.HTTPServiceUnavailable(text="too many logs of this node are read already: try again later")
        self._readers += 1
        try:
            return await self._send_log(request)
        finally:
            self._readers -= 1

    async def _send_log(self, request: web.Request) -> web.StreamResponse:
        name, container = request.match_info["pod"], request.match_info["container"]
        pod = self._find_pod(request.match_info["namespace"], name)
        if pod is None:
            raise web.HTTPNotFound(text=f'pod "{name}" is not on this node')
        uid, previous = pod.metadata.uid, request.query.get("previous") == "true"
        try:
            options = _read_options(request.query, self._clock.now())
        except ValueError as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        if not self._runtime.has_log(uid, container, previous=previous):
            where = f'container "{container}" in pod "{name}"'
            if previous:
                raise web.HTTPBadRequest(text=f"previous terminated {where} not found")
            raise web.HTTPBadRequest(text=f"{where} is waiting to start: {_waits_for(pod, container)}")
        response = web.StreamResponse(headers={"content-type": "text/plain; charset=utf-8"})
        await response.prepare(request)
        async for piece in self._runtime.log(uid, container, previous=previous).read(options):
            await response.write(piece)
        return response


def make_identity(directory: Path, name: str) -> ServerIdentity:
    """A new key with a certificate that it signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name}@logs"[:64])])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _CERTIFICATE_LIFETIME)
        .sign(key, hashes.SHA256())
    )
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    files = ServerIdentity(
        directory / "kubelet.crt", directory / "kubelet.key", certificate.fingerprint(hashes.SHA256()).hex()
    )
    # In place, because a full disk has no room for a second file.
    with naming(files.key):
        files.key.touch(mode=0o600)
        files.key.chmod(0o600)
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
    with naming(files.certificate):
        files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return files


def _client_name(request: web.Request) -> str:
    """The common name in the client's certificate, which is verified."""
    certificate = request.get_extra_info("peercert") or {}
    names = [value for entry in certificate.get("subject", ()) for name, value in entry if name == "commonName"]
    return str(names[0]) if len(names) == 1 else ""


def _read_options(query: Mapping[str, str], now: datetime) -> LogOptions:
    """The options in a request, whose numbers the API server has checked; raises ValueError."""
    if query.get("stream", "All") != "All":
        raise ValueError("the output of a process is one stream: only stream=All is served")
    numbers = {name: int(query[name]) for name in ("tailLines", "limitBytes", "sinceSeconds") if name in query}
    since = None
    if "sinceSeconds" in numbers:
        since = now.timestamp() - numbers["sinceSeconds"]
    elif "sinceTime" in query:
        since = parse_timestamp(query["sinceTime"]).timestamp()
    return LogOptions(
        follow=query.get("follow") == "true",
        timestamps=query.get("timestamps") == "true",
        tail_lines=numbers.get("tailLines"),
        limit_bytes=numbers.get("limitBytes"),
        since=since,
    )


def _waits_for(pod: NodePod, container: str) -> str:
    status = pod.status
    for each in (*status.container_statuses, *status.init_container_statuses, *status.ephemeral_container_statuses):
        if each.name == container and each.state.waiting is not None:
            waiting = each.state.waiting
            return f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason
    return "ContainerCreating"
