"""Signs certificates for approved requests with the newest authority: the signers of Kubernetes that a server of its own trusts.

What each signer accepts is as in Kubernetes: clients, clients that are nodes, and the servers of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dralloc.access.users import NODE_PREFIX, NODES
from dralloc.apiserver.credentials.certificate_authorities import BACKDATE
from dralloc.apiserver.credentials.certificates import SERVER_LIFETIME, signing_authority

CLIENT: Final = "kubernetes.io/kube-apiserver-client"
NODE_CLIENT: Final = "kubernetes.io/kube-apiserver-client-kubelet"
NODE_SERVER: Final = "kubernetes.io/kubelet-serving"
LIFETIME_MIN: Final = timedelta(minutes=10)
_KEY_BITS_MIN: Final = 2048

_OPTIONAL_USAGES: Final = frozenset({"digital signature", "key encipherment"})
_USAGES: Final = {"client auth": ExtendedKeyUsageOID.CLIENT_AUTH, "server auth": ExtendedKeyUsageOID.SERVER_AUTH}
_NEEDED_USAGE: Final = {CLIENT: "client auth", NODE_CLIENT: "client auth", NODE_SERVER: "server auth"}


class UnsignableRequest(ValueError):
    """The request is malformed, or its signer does not sign such requests."""


def load_request(pem: bytes) -> x509.CertificateSigningRequest:
    """The request in the PEM, with a valid signature; raises UnsignableRequest."""
    try:
        request = x509.load_pem_x509_csr(pem)
        if not request.is_signature_valid:
            raise UnsignableRequest("the signature of the request does not fit its key")
        _ = request.subject, list(request.extensions)
        return request
    except (ValueError, InvalidSignature, UnsupportedAlgorithm) as error:
        if isinstance(error, UnsignableRequest):
            raise
        raise UnsignableRequest("it must be a PEM block of the type CERTIFICATE REQUEST") from None


def groups_of(request: x509.CertificateSigningRequest) -> tuple[str, ...]:
    return tuple(str(each.value) for each in request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))


class CertificateSigner:
    """Signs with the authority in a directory (`certificates`)."""

    def __init__(self, directory: Path, now: Callable[[], datetime]) -> None:
        self._directory = directory
        self._now = now

    def sign(self, pem: bytes, signer: str, usages: Collection[str], lifetime_s: int | None) -> bytes | None:
        """The certificate as PEM; None if the signer is another one. Raises UnsignableRequest."""
        if signer not in _NEEDED_USAGE:
            return None
        request = load_request(pem)
        _check(request, signer, frozenset(usages))
        now = self._now()
        signing = signing_authority(self._directory, now)
        authority, key = signing.certificate, signing.key
        assert key is not None
        wanted = SERVER_LIFETIME if lifetime_s is None else timedelta(seconds=lifetime_s)
        lifetime = max(min(wanted, SERVER_LIFETIME), LIFETIME_MIN)
        builder = (
            x509.CertificateBuilder()
            .subject_name(request.subject)
            .issuer_name(authority.subject)
            .public_key(request.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(max(now - BACKDATE, authority.not_valid_before_utc))
            .not_valid_after(min(now + lifetime, authority.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(frozenset(usages)), critical=True)
            .add_extension(x509.ExtendedKeyUsage([_USAGES[_NEEDED_USAGE[signer]]]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        )
        if (names := _alternative_names(request)) is not None:
            builder = builder.add_extension(names, critical=False)
        return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _check(request: x509.CertificateSigningRequest, signer: str, usages: frozenset[str]) -> None:
    needed = _NEEDED_USAGE[signer]
    if needed not in usages or not usages <= {needed} | _OPTIONAL_USAGES:
        raise UnsignableRequest(f"usages must be {needed!r}, and optionally digital signature and key encipherment")
    key = request.public_key()
    if isinstance(key, rsa.RSAPublicKey) and key.key_size < _KEY_BITS_MIN:
        raise UnsignableRequest(f"the key has {key.key_size} bits, and needs {_KEY_BITS_MIN}")
    if not isinstance(key, rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey):
        raise UnsignableRequest("the key must be of RSA, an elliptic curve or Ed25519")
    if signer == CLIENT:
        return
    names = [str(each.value) for each in request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if groups_of(request) != (NODES,):
        raise UnsignableRequest(f"subject organization is not {NODES}")
    if len(names) != 1 or not names[0].startswith(NODE_PREFIX):
        raise UnsignableRequest(f"subject common name does not begin with {NODE_PREFIX}")
    alternatives = _alternative_names(request)
    if signer == NODE_CLIENT and alternatives is not None:
        raise UnsignableRequest("subjectAltNames are not allowed")
    if signer == NODE_SERVER:
        if alternatives is None:
            raise UnsignableRequest("DNS or IP subjectAltName is required")
        if not all(isinstance(name, x509.DNSName | x509.IPAddress) for name in alternatives):
            raise UnsignableRequest("only DNS and IP subjectAltNames are allowed")


def _alternative_names(request: x509.CertificateSigningRequest) -> x509.SubjectAlternativeName | None:
    try:
        return request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def _key_usage(usages: frozenset[str]) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature="digital signature" in usages or "key encipherment" not in usages,
        key_encipherment="key encipherment" in usages,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
