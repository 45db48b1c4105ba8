"""The server's own TLS certificates, in the data directory: an authority, and the certificates that it signs.

The authority is made at the first start, and nothing replaces it: clients know it. A start renews what it has signed if others would not
accept that, as after a new address. While the server runs, nothing is renewed.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import secrets
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dralloc.atomic_files import locked_directory, write_atomically, write_private
from dralloc.server.access.users import ADMINS, User, authenticated

AUTHORITY_LIFETIME: Final = timedelta(days=3650)
# Starts warn from so long before the end of what they show to clients.
WARN_BEFORE: Final = timedelta(days=365)
# Tolerates clients whose clock is behind.
BACKDATE: Final = timedelta(hours=1)

# The name by which nodes recognize an API server; as in clusters that kubeadm makes.
KUBELET_CLIENT: Final = "kube-apiserver-kubelet-client"
# Names and addresses that every certificate covers.
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc")

_KEY: Final = re.compile(
    rb"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:(?!-----BEGIN ).)+?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL
)

_logger = logging.getLogger(__name__)


class UnusableCertificates(ValueError):
    """Certificates in the data directory that this server cannot serve with."""


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
    names = ("ca.crt", "server.crt", "server.key", "kubelet-client.crt", "kubelet-client.key")
    files = TlsFiles(*(directory / name for name in names))
    # Servers with a common directory may start at the same time.
    with locked_directory(directory):
        authorities = _Authorities(files.authority, directory / "ca.key")
        authorities.ensure(now)
        covered = tuple(dict.fromkeys((*LOCAL_NAMES, *host_names)))
        server = _Leaf(files.certificate, files.key, _SERVER, covered)
        client = _Leaf(files.client_certificate, files.client_key, _CLIENT)
        end = min(leaf.ensure(authorities, now) for leaf in (server, client))
    if end - now < WARN_BEFORE:
        _logger.warning(
            "certificates in %s end on %s: before that, %s", directory, f"{end:%Y-%m-%d}", authorities.replacement
        )
    return files


# --- the authority ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Authority:
    """A certificate that clients trust, and its key if the server has it."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | None

    @property
    def end(self) -> datetime:
        return self.certificate.not_valid_after_utc

    def has_signed(self, certificate: x509.Certificate) -> bool:
        try:
            certificate.verify_directly_issued_by(self.certificate)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            return False
        return True


@dataclass(frozen=True, slots=True)
class _Authorities:
    """What clients trust, and the keys. Earlier releases could replace an authority: all in the file are trusted, the newest is first."""

    path: Path
    key_path: Path

    def ensure(self, now: datetime) -> None:
        """Make an authority if there is none; raises UnusableCertificates."""
        if not self.path.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            # A key without a certificate stays behind the new one: its certificate may be restored later. The key comes first, because
            # a certificate without its key would be trusted for nothing.
            earlier = self.key_path.read_bytes() if self.key_path.exists() else b""
            write_atomically(self.key_path, _key_pem(key).encode() + earlier)
            _write_public(self.path, _self_signed(key, now))
        elif not self.valid(now):
            raise UnusableCertificates(
                f"{self.path} has no certificate authority that is valid now, at {now:%Y-%m-%d %H:%M} UTC: set the clock of this machine, or "
                f"{self.replacement}"
            )

    def valid(self, now: datetime) -> list[_Authority]:
        """Those that are valid now; raises UnusableCertificates."""
        content = self.path.read_bytes()
        try:
            trusted = x509.load_pem_x509_certificates(content)
        except ValueError:
            trusted = []
        # Clients stumble over other bytes, such as the mark of UTF-16.
        if not trusted or len(trusted) < content.count(b"-----BEGIN CERTIFICATE-----") or not content.isascii():
            raise UnusableCertificates(
                f"{self.path} has a certificate that cannot be read, none, or bytes that are not ASCII: "
                "restore it from a backup, or remove the damaged part"
            )
        keys = list(self._keys())
        return [
            _Authority(each, next((key for key in keys if _fits(key, each)), None))
            for each in trusted
            if each.not_valid_before_utc <= now < each.not_valid_after_utc
        ]

    @property
    def replacement(self) -> str:
        """How an operator replaces the authority."""
        return f"move {self.path.parent} away, start the server again, which makes a new authority, and give {self.path} to every client"

    def _keys(self) -> Iterator[ec.EllipticCurvePrivateKey]:
        """Those that can be used; others are of no concern as long as nothing must be signed."""
        try:
            content = self.key_path.read_bytes()
        except OSError:
            return
        for pem in _KEY.findall(content):
            try:
                key = serialization.load_pem_private_key(pem, password=None)
            except (ValueError, TypeError, UnsupportedAlgorithm):
                continue
            if isinstance(key, ec.EllipticCurvePrivateKey):
                yield key


def _self_signed(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    # Each authority has a name of its own: a chain is found by names.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"dralloc-ca-{now:%Y%m%d}-{secrets.token_hex(4)}")])
    return (
        _unsigned(name, name, key.public_key(), now, now + AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(sign_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _fits(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> bool:
    try:
        return key.public_key() == certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return False


# --- what it signs ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Purpose:
    """Whom a certificate names, and what for."""

    subject: x509.Name
    usage: x509.ObjectIdentifier


_SERVER: Final = _Purpose(
    x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dralloc-apiserver")]), ExtendedKeyUsageOID.SERVER_AUTH
)
# By it, this server identifies itself to nodes. A kubelet may ask this server for its rights.
_CLIENT: Final = _Purpose(
    x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ADMINS),
            x509.NameAttribute(NameOID.COMMON_NAME, KUBELET_CLIENT),
        ]
    ),
    ExtendedKeyUsageOID.CLIENT_AUTH,
)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A certificate of the server and its key, as files."""

    path: Path
    key_path: Path
    purpose: _Purpose
    names: tuple[str, ...] = ()

    def ensure(self, authorities: _Authorities, now: datetime) -> datetime:
        """Renew the certificate if others would not accept it to the end of its authority. Returns its end; raises UnusableCertificates."""
        valid = authorities.valid(now)
        present = self._accepted(valid, now)
        # Of several authorities, most clients know the earliest.
        signing = next((each for each in reversed(valid) if each.key is not None), None)
        if present is None and signing is None:
            raise UnusableCertificates(
                f"{self.path} must be renewed, and {authorities.key_path} has no key that can be used for that: restore it from a backup, or "
                f"{authorities.replacement}"
            )
        if signing is not None and (present is None or present.not_valid_after_utc < signing.end):
            try:
                present = self._write(signing, now)
            except OSError as error:
                # A full disk must not prevent a restart.
                if present is None:
                    raise
                _logger.warning("%s is not renewed: %s", self.path, error)
        assert present is not None, "without a certificate, one is made"
        return present.not_valid_after_utc

    def _accepted(self, valid: Sequence[_Authority], now: datetime) -> x509.Certificate | None:
        """The certificate, if others accept it now, under all names, and its key fits: a renewal may have ended between the two."""
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.path, self.key_path, password="")
            present = x509.load_pem_x509_certificate(self.path.read_bytes())
            covered = _names_of(present)
        except (OSError, ValueError):
            return None
        is_current = present.not_valid_before_utc <= now < present.not_valid_after_utc
        is_signed = any(each.has_signed(present) for each in valid)
        return present if is_current and is_signed and covered.issuperset(map(_general_name, self.names)) else None

    def _write(self, signing: _Authority, now: datetime) -> x509.Certificate:
        """A new certificate, signed by the authority. It lasts as long as that: the server may run for years, and does not renew it meanwhile."""
        assert signing.key is not None
        key = ec.generate_private_key(ec.SECP256R1())
        unsigned = _unsigned(self.purpose.subject, signing.certificate.subject, key.public_key(), now, signing.end)
        if self.names:
            names = x509.SubjectAlternativeName([_general_name(name) for name in self.names])
            unsigned = unsigned.add_extension(names, critical=False)
        signer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.key.public_key())
        made = (
            unsigned.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(sign_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([self.purpose.usage]), critical=False)
            .add_extension(signer_id, critical=False)
            .sign(signing.key, hashes.SHA256())
        )
        write_private(self.key_path, _key_pem(key))
        _write_public(self.path, made)
        return made


def _names_of(certificate: x509.Certificate) -> set[x509.GeneralName]:
    try:
        return set(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return set()


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


# --- both -------------------------------------------------------------------------------------------------------


def _unsigned(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder(issuer, subject, public_key, x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(end)
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


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem.decode("ascii")


def _write_public(path: Path, certificate: x509.Certificate) -> None:
    write_atomically(path, certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)


# --- Certificate user -----------------------------------------------------------------------------------------------
# The user of a client certificate.


def user_of_certificate(connection: ssl.SSLObject | None) -> tuple[User | None, float]:
    """The user of a verified client certificate, and when it expires: CN is the name, each O a group."""
    encoded = connection.getpeercert(binary_form=True) if connection is not None else None
    if not encoded:
        return None, 0.0
    # Slow to import, and only needed for client certificates.
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    certificate = x509.load_der_x509_certificate(encoded)
    subject = certificate.subject
    names = [str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = tuple(str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
    user = authenticated(User(name=names[0], groups=groups)) if names else None
    return user, certificate.not_valid_after_utc.timestamp()
