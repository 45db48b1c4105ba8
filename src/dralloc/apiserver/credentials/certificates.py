"""The server's own certificate authority and TLS certificate, created at the first start.

The authority is kept in the data directory, so that kubeconfig files stay valid. The server certificate is renewed when it does not cover
the served address or is about to expire.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dralloc.apiserver.credentials.private_file import write_private

AUTHORITY_LIFETIME: Final = timedelta(days=3650)
SERVER_LIFETIME: Final = timedelta(days=365)
RENEW_BEFORE: Final = timedelta(days=30)
# Tolerates clients whose clock is behind.
BACKDATE: Final = timedelta(hours=1)

# Names and addresses that every certificate covers.
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The paths of the certificates in a data directory."""

    authority: Path
    certificate: Path
    key: Path

    @property
    def authority_pem(self) -> bytes:
        return self.authority.read_bytes()


def ensure_certificates(directory: Path, host_names: Sequence[str], now: datetime) -> TlsFiles:
    """Certificates that cover the host names: the existing ones, or new ones."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    names = tuple(dict.fromkeys((*LOCAL_NAMES, *host_names)))
    authority_key_path = directory / "ca.key"
    files = TlsFiles(directory / "ca.crt", directory / "server.crt", directory / "server.key")
    if not (files.authority.exists() and authority_key_path.exists()):
        _make_authority(files.authority, authority_key_path, now)
        files.certificate.unlink(missing_ok=True)
    if not (files.certificate.exists() and files.key.exists()) or not _still_good(files.certificate, names, now):
        _make_server_certificate(files, authority_key_path, names, now)
    return files


def _make_authority(certificate_path: Path, key_path: Path, now: datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dralloc-ca")])
    certificate = (
        _certificate(name, name, key.public_key(), now, AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(sign_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_private(key_path, _key_pem(key))
    _write_public(certificate_path, certificate.public_bytes(serialization.Encoding.PEM))


def _make_server_certificate(files: TlsFiles, authority_key_path: Path, names: Sequence[str], now: datetime) -> None:
    authority = x509.load_pem_x509_certificate(files.authority_pem)
    authority_key = serialization.load_pem_private_key(authority_key_path.read_bytes(), password=None)
    assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dralloc-apiserver")])
    certificate = (
        _certificate(subject, authority.subject, key.public_key(), now, SERVER_LIFETIME)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    write_private(files.key, _key_pem(key))
    _write_public(files.certificate, certificate.public_bytes(serialization.Encoding.PEM))


def _certificate(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + lifetime)
    )


def _key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _still_good(path: Path, names: Sequence[str], now: datetime) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        covered = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return False
    wanted = {_general_name(name) for name in names}
    return wanted <= set(covered) and certificate.not_valid_after_utc - now.astimezone(UTC) > RENEW_BEFORE


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem.decode("ascii")


def _write_public(path: Path, pem: bytes) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_bytes(pem)
    unfinished.replace(path)
