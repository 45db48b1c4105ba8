"""How long the certificates of a connection are valid: those of the server, of the client and of the authority."""

from __future__ import annotations

import asyncio
import binascii
import ssl
from base64 import b64decode
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from cryptography import x509

from dralloc.api.timestamps import print_timestamp
from dralloc.client.kubeconfig import ConnectionConfig
from dralloc.whatif.side_facts import CertificateDates, CertificateRequest

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
