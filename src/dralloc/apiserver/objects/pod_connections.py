"""Connections to pods: logs, exec, attach and port-forward, answered by the streaming server of the pod's node.

Requests are translated to the paths that a kubelet serves, so that real kubelets answer them, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

from dralloc.api.core_v1 import STREAMING_CERTIFICATE
from dralloc.api.registry import NODE, POD
from dralloc.apiserver.documents.json_documents import Document
from dralloc.apiserver.http.messages import TEXT, HttpRequest, HttpResponse
from dralloc.apiserver.http.node_connection import NodeAddress, NodeCredentials, ask_node
from dralloc.apiserver.http.statuses import invalid, not_found
from dralloc.apiserver.http.url_paths import ResourcePath
from dralloc.apiserver.objects.api_resources import key_of
from dralloc.apiserver.objects.stored_form import read_document
from dralloc.primitives.errors import BadRequest, NotFound
from dralloc.primitives.field_errors import FieldError, FieldPath, forbidden
from dralloc.primitives.field_errors import invalid as invalid_field
from dralloc.store.interface import Store

# The order in which addresses of a node are tried.
_ADDRESS_TYPES: Final = ("InternalIP", "InternalDNS", "Hostname", "ExternalIP", "ExternalDNS")
_DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
# Headers that belong to an upgrade; everything else concerns this server only.
_UPGRADE_HEADERS: Final = frozenset(
    {
        b"connection",
        b"upgrade",
        b"x-stream-protocol-version",
        b"sec-websocket-key",
        b"sec-websocket-version",
        b"sec-websocket-protocol",
        b"sec-websocket-extensions",
        b"sec-websocket-accept",
    }
)
# Kubernetes' names of parameters, and the kubelet's.
_STREAMS: Final = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
_LOG_FLAGS: Final = ("follow", "previous", "timestamps")
_LOG_MINIMA: Final = {"tailLines": 0, "limitBytes": 1, "sinceSeconds": 1}
_TRUE: Final = frozenset({"1", "true", "t", "True", "TRUE", "T"})


class PodConnections:
    """Answers the subresources of pods that their node serves. Without credentials, no node is connected to."""

    def __init__(self, store: Store, credentials: NodeCredentials | None = None) -> None:
        self._store = store
        self._credentials = credentials

    async def log(self, request: HttpRequest, path: ResourcePath) -> HttpResponse:
        pod = await self._pod(path)
        container = _container(pod, request.query.get("container", ""), what="log")
        options = dict(_log_options(request.query))
        node = _node_name(pod)
        if not node:
            return HttpResponse(content_type=TEXT)
        target = f"/containerLogs/{path.namespace}/{path.name}/{container}?{urlencode(options)}"
        credentials, address = await self._way(pod, node)
        answer = await ask_node(credentials, address, "GET", target)
        return HttpResponse(stream=answer.body(), content_type=TEXT)

    async def stream(self, request: HttpRequest, path: ResourcePath) -> HttpResponse:
        """Upgrade the connection for exec, attach or port-forward."""
        pod = await self._pod(path)
        node = _node_name(pod)
        if not node:
            raise BadRequest(f"pod {path.name} does not have a host assigned")
        target = _stream_target(pod, path, request.raw_query)
        if not request.upgrade:
            raise BadRequest("you must specify at least 1 upgrade header: Upgrade: websocket, or Upgrade: SPDY/3.1")
        credentials, address = await self._way(pod, node)
        headers = [header for header in request.upgrade if header[0] in _UPGRADE_HEADERS]
        answer = await ask_node(credentials, address, request.method, target, headers)
        if answer.status != 101:
            answer.writer.close()
            raise BadRequest(f"node {node} did not upgrade the connection")
        confirmed = tuple(header for header in answer.headers if header[0] in _UPGRADE_HEADERS)
        return HttpResponse(101, headers=confirmed, tunnel=answer.tunnel)

    async def _pod(self, path: ResourcePath) -> Document:
        record = await self._store.get(key_of(POD, path.namespace, path.name))
        if record is None:
            raise not_found("", "pods", path.name)
        return read_document(record.value)

    async def _way(self, pod: Document, name: str) -> tuple[NodeCredentials, NodeAddress]:
        record = await self._store.get(key_of(NODE, "", name))
        if record is None:
            raise NotFound(f"node {name} of pod {pod['metadata']['name']} does not exist")
        address = _address_of(name, read_document(record.value))
        if address is None:
            # Agents serve them only to an API server that can prove who it is.
            other = (
                "its agent has no streaming server" if self._credentials is not None else "this API server has no TLS"
            )
            raise BadRequest(
                f"pod {pod['metadata']['name']} is on node {name}, which serves neither logs nor commands: its pods are simulated, or {other}. "
                "Use `dralloc apiserver` without --insecure-http, and a node of `dralloc node` without --fake, where containers are processes"
            )
        if self._credentials is None:
            raise BadRequest(
                "this API server has no certificate for connections to nodes: start `dralloc apiserver` without --insecure-http"
            )
        return self._credentials, address


def _address_of(name: str, node: Document) -> NodeAddress | None:
    status = node.get("status") or {}
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port")
    addresses = {entry.get("type"): entry.get("address") for entry in status.get("addresses") or ()}
    host = next((addresses[kind] for kind in _ADDRESS_TYPES if addresses.get(kind)), None)
    if not isinstance(port, int) or not 0 < port < 65536 or not isinstance(host, str):
        return None
    annotations = node["metadata"].get("annotations") or {}
    return NodeAddress(name, host, port, annotations.get(STREAMING_CERTIFICATE, ""))


def _node_name(pod: Document) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def _container(pod: Document, wanted: str, *, what: str) -> str:
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
    default = (pod["metadata"].get("annotations") or {}).get(_DEFAULT_CONTAINER)
    if default in regular and what != "log":
        return str(default)
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


def _stream_target(pod: Document, path: ResourcePath, raw_query: bytes) -> str:
    given = parse_qsl(raw_query.decode("latin-1"), keep_blank_values=True)
    values = dict(reversed(given))
    if path.subresource == "portforward":
        ports = [("port", port) for name, listed in given if name == "ports" for port in listed.split(",")]
        return f"/portForward/{path.namespace}/{path.name}?{urlencode(ports)}"
    container = _container(pod, values.get("container", ""), what=path.subresource)
    wanted = [(theirs, "1") for ours, theirs in _STREAMS.items() if values.get(ours, "") in _TRUE]
    if not any(theirs in ("input", "output", "error") for theirs, _ in wanted):
        raise BadRequest("you must specify at least one of stdin, stdout, stderr")
    if path.subresource == "exec":
        command = [(name, word) for name, word in given if name == "command"]
        if not command:
            raise BadRequest("you must specify a command")
        wanted += command
    return f"/{path.subresource}/{path.namespace}/{path.name}/{quote(container)}?{urlencode(wanted)}"
