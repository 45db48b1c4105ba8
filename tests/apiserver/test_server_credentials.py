"""Tokens, certificates and the kubeconfig: who is let in, and what lies on the disk."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from dralloc.apiserver.authentication import (
    ADMINISTRATOR,
    Authenticator,
    BadTokenFile,
    User,
    administrator_token,
    load_token_file,
)
from dralloc.apiserver.certificates import ensure_certificates
from dralloc.apiserver.kubeconfig import write_kubeconfig

NOW = datetime(2026, 6, 1, tzinfo=UTC)
ANN = User(name="ann", groups=("devs",))


@pytest.mark.parametrize(
    ("authorization", "want"),
    [
        (b"Bearer secret", ANN),
        (b"bearer  secret ", ANN),
        (b"Bearer wrong", None),
        (b"Basic secret", None),
        (b"Bearer", None),
        (b"", None),
    ],
)
def test_a_token_is_checked(authorization: bytes, want: User | None) -> None:
    assert Authenticator({"secret": ANN}).user_of(authorization) == want


def test_without_a_credential_the_test_mode_lets_in_but_a_wrong_token_is_refused() -> None:
    authenticator = Authenticator({"secret": ANN}, without_credential=ADMINISTRATOR)
    assert authenticator.user_of(b"") == ADMINISTRATOR
    assert authenticator.user_of(b"Bearer wrong") is None


def test_a_certificate_proves_a_user_when_no_token_is_sent() -> None:
    assert Authenticator({}).user_of(b"", User(name="node")) == User(name="node")


def test_a_token_file_names_users(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text('# who\nt1,ann,1,"devs,ops"\nt2,bob,2\n')
    users = load_token_file(path)
    assert users["t1"] == User(name="ann", uid="1", groups=("devs", "ops", "system:authenticated"))
    assert users["t2"].groups == ("system:authenticated",)


@pytest.mark.parametrize("line", ["only-a-token", ",ann,1", "token,,1"])
def test_a_bad_token_file_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"t1,ann,1\n{line}\n")
    with pytest.raises(BadTokenFile, match="line 2"):
        load_token_file(path)


def test_the_administrator_keeps_the_token(tmp_path: Path) -> None:
    token = administrator_token(tmp_path / "data")
    assert len(token) >= 32
    assert administrator_token(tmp_path / "data") == token
    assert stat.S_IMODE((tmp_path / "data" / "admin.token").stat().st_mode) == 0o600


def test_certificates_are_made_once(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path, ["127.0.0.1"], NOW)
    before = (files.authority_pem, files.certificate.read_bytes())
    assert ensure_certificates(tmp_path, ["127.0.0.1"], NOW + timedelta(days=1)) == files
    assert (files.authority_pem, files.certificate.read_bytes()) == before
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "ca.key").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("host", "later"), [("10.1.2.3", timedelta()), ("127.0.0.1", timedelta(days=340))], ids=["new address", "old"]
)
def test_the_server_certificate_is_renewed_under_the_same_authority(
    tmp_path: Path, host: str, later: timedelta
) -> None:
    files = ensure_certificates(tmp_path, ["127.0.0.1"], NOW)
    authority, first = files.authority_pem, files.certificate.read_bytes()
    ensure_certificates(tmp_path, [host], NOW + later)
    assert files.certificate.read_bytes() != first
    assert files.authority_pem == authority
    renewed = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    renewed.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))


def test_a_kubeconfig_is_complete_and_private(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "kubeconfig"
    path.parent.mkdir()
    path.write_text("old")
    path.chmod(0o644)
    write_kubeconfig(path, server="https://127.0.0.1:6443", authority_pem=b"pem", token="secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    document = yaml.safe_load(path.read_text())
    assert document["current-context"] == "dralloc"
    assert document["users"][0]["user"]["token"] == "secret"
    assert document["clusters"][0]["cluster"] == {
        "server": "https://127.0.0.1:6443",
        "certificate-authority-data": "cGVt",
    }
