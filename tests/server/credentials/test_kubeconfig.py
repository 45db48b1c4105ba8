"""The kubeconfig file: complete and private, and the entries of other clusters are kept."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from dralloc.kube.manifests import read_manifest
from dralloc.server.identity.kubeconfig import UnusableKubeconfig, write_kubeconfig


def written(path: Path, server: str = "https://127.0.0.1:6443") -> dict[str, Any]:
    """The kubeconfig after a server was added."""
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


# With strings that look like dates and booleans, and with unknown parts.
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


def test_entries_of_other_clusters_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(OTHERS)
    path.chmod(0o640)
    (tmp_path / "link").symlink_to(path)
    before = read_manifest(OTHERS.encode()).documents[0].tree
    written(tmp_path / "link", "http://127.0.0.1:1")
    # The second start replaces the server's own entries.
    written(tmp_path / "link")
    after = read_manifest(path.read_bytes()).documents[0].tree
    assert after == {**before, **{part: before[part] + OURS[part] for part in OURS}, "current-context": "dralloc"}
    assert (stat.S_IMODE(path.stat().st_mode), (tmp_path / "link").is_symlink()) == (0o640, True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["config", "link"]


def test_an_unchanged_kubeconfig_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(OTHERS)
    written(path)
    # As a person would edit it: a comment, and our entries first.
    document = yaml.safe_load(path.read_text())
    ordered = {**document, **{part: list(reversed(document[part])) for part in OURS}}
    path.write_text("# mine\n" + yaml.safe_dump(ordered, default_style='"'))
    before = path.stat()
    written(path)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert len(written(path, "http://127.0.0.1:1")["clusters"]) == 2


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "{}", "clusters: null\nusers: []\n", '{"kind": "Config"}'])
def test_an_empty_kubeconfig_is_filled(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    assert {part: written(path)[part] for part in OURS} == OURS


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"my notes", "it is not a kubeconfig"),
        (b"apiVersion: v1\nkind: Pod\n", "it is not a kubeconfig"),
        (b"name: mine\n", "it is not a kubeconfig"),
        (b"clusters: {work: {}}\n", "it is not a kubeconfig"),
        (b"clusters: [work]\n", "it is not a kubeconfig"),
        (b"kind: Config\n---\nkind: Config\n", "it is not a kubeconfig"),
        (b"clusters:\n- name: [\n", "line 3: not YAML"),
        (b"\xff\xfe", "line 1: not UTF-8"),
        # From Python 3.12 on, the decoder reads on until the end.
        (b"[" * 10_000, "(nested too deeply|not JSON)"),
    ],
)
def test_a_file_that_is_not_a_kubeconfig_is_unchanged(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "notes"
    path.write_bytes(content)
    with pytest.raises(UnusableKubeconfig, match=f"cannot write the kubeconfig {path}: .*{says}"):
        written(path)
    assert path.read_bytes() == content
    assert [each.name for each in tmp_path.iterdir()] == ["notes"]


def test_a_kubeconfig_must_be_a_regular_file(tmp_path: Path) -> None:
    for place in (tmp_path, Path("/dev/null")):
        with pytest.raises(UnusableKubeconfig, match="it is not a file"):
            written(place)
    (tmp_path / "file").touch()
    with pytest.raises(UnusableKubeconfig, match=f"{tmp_path}/file/config: "):
        written(tmp_path / "file" / "config")
