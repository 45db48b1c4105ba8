"""Tokens, certificates and the kubeconfig: who is let in, and what lies on the disk."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from dralloc.api.manifests import read_manifest
from dralloc.apiserver.credentials.certificates import ensure_certificates
from dralloc.apiserver.credentials.kubeconfig import UnusableKubeconfig, write_kubeconfig
from dralloc.apiserver.http.authentication import (
    ADMINISTRATOR,
    Authenticator,
    BadTokenFile,
    User,
    administrator_token,
    load_token_file,
)

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


# --- The kubeconfig -----------------------------------------------------------------------------------------------


def written(path: Path, server: str = "https://127.0.0.1:6443") -> dict[str, Any]:
    """The kubeconfig, once a server was added to what is there."""
    write_kubeconfig(path, server=server, authority_pem=b"pem", token="secret")
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    return document


OURS = {
    "clusters": [
        {"name": "dralloc", "cluster": {"server": "https://127.0.0.1:6443", "certificate-authority-data": "cGVt"}}
    ],
    "users": [{"name": "dralloc-admin", "user": {"token": "secret"}}],
    "contexts": [{"name": "dralloc", "context": {"cluster": "dralloc", "user": "dralloc-admin"}}],
}
# With what people have in theirs: dates and words that are texts, and parts that we know nothing of.
OTHERS = """\
apiVersion: v1
kind: Config
preferences: {colors: true}
current-context: work
clusters:
- name: work
  cluster: {server: "https://work.example:6443", tls-server-name: "on"}
  extensions: [{name: notes, extension: {last-update: 2026-01-01T00:00:00Z}}]
users: [{name: me, user: {token: "0123"}}]
contexts: [{name: work, context: {cluster: work, user: me, namespace: tëam}}]
"""


def test_a_new_kubeconfig_is_complete_and_private(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "kubeconfig"
    assert written(path) == {"apiVersion": "v1", "kind": "Config", **OURS, "current-context": "dralloc"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_a_kubeconfig_says_of_other_clusters_stays(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(OTHERS)
    path.chmod(0o640)
    (tmp_path / "link").symlink_to(path)
    before = read_manifest(OTHERS.encode()).documents[0].tree
    written(tmp_path / "link", "http://127.0.0.1:1")
    # The second start finds our own entries, too.
    written(tmp_path / "link")
    after = read_manifest(path.read_bytes()).documents[0].tree
    assert after == {**before, **{part: before[part] + OURS[part] for part in OURS}, "current-context": "dralloc"}
    assert (stat.S_IMODE(path.stat().st_mode), (tmp_path / "link").is_symlink()) == (0o640, True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["config", "link"]


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "{}", "clusters: null\nusers: []\n", '{"kind": "Config"}'])
def test_a_kubeconfig_that_says_nothing_is_filled(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    assert {part: written(path)[part] for part in OURS} == OURS


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"my notes", "something else than a kubeconfig"),
        (b"apiVersion: v1\nkind: Pod\n", "something else than a kubeconfig"),
        (b"name: mine\n", "something else than a kubeconfig"),
        (b"clusters: {work: {}}\n", "something else than a kubeconfig"),
        (b"clusters: [work]\n", "something else than a kubeconfig"),
        (b"kind: Config\n---\nkind: Config\n", "something else than a kubeconfig"),
        (b"clusters:\n- name: [\n", "line 3: not YAML"),
        (b"\xff\xfe", "line 1: not UTF-8"),
        (b"[" * 10_000, "nested too deeply"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_left_as_it_is(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "notes"
    path.write_bytes(content)
    with pytest.raises(UnusableKubeconfig, match=f"cannot write the kubeconfig {path}: .*{says}"):
        written(path)
    assert path.read_bytes() == content
    assert [each.name for each in tmp_path.iterdir()] == ["notes"]


def test_a_kubeconfig_is_written_to_files_only(tmp_path: Path) -> None:
    for place in (tmp_path, Path("/dev/null")):
        with pytest.raises(UnusableKubeconfig, match="it is no file"):
            written(place)
    (tmp_path / "file").touch()
    with pytest.raises(UnusableKubeconfig, match=f"{tmp_path}/file/config: "):
        written(tmp_path / "file" / "config")
