"""The server's own TLS certificates, created at the first start.

A certificate is renewed when it does not cover the served address, is about to expire, or is not valid yet. A renewal keeps the
authority, because clients may know only that one, until the authority itself ends soon. No certificate outlives the authority that
signed it.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dralloc.access.users import ADMINS
from dralloc.apiserver.credentials.certificate_authorities import (
    BACKDATE,
    Authority,
    AuthorityFiles,
    UnusableCertificates,
    key_pem,
    key_usage,
    unsigned_certificate,
    write_public,
)
from dralloc.apiserver.credentials.private_file import write_private
from dralloc.atomic_files import locked_directory

SERVER_LIFETIME: Final = timedelta(days=365)
RENEW_BEFORE: Final = timedelta(days=30)
# X.509 has no earlier time.
EARLIEST: Final = datetime(1950, 1, 1, tzinfo=UTC) + BACKDATE

# The name by which nodes recognize an API server; as in clusters that kubeadm makes.
KUBELET_CLIENT: Final = "kube-apiserver-kubelet-client"
# Names and addresses that every certificate covers.
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


_logger = logging.getLogger(__name__)


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


def ensure_certificates(directory: Path, host_names: Sequence[str], now: datetime) -> TlsFiles:
    """Certificates that cover the host names: the existing ones, or new ones; raises UnusableCertificates."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    files = _files(directory)
    with _changing(directory, now):
        authorities = AuthorityFiles(directory)
        authorities.ensure(now)
        names = tuple(dict.fromkeys((*LOCAL_NAMES, *host_names)))
        server = _Certificate(files.certificate, files.key)
        if not server.is_good(authorities.read(), now, names):
            _make_server_certificate(server, server.renewing(authorities, now), names, now)
        client = _Certificate(files.client_certificate, files.client_key)
        if not client.is_good(authorities.read(), now):
            _make_client_certificate(client, client.renewing(authorities, now), now)
        _warn_of_lost_key(server.read(), authorities, files)
    return files


def rotate_server_certificate(directory: Path, now: datetime) -> None:
    """New keys and certificates for the same names, also for connections to nodes, signed by the newest authority."""
    files = _existing_files(directory)
    server = _Certificate(files.certificate, files.key)
    with _changing(directory, now):
        newest = AuthorityFiles(directory).newest(now)
        _make_server_certificate(server, newest, server.names(), now)
        _make_client_certificate(_Certificate(files.client_certificate, files.client_key), newest, now)


def rotate_authority(directory: Path, now: datetime) -> None:
    """A new authority that clients trust beside the earlier ones. The server certificate stays that of the earlier one."""
    _existing_files(directory)
    authorities = AuthorityFiles(directory)
    with _changing(directory, now):
        authorities.add(now, earlier=authorities.read())


def retire_authorities(directory: Path, now: datetime) -> int:
    """Trust the newest authority only; returns how many others were trusted. Its clients must know it by now."""
    files = _existing_files(directory)
    authorities = AuthorityFiles(directory)
    with _changing(directory, now):
        newest = authorities.newest(now)
        if not newest.has_signed(_Certificate(files.certificate, files.key).read()):
            raise UnusableCertificates(
                f"{files.certificate} is signed by an earlier authority: replace it first, with `dralloc rotate server`"
            )
        return authorities.retire(newest)


def signing_authority(directory: Path, now: datetime) -> Authority:
    """The newest authority that can sign now; raises UnusableCertificates."""
    _existing_files(directory)
    return AuthorityFiles(directory).signing(now)


@dataclass(frozen=True, slots=True)
class _Certificate:
    """A certificate of the server and its key, as files."""

    path: Path
    key_path: Path

    def read(self) -> x509.Certificate:
        """Raises UnusableCertificates."""
        try:
            return x509.load_pem_x509_certificate(_ascii(self.path))
        except ValueError:
            raise self._damaged("is not a certificate") from None

    def names(self) -> tuple[str, ...]:
        """The names and addresses that it covers; raises UnusableCertificates."""
        certificate = self.read()
        try:
            covered = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (ValueError, x509.ExtensionNotFound):
            raise self._damaged("has no names that can be read") from None
        return tuple(str(name.value) for name in covered)

    def is_good(self, authorities: Sequence[Authority], now: datetime, names: Sequence[str] = ()) -> bool:
        """True if others accept the certificate now and for some time, under any of the names."""
        try:
            certificate = self.read()
            is_covered = not names or {*map(_general_name, names)} <= {*map(_general_name, self.names())}
        except (OSError, UnusableCertificates):
            return False
        signer = _signer(certificate, authorities)
        if signer is None or not signer.is_valid(now, remaining=RENEW_BEFORE):
            return False
        is_current = certificate.not_valid_before_utc <= now and certificate.not_valid_after_utc - now > RENEW_BEFORE
        return is_current and is_covered and _has_key(certificate, self.key_path)

    def renewing(self, authorities: AuthorityFiles, now: datetime) -> Authority:
        """The authority that signs the next certificate: the present one, otherwise the earliest one, which most clients know."""
        trusted = authorities.read()
        usable = [each for each in trusted if each.key is not None and each.is_valid(now, remaining=RENEW_BEFORE)]
        try:
            present = _signer(self.read(), usable)
        except (OSError, UnusableCertificates):
            present = None
        return present or (usable[-1] if usable else authorities.signing(now))

    def write(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        write_private(self.key_path, key_pem(key))
        write_public(self.path, [certificate])

    def _damaged(self, how: str) -> UnusableCertificates:
        return UnusableCertificates(
            f"{self.path} {how}: move it away and start the server again, which makes a new one"
        )


@contextmanager
def _changing(directory: Path, now: datetime) -> Iterator[None]:
    """The files may be changed inside the block: by one process at a time, and at a time that certificates can have."""
    if now < EARLIEST:
        raise UnusableCertificates(
            f"certificates begin in {EARLIEST.year} or later, and the clock of this machine says {now:%Y-%m-%d}: set it"
        )
    with locked_directory(directory):
        yield


def _ascii(path: Path) -> bytes:
    """The content of a PEM file; raises ValueError for other bytes, which TLS libraries stumble over."""
    content = path.read_bytes()
    if not content.isascii():
        raise ValueError("bytes that are not ASCII")
    return content


def _files(directory: Path) -> TlsFiles:
    return TlsFiles(
        AuthorityFiles(directory).certificates,
        directory / "server.crt",
        directory / "server.key",
        directory / "kubelet-client.crt",
        directory / "kubelet-client.key",
    )


def _existing_files(directory: Path) -> TlsFiles:
    files = _files(directory)
    for path in (files.authority, files.certificate, files.key, AuthorityFiles(directory).keys):
        if not path.exists():
            raise UnusableCertificates(f"{path} does not exist: start the server once, or choose its --data-dir")
    return files


def _signer(certificate: x509.Certificate, authorities: Sequence[Authority]) -> Authority | None:
    return next((authority for authority in authorities if authority.has_signed(certificate)), None)


def _warn_of_lost_key(certificate: x509.Certificate, authorities: AuthorityFiles, files: TlsFiles) -> None:
    signer = _signer(certificate, authorities.read())
    if signer is not None and signer.key is None:
        _logger.warning(
            "%s has no key of the authority that signed %s: restore it from a backup, or give %s to every client before %s, "
            "when the server gets a certificate of another authority",
            *(authorities.keys, files.certificate, files.authority),
            f"{certificate.not_valid_after_utc - RENEW_BEFORE:%Y-%m-%d}",
        )


def _make_server_certificate(server: _Certificate, authority: Authority, names: Sequence[str], now: datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dralloc-apiserver")])
    covered = x509.SubjectAlternativeName([_general_name(name) for name in names])
    server.write(_signed(authority, subject, key, now, ExtendedKeyUsageOID.SERVER_AUTH, covered), key)


def _make_client_certificate(client: _Certificate, authority: Authority, now: datetime) -> None:
    """The certificate by which this server identifies itself to nodes. A kubelet may ask this server for its rights."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ADMINS),
            x509.NameAttribute(NameOID.COMMON_NAME, KUBELET_CLIENT),
        ]
    )
    client.write(_signed(authority, subject, key, now, ExtendedKeyUsageOID.CLIENT_AUTH), key)


def _signed(
    authority: Authority,
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    usage: x509.ObjectIdentifier,
    *extensions: x509.ExtensionType,
) -> x509.Certificate:
    """A certificate for the key, signed by the authority."""
    assert authority.key is not None
    issuer = authority.certificate
    end = min(now + SERVER_LIFETIME, issuer.not_valid_after_utc)
    certificate = unsigned_certificate(subject, issuer.subject, key.public_key(), now, end)
    for extension in extensions:
        certificate = certificate.add_extension(extension, critical=False)
    signer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    return (
        certificate.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(signer_id, critical=False)
        .sign(authority.key, hashes.SHA256())
    )


def _has_key(certificate: x509.Certificate, path: Path) -> bool:
    """False for the key of another certificate, as after a renewal that was interrupted, and for a damaged one."""
    try:
        key = serialization.load_pem_private_key(_ascii(path), password=None)
        return key.public_key() == certificate.public_key()
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
        return False


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
