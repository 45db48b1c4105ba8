"""The server's own certificate authority and TLS certificate, created at the first start.

`ca.crt` is what clients trust: the newest authority first, then earlier ones that are not retired yet. Only the newest one signs. The
server certificate is renewed when it does not cover the served address, is about to expire, or is not valid yet. No certificate
outlives the authority that signed it.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dralloc.access.users import ADMINS
from dralloc.apiserver.credentials.private_file import write_private

AUTHORITY_LIFETIME: Final = timedelta(days=3650)
SERVER_LIFETIME: Final = timedelta(days=365)
RENEW_BEFORE: Final = timedelta(days=30)
# A new authority is made so long before the end of the newest one, for clients to learn it.
AUTHORITY_RENEW_BEFORE: Final = timedelta(days=365)
# Tolerates clients whose clock is behind.
BACKDATE: Final = timedelta(hours=1)

# The name by which nodes recognize an API server; as in clusters that kubeadm makes.
KUBELET_CLIENT: Final = "kube-apiserver-kubelet-client"
# Names and addresses that every certificate covers.
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The paths of the certificates in a data directory."""

    authority: Path
    certificate: Path
    key: Path
    # For connections to nodes.
    client_certificate: Path
    client_key: Path

    @property
    def authority_pem(self) -> bytes:
        return self.authority.read_bytes()


class UnusableCertificates(ValueError):
    """Certificates in the data directory that this server cannot serve with."""


def ensure_certificates(directory: Path, host_names: Sequence[str], now: datetime) -> TlsFiles:
    """Certificates that cover the host names: the existing ones, or new ones."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    files = _files(directory)
    if not (files.authority.exists() and _authority_key(directory).exists()):
        _make_authority(files, _authority_key(directory), now, earlier=())
        files.certificate.unlink(missing_ok=True)
        files.client_certificate.unlink(missing_ok=True)
    newest = _authorities(files)[0]
    if newest.not_valid_before_utc > now:
        raise UnusableCertificates(
            f"{files.authority} is not valid before {newest.not_valid_before_utc:%Y-%m-%d %H:%M} UTC, and now it is "
            f"{now:%Y-%m-%d %H:%M} UTC: set the clock of this machine, or move the file away for a new authority"
        )
    if newest.not_valid_after_utc - now < AUTHORITY_RENEW_BEFORE:
        _add_authority(files, directory, now)
    names = tuple(dict.fromkeys((*LOCAL_NAMES, *host_names)))
    if not (files.certificate.exists() and files.key.exists()) or not _still_good(files, names, now):
        _make_server_certificate(files, _authority_key(directory), names, now)
    if not (files.client_certificate.exists() and files.client_key.exists()) or not _client_still_good(files, now):
        _make_client_certificate(files, _authority_key(directory), now)
    return files


def rotate_server_certificate(directory: Path, now: datetime) -> None:
    """A new key and certificate for the same names, signed by the newest authority."""
    files = _existing_files(directory)
    covered = _certificate_of(files).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    _make_server_certificate(files, _authority_key(directory), tuple(str(name.value) for name in covered), now)


def rotate_authority(directory: Path, now: datetime) -> None:
    """A new authority that clients trust beside the earlier ones. The server certificate stays that of the earlier one."""
    _add_authority(_existing_files(directory), directory, now)


def retire_authorities(directory: Path) -> int:
    """Trust the newest authority only; returns how many others were trusted. Its clients must know it by now."""
    files = _existing_files(directory)
    newest, *earlier = _authorities(files)
    if not _is_signed_by(_certificate_of(files), newest):
        raise UnusableCertificates(
            f"{files.certificate} is signed by an earlier authority: replace it first, with `dralloc rotate server`"
        )
    _write_public(files.authority, _pem([newest]))
    return len(earlier)


def _add_authority(files: TlsFiles, directory: Path, now: datetime) -> None:
    earlier = [authority for authority in _authorities(files) if authority.not_valid_after_utc > now]
    _make_authority(files, _authority_key(directory), now, earlier=earlier)


def _files(directory: Path) -> TlsFiles:
    return TlsFiles(
        directory / "ca.crt",
        directory / "server.crt",
        directory / "server.key",
        directory / "kubelet-client.crt",
        directory / "kubelet-client.key",
    )


def _existing_files(directory: Path) -> TlsFiles:
    files = _files(directory)
    for path in (files.authority, files.certificate, files.key, _authority_key(directory)):
        if not path.exists():
            raise UnusableCertificates(f"{path} does not exist: start the server once, or choose its --data-dir")
    return files


def _authority_key(directory: Path) -> Path:
    return directory / "ca.key"


def _authorities(files: TlsFiles) -> list[x509.Certificate]:
    """What clients trust, the newest first."""
    try:
        return x509.load_pem_x509_certificates(files.authority_pem)
    except ValueError as error:
        raise UnusableCertificates(f"{files.authority} is not a certificate: {error}") from None


def _certificate_of(files: TlsFiles) -> x509.Certificate:
    return x509.load_pem_x509_certificate(files.certificate.read_bytes())


def _is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _pem(certificates: Iterable[x509.Certificate]) -> bytes:
    return b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in certificates)


def _make_authority(files: TlsFiles, key_path: Path, now: datetime, *, earlier: Iterable[x509.Certificate]) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    # Each authority has a name of its own: a chain is found by names.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"dralloc-ca-{now:%Y%m%d}-{secrets.token_hex(4)}")])
    certificate = (
        _certificate(name, name, key.public_key(), now, now + AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(sign_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    # The key comes last: with an earlier key, the server notices that it does not fit and says so.
    _write_public(files.authority, _pem([certificate, *earlier]))
    write_private(key_path, _key_pem(key))


def _make_server_certificate(files: TlsFiles, authority_key_path: Path, names: Sequence[str], now: datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dralloc-apiserver")])
    covered = x509.SubjectAlternativeName([_general_name(name) for name in names])
    signed = _signed(files, authority_key_path, subject, key, now, ExtendedKeyUsageOID.SERVER_AUTH, covered)
    write_private(files.key, _key_pem(key))
    _write_public(files.certificate, _pem([signed]))


def _make_client_certificate(files: TlsFiles, authority_key_path: Path, now: datetime) -> None:
    """The certificate by which this server identifies itself to nodes. A kubelet may ask this server for its rights."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ADMINS),
            x509.NameAttribute(NameOID.COMMON_NAME, KUBELET_CLIENT),
        ]
    )
    signed = _signed(files, authority_key_path, subject, key, now, ExtendedKeyUsageOID.CLIENT_AUTH)
    write_private(files.client_key, _key_pem(key))
    _write_public(files.client_certificate, _pem([signed]))


def _client_still_good(files: TlsFiles, now: datetime) -> bool:
    """True if nodes accept the certificate now and for some time."""
    try:
        certificate = x509.load_pem_x509_certificate(files.client_certificate.read_bytes())
    except ValueError:
        return False
    is_current = certificate.not_valid_before_utc <= now and certificate.not_valid_after_utc - now > RENEW_BEFORE
    is_usable = is_current and _has_key(certificate, files.client_key)
    return is_usable and any(_is_signed_by(certificate, authority) for authority in _authorities(files))


def load_authority(directory: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """The newest authority and its key; raises UnusableCertificates."""
    return _load_authority(_existing_files(directory), _authority_key(directory))


def _load_authority(files: TlsFiles, authority_key_path: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    authority = _authorities(files)[0]
    authority_key = serialization.load_pem_private_key(authority_key_path.read_bytes(), password=None)
    if (
        not isinstance(authority_key, ec.EllipticCurvePrivateKey)
        or authority_key.public_key() != authority.public_key()
    ):
        raise UnusableCertificates(
            f"{authority_key_path} is not the key of the first authority in {files.authority}: restore both from a back-up, "
            "or move both away for a new authority"
        )
    return authority, authority_key


def _signed(
    files: TlsFiles,
    authority_key_path: Path,
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    usage: x509.ObjectIdentifier,
    *extensions: x509.ExtensionType,
) -> x509.Certificate:
    """A certificate for the key, signed by the newest authority."""
    authority, authority_key = _load_authority(files, authority_key_path)
    end = min(now + SERVER_LIFETIME, authority.not_valid_after_utc)
    certificate = _certificate(subject, authority.subject, key.public_key(), now, end)
    for extension in extensions:
        certificate = certificate.add_extension(extension, critical=False)
    return (
        certificate.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _certificate(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, now: datetime, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(until)
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


def _still_good(files: TlsFiles, names: Sequence[str], now: datetime) -> bool:
    """True if clients accept the certificate now and for some time, under any of the names."""
    try:
        certificate = _certificate_of(files)
        covered = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        return False
    signer = next((authority for authority in _authorities(files) if _is_signed_by(certificate, authority)), None)
    if signer is None or certificate.not_valid_before_utc > now or not _has_key(certificate, files.key):
        return False
    end = min(certificate.not_valid_after_utc, signer.not_valid_after_utc)
    return {_general_name(name) for name in names} <= set(covered) and end - now > RENEW_BEFORE


def _has_key(certificate: x509.Certificate, path: Path) -> bool:
    """False for the key of another certificate, as after a renewal that was interrupted, and for a damaged one."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError):
        return False
    return key.public_key() == certificate.public_key()


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
