"""`dralloc rotate`: certificates and keys of a running server are replaced without a restart."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.server_process import ServerProcess, server_process


def dralloc(*arguments: str, code: int = 0) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", "dralloc", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def served_certificate(server: ServerProcess, authority: Path) -> bytes:
    """What a client that trusts the authority is shown; raises if it does not accept it."""
    host, _, port = server.url.removeprefix("https://").partition(":")
    context = ssl.create_default_context(cafile=str(authority))
    with (
        socket.create_connection((host, int(port)), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=host) as secure,
    ):
        shown = secure.getpeercert(binary_form=True)
    assert shown is not None
    return shown


def eventually(question: Any) -> None:
    """The server looks at its files once a second."""
    deadline = time.monotonic() + 30
    while not question():
        assert time.monotonic() < deadline, "the server did not follow the files"
        time.sleep(0.05)


def client_certificate(directory: Path, name: str) -> ssl.SSLContext:
    """A client with a certificate of the newest authority, which trusts all of them."""
    tls = directory / "tls"
    authority = x509.load_pem_x509_certificates((tls / "ca.crt").read_bytes())[0]
    signer = serialization.load_pem_private_key((tls / "ca.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(
            x509.Name(
                [
                    x509.NameAttribute(NameOID.COMMON_NAME, name),
                    x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters"),
                ]
            )
        )
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(authority.not_valid_before_utc)
        .not_valid_after(authority.not_valid_after_utc)
        .sign(signer, hashes.SHA256())
    )
    path = directory / f"{name}.pem"
    encoding = serialization.Encoding.PEM
    path.write_bytes(
        key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(encoding)
    )
    context = ssl.create_default_context(cafile=str(tls / "ca.crt"))
    context.load_cert_chain(path)
    return context


def whoami(server: ServerProcess, context: ssl.SSLContext) -> str:
    request = Request(
        f"{server.url}/apis/authentication.k8s.io/v1/selfsubjectreviews",
        data=b"{}",
        headers={"content-type": "application/json"},
    )
    with urlopen(request, context=context, timeout=10) as answer:
        return str(json.load(answer)["status"]["userInfo"]["username"])


@pytest.mark.slow
def test_the_authority_is_replaced_while_the_server_runs(tmp_path: Path) -> None:
    where = ("--data-dir", str(tmp_path))
    trusted = tmp_path / "tls" / "ca.crt"
    with server_process(tmp_path, "--store", "memory://") as server:
        old_trust = tmp_path / "old.crt"
        old_trust.write_bytes(trusted.read_bytes())
        first = served_certificate(server, old_trust)
        old_client = client_certificate(tmp_path, "ann")
        assert whoami(server, old_client) == "ann"

        assert "kubeconfig is updated" in dralloc("rotate", "authority", *where)
        assert "earlier authority" in dralloc("rotate", "retire", *where, code=2)
        # Clients that know only the old authority still work, and so do certificates of both.
        new_client = client_certificate(tmp_path, "bob")
        eventually(lambda: _accepted(server, new_client))
        assert served_certificate(server, old_trust) == first
        assert whoami(server, old_client) == "ann"

        dralloc("rotate", "server", *where)
        eventually(lambda: served_certificate(server, trusted) != first)
        with pytest.raises(ssl.SSLError):
            served_certificate(server, old_trust)

        assert "1 earlier authority is no longer trusted" in dralloc("rotate", "retire", *where)
        eventually(lambda: not _accepted(server, old_client))
        assert _accepted(server, new_client)
        assert "default" in dralloc("get", "namespaces", "--kubeconfig", str(server.kubeconfig))


def _accepted(server: ServerProcess, context: ssl.SSLContext) -> bool:
    try:
        whoami(server, context)
    except OSError:
        return False
    return True


def test_the_key_of_tokens_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    dralloc("rotate", "tokens", "--data-dir", str(tmp_path / "data"))
    dralloc("rotate", "tokens", "--data-dir", str(tmp_path / "data"))
    assert len(list((tmp_path / "data" / "service-accounts").iterdir())) == 2


def test_a_directory_without_a_server_is_reported(tmp_path: Path) -> None:
    assert "--data-dir" in dralloc("rotate", "server", "--data-dir", str(tmp_path / "none"), code=2)
    assert "start the server once" in dralloc("rotate", "server", "--data-dir", str(tmp_path), code=2)
