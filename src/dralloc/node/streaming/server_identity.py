"""The certificate by which API servers recognize the streaming server of a node."""

from __future__ import annotations

import hashlib
import ipaddress
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from dralloc.atomic_files import naming

_CERTIFICATE_LIFETIME: Final = timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """The server's certificate and key, and the SHA-256 of the certificate, by which API servers recognize it."""

    certificate: Path
    key: Path
    fingerprint: str


def make_identity(directory: Path, name: str, host: str) -> ServerIdentity:
    """A new key with a certificate that it signs itself."""
    # Slow to import, and not needed for simulated nodes.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name}@streaming"[:64])])
    now = datetime.now(UTC)
    names: list[x509.GeneralName] = [x509.DNSName(name)]
    with suppress(ValueError):
        names.append(x509.IPAddress(ipaddress.ip_address(host)))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _CERTIFICATE_LIFETIME)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    files = ServerIdentity(directory / "kubelet.crt", directory / "kubelet.key", "")
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    # In place, because a full disk has no room for a second file.
    with naming(files.key):
        files.key.touch(mode=0o600)
        files.key.chmod(0o600)
        files.key.write_bytes(pem)
    with naming(files.certificate):
        files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    fingerprint = hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest()
    return ServerIdentity(files.certificate, files.key, fingerprint)
