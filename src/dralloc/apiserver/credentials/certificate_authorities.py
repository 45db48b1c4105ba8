"""The server's own certificate authorities, created at the first start.

`ca.crt` is what clients trust: the newest authority first, then earlier ones that are not retired yet. `ca.key` has their keys, because
an earlier authority goes on signing what clients verify until these had time to learn the newer one.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dralloc.apiserver.credentials.private_file import write_private
from dralloc.atomic_files import write_atomically

AUTHORITY_LIFETIME: Final = timedelta(days=3650)
# A new authority is made so long before the end of the newest one, for clients to learn it.
AUTHORITY_RENEW_BEFORE: Final = timedelta(days=365)
# Tolerates clients whose clock is behind.
BACKDATE: Final = timedelta(hours=1)

_BEGIN: Final = rb"-----BEGIN [A-Z ]*PRIVATE KEY-----"
# A key that was cut off does not take the next one with it.
_KEY: Final = re.compile(_BEGIN + rb"(?:(?!-----BEGIN ).)+?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL)

_logger = logging.getLogger(__name__)


class UnusableCertificates(ValueError):
    """Certificates in the data directory that this server cannot serve with."""


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate that clients trust, and its key if the server has it."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | None

    def is_valid(self, now: datetime, *, remaining: timedelta = timedelta()) -> bool:
        """True if it is valid now, and for more than the remaining time."""
        begin, end = self.certificate.not_valid_before_utc, self.certificate.not_valid_after_utc
        return begin <= now and end - now > remaining

    def has_signed(self, certificate: x509.Certificate) -> bool:
        try:
            certificate.verify_directly_issued_by(self.certificate)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            return False
        return True


@dataclass(frozen=True, slots=True)
class _Keys:
    """What a file of keys has. `problem` says why something in it cannot be used; replacing the file would lose that."""

    usable: tuple[ec.EllipticCurvePrivateKey, ...] = ()
    problem: str = ""


class AuthorityFiles:
    """The authorities in a directory."""

    def __init__(self, directory: Path) -> None:
        self.certificates = directory / "ca.crt"
        self.keys = directory / "ca.key"

    def read(self) -> tuple[Authority, ...]:
        """What clients trust, the newest first; raises UnusableCertificates."""
        content = self.certificates.read_bytes()
        try:
            trusted = x509.load_pem_x509_certificates(content)
        except ValueError:
            trusted = []
        # Clients stumble over other bytes, such as the mark of UTF-16.
        if not trusted or len(trusted) < content.count(b"-----BEGIN CERTIFICATE-----") or not content.isascii():
            raise UnusableCertificates(
                f"{self.certificates} has a certificate that cannot be read, none, or bytes that are not ASCII: "
                "restore it from a backup, or remove the damaged part"
            )
        keys = self._keys().usable
        return tuple(Authority(each, next((key for key in keys if _fits(key, each)), None)) for each in trusted)

    def signing(self, now: datetime) -> Authority:
        """The newest authority that can sign now; raises UnusableCertificates."""
        for authority in self.read():
            if authority.key is not None and authority.is_valid(now):
                return authority
        reason = self._keys().problem or "it has no key of an authority that is valid now"
        raise UnusableCertificates(f"{self.keys} cannot be used to sign: {reason}; {self._advice}")

    def newest(self, now: datetime) -> Authority:
        """The newest authority that is valid now, if it can sign, too; raises UnusableCertificates."""
        signing = self.signing(now)
        newest = next(each for each in self.read() if each.is_valid(now))
        if newest.certificate != signing.certificate:
            raise UnusableCertificates(
                f"{self.keys} has no key of the newest authority in {self.certificates}: restore it from a backup, "
                "or make another authority with `dralloc rotate authority`"
            )
        return newest

    def ensure(self, now: datetime) -> None:
        """Make an authority unless there is one with its key that does not end soon; raises UnusableCertificates.

        Earlier authorities stay trusted until they are retired, also those that have ended: the clock may be wrong.
        """
        if not self.certificates.exists():
            self.add(now, earlier=())
            return
        trusted = self.read()
        valid = [authority for authority in trusted if authority.is_valid(now)]
        if not valid and (future := [each for each in trusted if each.certificate.not_valid_before_utc > now]):
            begin = min(each.certificate.not_valid_before_utc for each in future)
            raise UnusableCertificates(
                f"{self.certificates} is not valid before {begin:%Y-%m-%d %H:%M} UTC, and now it is {now:%Y-%m-%d %H:%M} UTC: "
                "set the clock of this machine, or move the file away for a new authority"
            )
        if not any(each.key is not None and each.is_valid(now, remaining=AUTHORITY_RENEW_BEFORE) for each in valid):
            self._add_successor(now, trusted, is_needed=not valid)

    def add(self, now: datetime, *, earlier: Sequence[Authority]) -> None:
        """Make a new authority, which clients trust beside earlier ones; raises UnusableCertificates if a key would be lost."""
        keys = self._keys()
        if keys.problem:
            raise UnusableCertificates(
                f"{self.keys} is not replaced by one with a new key: {keys.problem}; {self._advice}"
            )
        key = ec.generate_private_key(ec.SECP256R1())
        # A key without a certificate stays, too: its certificate may be restored later.
        self._write((key, *keys.usable), (_self_signed(key, now), *(each.certificate for each in earlier)))

    def retire(self, kept: Authority) -> int:
        """Trust one authority only, and delete the keys of the others; returns how many others were trusted."""
        assert kept.key is not None
        others = len(self.read()) - 1
        self._write((kept.key,), (kept.certificate,))
        return others

    @property
    def _advice(self) -> str:
        return (
            "restore it from a backup; or move it, and nothing else, away and start the server again, "
            "which makes a new authority beside the earlier ones"
        )

    def _add_successor(self, now: datetime, trusted: Sequence[Authority], *, is_needed: bool) -> None:
        try:
            self.add(now, earlier=trusted)
        except (OSError, UnusableCertificates) as error:
            if is_needed:
                raise
            # A server starts with what it has as long as that is valid.
            _logger.warning("no next certificate authority can be made: %s", error)

    def _keys(self) -> _Keys:
        try:
            content = self.keys.read_bytes()
        except FileNotFoundError:
            return _Keys()
        except OSError as error:
            return _Keys(problem=f"it cannot be read: {error.strerror}")
        found = [_usable_key(pem) for pem in _KEY.findall(content)]
        usable = tuple(key for key in found if key is not None)
        if content.strip() and len(usable) < max(len(re.findall(_BEGIN, content)), 1):
            return _Keys(usable, "it has something other than keys for elliptic curves in PEM without a password")
        return _Keys(usable)

    def _write(self, keys: Iterable[ec.EllipticCurvePrivateKey], certificates: Iterable[x509.Certificate]) -> None:
        # Keys come first: a key without a certificate is not used, and a certificate without a key would be trusted for nothing.
        write_private(self.keys, "".join(map(key_pem, keys)))
        write_public(self.certificates, certificates)


def key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem.decode("ascii")


def write_public(path: Path, certificates: Iterable[x509.Certificate]) -> None:
    write_atomically(path, b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates), mode=0o644)


def unsigned_certificate(
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


def key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
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


def _self_signed(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    # Each authority has a name of its own: a chain is found by names.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"dralloc-ca-{now:%Y%m%d}-{secrets.token_hex(4)}")])
    return (
        unsigned_certificate(name, name, key.public_key(), now, now + AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(sign_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _usable_key(pem: bytes) -> ec.EllipticCurvePrivateKey | None:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, ec.EllipticCurvePrivateKey) else None


def _fits(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> bool:
    try:
        return key.public_key() == certificate.public_key()
    except (ValueError, UnsupportedAlgorithm):
        return False
