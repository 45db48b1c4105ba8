"""The server's own certificate authorities, created at the first start.

`ca.crt` is what clients trust: the newest authority first, then earlier ones that are not retired yet. `ca.key` has their keys, because
an earlier authority goes on signing what clients verify until these had time to learn the newer one.
"""

from __future__ import annotations

import re
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
from cryptography.x509.oid import NameOID

from dralloc.apiserver.credentials.private_file import write_private
from dralloc.atomic_files import write_atomically

AUTHORITY_LIFETIME: Final = timedelta(days=3650)
# A new authority is made so long before the end of the newest one, for clients to learn it.
AUTHORITY_RENEW_BEFORE: Final = timedelta(days=365)
# Tolerates clients whose clock is behind.
BACKDATE: Final = timedelta(hours=1)

_KEY: Final = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----.+?-----END [A-Z ]*PRIVATE KEY-----\n?", re.DOTALL)


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
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True


class AuthorityFiles:
    """The authorities in a directory."""

    def __init__(self, directory: Path) -> None:
        self.certificates = directory / "ca.crt"
        self.keys = directory / "ca.key"

    def read(self) -> tuple[Authority, ...]:
        """What clients trust, the newest first; raises UnusableCertificates."""
        try:
            trusted = x509.load_pem_x509_certificates(self.certificates.read_bytes())
        except ValueError as error:
            raise UnusableCertificates(f"{self.certificates} is not a certificate: {error}") from None
        keys = self._keys()
        return tuple(Authority(each, next((key for key in keys if _fits(key, each)), None)) for each in trusted)

    def signing(self, now: datetime) -> Authority:
        """The newest authority that can sign now; raises UnusableCertificates."""
        for authority in self.read():
            if authority.key is not None and authority.is_valid(now):
                return authority
        raise UnusableCertificates(
            f"{self.keys} is not the key of an authority in {self.certificates} that is valid now: restore both from a back-up, "
            "or move both away for a new authority"
        )

    def ensure(self, now: datetime) -> None:
        """Make an authority if there is none, if the newest one ends soon, or if there are no keys; raises UnusableCertificates.

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
        if not self.keys.exists() or not any(each.is_valid(now, remaining=AUTHORITY_RENEW_BEFORE) for each in valid):
            self.add(now, earlier=trusted)

    def add(self, now: datetime, *, earlier: Sequence[Authority]) -> None:
        """Make a new authority, which clients trust beside earlier ones."""
        key = ec.generate_private_key(ec.SECP256R1())
        self._write((Authority(_self_signed(key, now), key), *earlier))

    def retire(self, kept: Authority) -> int:
        """Trust one authority only; returns how many others were trusted."""
        others = len(self.read()) - 1
        self._write((kept,))
        return others

    def _keys(self) -> list[ec.EllipticCurvePrivateKey]:
        """Keys that cannot be read are none: what needs them says so."""
        keys = []
        for pem in _KEY.findall(self.keys.read_bytes() if self.keys.exists() else b""):
            try:
                key = serialization.load_pem_private_key(pem, password=None)
            except (ValueError, TypeError):
                continue
            if isinstance(key, ec.EllipticCurvePrivateKey):
                keys.append(key)
        return keys

    def _write(self, authorities: Sequence[Authority]) -> None:
        # Keys come first: a key without a certificate is not used, and a certificate without a key would be trusted for nothing.
        write_private(self.keys, "".join(key_pem(each.key) for each in authorities if each.key is not None))
        write_public(self.certificates, [each.certificate for each in authorities])


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


def _fits(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> bool:
    return key.public_key() == certificate.public_key()
