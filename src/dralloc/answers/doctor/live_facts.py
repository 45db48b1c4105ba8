"""What checks read of a running cluster beside objects. Only GET requests are sent."""

from __future__ import annotations

import asyncio
import binascii
import ssl
from base64 import b64decode
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from cryptography import x509
from msgspec.structs import replace

from dralloc.answers.doctor.checks.feature_gates import API_SERVER
from dralloc.answers.doctor.cluster_facts import Fact
from dralloc.answers.live_cluster import PAGE_SIZE, server_version
from dralloc.answers.side_facts import CertificateDates, CertificateRequest, ComponentGates, SideFacts, UnreadFact
from dralloc.client.kubeconfig import ConnectionConfig
from dralloc.client.status_errors import error_of_response
from dralloc.client.transport import ClientRequest, Transport
from dralloc.kube.core_v1 import ConfigMap
from dralloc.kube.timestamps import parse_timestamp, print_timestamp
from dralloc.primitives.errors import NotFound
from dralloc.primitives.features import GATES, FeatureGates, UnknownGate, parse_settings
from dralloc.primitives.metrics import NAME, gates_in
from dralloc.scheduler.published_configuration import FEATURE_GATES, SCHEDULER_NAME

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


# --- Certificate reader ---------------------------------------------------------------------------------------------
# How long the certificates of a connection are valid: those of the server, of the client and of the authority.


CONNECT_TIMEOUT_S: Final = 10.0


async def connection_certificates(connection: ConnectionConfig) -> tuple[CertificateDates, ...]:
    """The certificates of a connection with TLS. Raises OSError if the server cannot be reached.

    The server's certificate is read without being verified: one that has expired is to be shown, too.
    """
    return (*(dates_of("server", each) for each in await _served(connection)), *_configured(connection))


def _configured(connection: ConnectionConfig) -> Iterator[CertificateDates]:
    """Of several authorities, the one that lasts longest counts: the others are being replaced."""
    if connection.certificate_pem is not None:
        yield dates_of("client", x509.load_pem_x509_certificates(connection.certificate_pem.encode())[0])
    if connection.authority_pem is not None:
        authorities = x509.load_pem_x509_certificates(connection.authority_pem.encode())
        yield dates_of("authority", max(authorities, key=lambda each: each.not_valid_after_utc))


async def _served(connection: ConnectionConfig) -> list[x509.Certificate]:
    url = urlsplit(connection.server)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        _, writer = await asyncio.open_connection(
            url.hostname, url.port or 443, ssl=context, server_hostname=url.hostname
        )
    try:
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.transport.abort()
    return [x509.load_der_x509_certificate(der)] if der else []


def dates_of(holder: str, certificate: x509.Certificate) -> CertificateDates:
    return CertificateDates(
        holder=holder,
        subject=certificate.subject.rfc4514_string(),
        not_before=print_timestamp(certificate.not_valid_before_utc),
        not_after=print_timestamp(certificate.not_valid_after_utc),
    )


def certificate_request(item: dict[str, Any]) -> CertificateRequest | None:
    """What a CertificateSigningRequest says; None for one that was denied or failed, or whose certificate cannot be read."""
    metadata, spec, status = (item.get(name) or {} for name in ("metadata", "spec", "status"))
    decided = {each.get("type") for each in status.get("conditions") or ()}
    if decided & {"Denied", "Failed"}:
        return None
    made = CertificateRequest(
        name=metadata.get("name", ""), signer=spec.get("signerName", ""), created=metadata.get("creationTimestamp")
    )
    if not status.get("certificate"):
        # A signer that is another program may still be at work on an approved one.
        return None if decided else made
    try:
        issued = dates_of("", x509.load_pem_x509_certificates(b64decode(status["certificate"]))[0])
    except (ValueError, binascii.Error):
        return None
    return CertificateRequest(
        name=made.name,
        signer=made.signer,
        created=made.created,
        subject=issued.subject,
        not_before=issued.not_before,
        not_after=issued.not_after,
    )


# --- Gate sources ---------------------------------------------------------------------------------------------------
# Where the feature gates of components are known from: their metrics, the options that pods start them with, what
# schedulers publish.


# Programs whose gates are worth comparing. The gates of the API server are those in its metrics.
_PROGRAMS: Final = ("kube-scheduler", "kube-controller-manager")
_OPTION: Final = "--feature-gates"
# The release whose defaults we know.
_RELEASE: Final = "v1.37."


def published_gates(objects: Iterable[ConfigMap]) -> Iterator[ComponentGates]:
    """What schedulers of ours have published."""
    for each in objects:
        if (text := each.data.get(FEATURE_GATES)) is not None and (name := each.data.get(SCHEDULER_NAME)):
            where = f"configmap {each.metadata.namespace}/{each.metadata.name}"
            yield ComponentGates(component=f"scheduler {name}", known_from=where, gates=_settings(text))


def gates_of_pods(pods: Iterable[Mapping[str, Any]], server_version: str) -> Iterator[ComponentGates]:
    """The gates of components of Kubernetes that run as pods. Those that no option sets have the defaults of their release."""
    defaults = FeatureGates.defaults() if server_version.startswith(_RELEASE) else None
    known = {} if defaults is None else {name: name in defaults for name in GATES}
    for pod in pods:
        name = (pod.get("metadata") or {}).get("name", "")
        for container in (pod.get("spec") or {}).get("containers") or ():
            words = [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
            program = next((each for each in _PROGRAMS if any(_is_program(word, each) for word in words[:2])), None)
            if program is not None:
                where = f"the options of pod {name}"
                yield ComponentGates(
                    component=f"{program} {name}", known_from=where, gates={**known, **_settings(_option(words))}
                )


def _is_program(word: str, program: str) -> bool:
    return word.rpartition("/")[2] == program


def _option(words: list[str]) -> str:
    """The value of the option; it may be given several times."""
    values = [word.partition("=")[2] for word in words if word.startswith(f"{_OPTION}=")]
    values += [after for word, after in pairwise(words) if word == _OPTION]
    return ",".join(values)


def _settings(text: str) -> dict[str, bool]:
    try:
        return parse_settings(text)
    except UnknownGate:
        return {}
