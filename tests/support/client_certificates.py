"""Client certificates, signed by the authority of a server or by none."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def client_certificate(directory: Path, signer: Path | None, name: str, group: str) -> tuple[str, str]:
    """The files of a new certificate for the user. `signer` is the directory of the authority; without one, it is self-signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group), x509.NameAttribute(NameOID.COMMON_NAME, name)]
    )
    issuer, signing_key = subject, key
    if signer is not None:
        issuer = x509.load_pem_x509_certificate((signer / "ca.crt").read_bytes()).subject
        loaded = serialization.load_pem_private_key((signer / "ca.key").read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signing_key = loaded
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .sign(signing_key, hashes.SHA256())
    )
    certificate_path, key_path = directory / "client.crt", directory / "client.key"
    certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(certificate_path), str(key_path)


def node_kubeconfig(administrators: Path, server_directory: Path, node: str) -> Path:
    """A kubeconfig for the cluster of another one, with a certificate for the identity of the node."""
    return user_kubeconfig(administrators, server_directory, f"system:node:{node}", "system:nodes", file=node)


def user_kubeconfig(administrators: Path, server_directory: Path, user_name: str, group: str, *, file: str) -> Path:
    """A kubeconfig for the cluster of another one, with a certificate for the user."""
    config = yaml.safe_load(administrators.read_text())
    names = client_certificate(server_directory, server_directory / "tls", user_name, group)
    certificate, key = (b64encode(Path(name).read_bytes()).decode() for name in names)
    (user,) = config["users"]
    user["user"] = {"client-certificate-data": certificate, "client-key-data": key}
    path = server_directory / f"{file}.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path
