"""What checks read of a running cluster beside objects. Only GET requests are sent."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dralloc.api.timestamps import parse_timestamp
from dralloc.client.kubeconfig import ConnectionConfig
from dralloc.client.status_errors import error_of_response
from dralloc.client.transport import ClientRequest, Transport
from dralloc.doctor.certificate_reader import certificate_request, connection_certificates
from dralloc.doctor.checks.feature_gates import API_SERVER
from dralloc.doctor.cluster_facts import Fact
from dralloc.doctor.gate_sources import gates_of_pods
from dralloc.primitives.errors import NotFound
from dralloc.primitives.gate_metric import NAME, gates_in
from dralloc.whatif.live_cluster import PAGE_SIZE, server_version
from dralloc.whatif.side_facts import CertificateRequest, ComponentGates, SideFacts, UnreadFact

REQUESTS: Final = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SYSTEM_PODS: Final = "/api/v1/namespaces/kube-system/pods"


async def read_certificates(connection: ConnectionConfig) -> SideFacts:
    """The certificates of the connection."""
    if not connection.server.startswith("https"):
        why = "the API server was reached without TLS, so it shows no certificates"
        return SideFacts(unread=(UnreadFact(what=Fact.CERTIFICATES, why=why, expected=True),))
    try:
        return SideFacts(certificates=await connection_certificates(connection))
    except (OSError, TimeoutError) as error:
        return SideFacts(
            unread=(UnreadFact(what=Fact.CERTIFICATES, why=f"the server's certificate cannot be read: {error}"),)
        )


def unusable(shown: SideFacts, now: datetime, *, verifies: bool) -> str:
    """Why nothing can be asked over the connection; empty if its certificates are valid. `verifies`: the client checks the server's."""
    for each in shown.certificates:
        if each.holder == "client" or (each.holder == "server" and verifies):
            if parse_timestamp(each.not_after) <= now:
                return f"the certificate of the {each.holder} has expired, so that nothing can be asked"
            if parse_timestamp(each.not_before) > now:
                return f"the certificate of the {each.holder} is not valid yet, so that nothing can be asked"
    return ""


async def read_all_facts(transport: Transport, connection: ConnectionConfig) -> SideFacts:
    """Everything."""
    shown, others = await asyncio.gather(read_certificates(connection), read_facts(transport))
    return with_certificates(others, shown)


def with_certificates(facts: SideFacts, shown: SideFacts) -> SideFacts:
    """The facts, with the certificates of the connection."""
    return replace(facts, certificates=shown.certificates, unread=(*shown.unread, *facts.unread))


def nothing_read(why: str) -> SideFacts:
    return SideFacts(unread=tuple(UnreadFact(what=fact, why=why) for fact in (Fact.REQUESTS, Fact.GATES)))


async def read_facts(transport: Transport, wanted: Collection[Fact] = tuple(Fact)) -> SideFacts:
    """The wanted facts, without the certificates of the connection."""
    unread: list[UnreadFact] = []
    found: list[CertificateRequest] = []
    components: list[ComponentGates] = []
    if Fact.REQUESTS in wanted:
        requests = await _items(transport, REQUESTS, Fact.REQUESTS)
        if isinstance(requests, UnreadFact):
            unread.append(requests)
        else:
            found += filter(None, map(certificate_request, requests))
    if Fact.GATES in wanted:
        server = await _gates(transport)
        if isinstance(server, UnreadFact):
            unread.append(server)
        else:
            components.append(server)
        # Not every user may list these pods, and most clusters run their scheduler elsewhere.
        pods = await _items(transport, SYSTEM_PODS, Fact.GATES)
        if not isinstance(pods, UnreadFact):
            components += gates_of_pods(pods, await server_version(transport))
    return SideFacts(certificate_requests=tuple(found), components=tuple(components), unread=tuple(unread))


async def _gates(transport: Transport) -> ComponentGates | UnreadFact:
    response = await transport.send(ClientRequest(method="GET", path="/metrics"))
    if response.status != 200:
        return UnreadFact(what=Fact.GATES, why=f"the gates of the API server: /metrics answers {response.status}")
    gates = gates_in(response.body.decode(errors="replace"))
    if not gates:
        return UnreadFact(what=Fact.GATES, why=f"the gates of the API server: its metrics have no {NAME}")
    return ComponentGates(component=API_SERVER, known_from="its /metrics", gates=gates)


async def _items(transport: Transport, path: str, fact: Fact) -> list[dict[str, Any]] | UnreadFact:
    """The objects of a list as documents; what is not served has none."""
    found: list[dict[str, Any]] = []
    query = {"limit": str(PAGE_SIZE)}
    while True:
        response = await transport.send(ClientRequest(method="GET", path=path, query=query))
        if response.status != 200:
            error = error_of_response(response.status, response.body)
            return (
                [] if isinstance(error, NotFound) else UnreadFact(what=fact, why=f"{path.rpartition('/')[2]}: {error}")
            )
        document = msgspec.json.decode(response.body, type=dict[str, Any])
        found += document.get("items") or ()
        token = (document.get("metadata") or {}).get("continue")
        if not token:
            return found
        query = {**query, "continue": token}
