"""The logs of pods, which the API server reads from the log server of the pod's node.

Requests are translated to the path that a kubelet serves, so that real kubelets answer them, too.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dralloc.kube.core_v1 import STREAMING_CERTIFICATE
from dralloc.kube.registry import NODE, POD
from dralloc.primitives.errors import ApiError, BadRequest, Forbidden, NotFound, ServiceUnavailable, Unauthorized
from dralloc.primitives.field_errors import FieldError, FieldPath, forbidden
from dralloc.primitives.field_errors import invalid as invalid_field
from dralloc.server.documents.json_documents import Document
from dralloc.server.http.messages import TEXT, HttpRequest, HttpResponse
from dralloc.server.http.statuses import invalid, not_found
from dralloc.server.http.url_paths import ResourcePath
from dralloc.server.read.api_resources import key_of
from dralloc.server.read.stored_form import read_document
from dralloc.server.store.interface import Store

CONNECT_TIMEOUT_S: Final = 10.0
ANSWER_TIMEOUT_S: Final = 30.0
ERROR_BYTES_MAX: Final = 16 * 1024
# The order in which addresses of a node are tried.
_ADDRESS_TYPES: Final = ("InternalIP", "InternalDNS", "Hostname", "ExternalIP", "ExternalDNS")
_LOG_FLAGS: Final = ("follow", "previous", "timestamps")
_LOG_MINIMA: Final = {"tailLines": 0, "limitBytes": 1, "sinceSeconds": 1}
_TRUE: Final = frozenset({"1", "true", "t", "True", "TRUE", "T"})
_ERRORS: Final[dict[int, type[ApiError]]] = {400: BadRequest, 401: Unauthorized, 403: Forbidden, 404: NotFound}


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """Where a node's log server listens. `fingerprint` is the SHA-256 of its certificate, if the node publishes it."""

    node: str
    host: str
    port: int
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class NodeCredentials:
    """The certificate by which nodes recognize this server."""

    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """The files are read again for each connection, because they are renewed."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # A kubelet signs its own certificate unless it is told otherwise; nodes of this project publish theirs.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(self.certificate, self.key)
        return context


class PodLogs:
    """Answers requests for logs. Without credentials, no node is connected to."""

    def __init__(self, store: Store, credentials: NodeCredentials | None = None) -> None:
        self._store = store
        self._credentials = credentials

    async def log(self, request: HttpRequest, path: ResourcePath) -> HttpResponse:
        record = await self._store.get(key_of(POD, path.namespace, path.name))
        if record is None:
            raise not_found("", "pods", path.name)
        pod = read_document(record.value)
        container = _container(pod, request.query.get("container", ""))
        options = dict(_log_options(request.query))
        node = str((pod.get("spec") or {}).get("nodeName") or "")
        if not node:
            return HttpResponse(content_type=TEXT)
        credentials, address = await self._way(pod, node)
        log = read_log(credentials, address, f"/containerLogs/{path.namespace}/{path.name}/{container}", options)
        await anext(log)
        return HttpResponse(stream=log, content_type=TEXT)

    async def _way(self, pod: Document, name: str) -> tuple[NodeCredentials, NodeAddress]:
        record = await self._store.get(key_of(NODE, "", name))
        if record is None:
            raise NotFound(f"node {name} of pod {pod['metadata']['name']} does not exist")
        address = _address_of(name, read_document(record.value))
        if address is None:
            # Agents serve them only to an API server that can prove who it is.
            other = "its agent has no log server" if self._credentials is not None else "this API server has no TLS"
            raise BadRequest(
                f"pod {pod['metadata']['name']} is on node {name}, which serves no logs: its pods are simulated, or {other}. "
                "Use `dralloc apiserver` without --insecure-http, and a node of `dralloc node` without --fake, where containers are processes"
            )
        if self._credentials is None:
            raise BadRequest(
                "this API server has no certificate for connections to nodes: start `dralloc apiserver` without --insecure-http"
            )
        return self._credentials, address


async def read_log(
    credentials: NodeCredentials, address: NodeAddress, path: str, options: Mapping[str, Any]
) -> AsyncGenerator[bytes, None]:
    """The answer of a node, after an empty piece as soon as it begins; before that, raises ApiError if the node cannot be reached
    or refuses.
    """
    # Slow to import, and needed for nothing else.
    import aiohttp
    from yarl import URL

    begins = False
    try:
        url = URL.build(scheme="https", host=address.host, port=address.port, path=path, query=options)
        pinned = aiohttp.Fingerprint(bytes.fromhex(address.fingerprint)) if address.fingerprint else True
        async with AsyncExitStack() as stack:
            connector, limits = aiohttp.TCPConnector(ssl=pinned), aiohttp.ClientTimeout(connect=CONNECT_TIMEOUT_S)
            session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector, timeout=limits))
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                sent = session.get(url, ssl=credentials.context(), allow_redirects=False)
                answer = await stack.enter_async_context(sent)
                if answer.status != 200:
                    raise _refusal(address, answer.status, await answer.content.read(ERROR_BYTES_MAX))
            begins = True
            yield b""
            async for piece in answer.content.iter_any():
                yield piece
    except aiohttp.ServerFingerprintMismatch:
        raise _unreachable(address, "the certificate there is not the one that the node publishes") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        # A node that ends ends its logs.
        if not begins:
            raise _unreachable(address, getattr(error, "strerror", "") or str(error) or "no answer in time") from None


def _refusal(address: NodeAddress, status: int, body: bytes) -> ApiError:
    text = " ".join(body.decode(errors="replace").split()) or f"node {address.node} answered with status {status}"
    return _ERRORS.get(status, ApiError)(text)


def _unreachable(address: NodeAddress, why: str) -> ApiError:
    return ServiceUnavailable(
        f"cannot connect to node {address.node} at {address.host}:{address.port}: {why}; check that its agent runs"
    )


def _address_of(name: str, node: Document) -> NodeAddress | None:
    status = node.get("status") or {}
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port")
    addresses = {entry.get("type"): entry.get("address") for entry in status.get("addresses") or ()}
    host = next((addresses[kind] for kind in _ADDRESS_TYPES if addresses.get(kind)), None)
    if not isinstance(port, int) or not 0 < port < 65536 or not isinstance(host, str):
        return None
    annotations = node["metadata"].get("annotations") or {}
    return NodeAddress(name, host, port, annotations.get(STREAMING_CERTIFICATE, ""))


def _container(pod: Document, wanted: str) -> str:
    """The container that the request is for; raises BadRequest if the pod has none of the name, or several and none is named."""
    spec, name = pod.get("spec") or {}, pod["metadata"]["name"]
    kinds = ("containers", "initContainers", "ephemeralContainers")
    known = [container["name"] for kind in kinds for container in spec.get(kind) or ()]
    if wanted:
        if wanted not in known:
            raise BadRequest(f"container {wanted} is not valid for pod {name}")
        return wanted
    regular = [container["name"] for container in spec.get("containers") or ()]
    if len(regular) == 1:
        return str(regular[0])
    raise BadRequest(
        f"a container name must be specified for pod {name}, choose one of: [{' '.join(map(str, regular))}]"
    )


def _log_options(query: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """The options for the node; raises Invalid."""
    faults: list[FieldError] = []
    for name, least in _LOG_MINIMA.items():
        if name in query:
            number = _whole(name, query[name])
            if number < least:
                faults.append(invalid_field(FieldPath.of(name), number, f"must be greater than or equal to {least}"))
            yield name, number
    if "sinceSeconds" in query and "sinceTime" in query:
        faults.append(
            forbidden(FieldPath.of("sinceSeconds"), "at most one of sinceTime or sinceSeconds may be specified")
        )
    if faults:
        raise invalid("", "PodLogOptions", "", faults)
    for name in _LOG_FLAGS:
        if query.get(name, "") in _TRUE:
            yield name, "true"
    for name in ("sinceTime", "stream"):
        if query.get(name):
            yield name, query[name]


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadRequest(f"{name}: {text!r} is not a whole number") from None
