"""The `tls` directory as release 0.1 left it: several authorities in a file, and certificates for a year."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dralloc.server.identity.certificates import LOCAL_NAMES, TlsFiles

_HOUR = timedelta(hours=1)


def earlier_certificates(directory: Path, now: datetime, *, authorities: int = 1, years_apart: int = 0) -> TlsFiles:
    """The newest authority is first, and the earliest has signed what the server shows, as before `dralloc rotate server`."""
    begins = [now + timedelta(days=365 * years_apart * index) for index in reversed(range(authorities))]
    made = [_authority(begin, index) for index, begin in enumerate(begins)]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "ca.crt").write_bytes(b"".join(_pem(certificate) for certificate, _ in made))
    (directory / "ca.key").write_bytes(b"".join(_key_pem(key) for _, key in made))
    names: list[x509.GeneralName] = []
    for name in LOCAL_NAMES:
        is_address = name[0].isdecimal() or ":" in name
        names.append(x509.IPAddress(ipaddress.ip_address(name)) if is_address else x509.DNSName(name))
    for name, subject, usage, covered in (
        ("server", [(NameOID.COMMON_NAME, "dralloc-apiserver")], ExtendedKeyUsageOID.SERVER_AUTH, names),
        (
            "kubelet-client",
            [(NameOID.ORGANIZATION_NAME, "system:masters"), (NameOID.COMMON_NAME, "kube-apiserver-kubelet-client")],
            ExtendedKeyUsageOID.CLIENT_AUTH,
            [],
        ),
    ):
        key = ec.generate_private_key(ec.SECP256R1())
        signer, signing_key = made[-1]
        certificate = _builder(_name(subject), signer.subject, key, now, now + timedelta(days=365))
        if covered:
            certificate = certificate.add_extension(x509.SubjectAlternativeName(covered), critical=False)
        certificate = certificate.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        (directory / f"{name}.crt").write_bytes(_pem(certificate.sign(signing_key, hashes.SHA256())))
        (directory / f"{name}.key").write_bytes(_key_pem(key))
    files = ("ca.crt", "server.crt", "server.key", "kubelet-client.crt", "kubelet-client.key")
    return TlsFiles(*(directory / name for name in files))


def _authority(begin: datetime, index: int) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name([(NameOID.COMMON_NAME, f"dralloc-ca-{begin:%Y%m%d}-0000000{index}")])
    builder = _builder(name, name, key, begin, begin + timedelta(days=3650))
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    return builder.add_extension(constraints, critical=True).sign(key, hashes.SHA256()), key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    serial = x509.random_serial_number()
    return x509.CertificateBuilder(issuer, subject, key.public_key(), serial, begin - _HOUR, end)


def _name(parts: Sequence[tuple[x509.ObjectIdentifier, str]]) -> x509.Name:
    return x509.Name([x509.NameAttribute(part, text) for part, text in parts])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
