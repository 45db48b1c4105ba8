"""Kubeconfigs: rotated credentials, and exec plugins."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from dralloc.client.api_calls import ApiCalls
from dralloc.client.http_transport import HttpTransport
from dralloc.client.known_resources import resource_for
from dralloc.client.kubeconfig import BadKubeconfig, find_connection, read_kubeconfig
from dralloc.kube.core_v1 import Node
from dralloc.primitives.errors import Unauthorized
from dralloc.server.http.listener import ListenAddress, listen
from dralloc.server.identity.certificates import ensure_certificates
from tests.support.api_server import TOKEN, api_application

V1 = "client.authentication.k8s.io/v1"


def kubeconfig(path: Path, user: dict[str, Any], server: str = "http://127.0.0.1:1") -> Path:
    document = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.slow
def test_a_rotated_token_is_reloaded_when_the_old_one_is_rejected(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with api_application() as application, listen(application, ListenAddress()) as url:
            token = tmp_path / "token"
            token.write_text("runs-out")
            config = kubeconfig(tmp_path / "config", {"tokenFile": "token"}, url)
            sending, streaming = HttpTransport(read_kubeconfig(config)), HttpTransport(read_kubeconfig(config))
            nodes = resource_for(Node)
            with pytest.raises(Unauthorized):
                await ApiCalls(sending).list_all(nodes)
            token.write_text(TOKEN)
            # Concurrent requests: one reloads the token, all use it.
            await asyncio.gather(*(ApiCalls(sending).list_all(nodes) for _ in range(5)))
            async for _ in ApiCalls(streaming).watch(nodes, resource_version="", timeout_s=1):
                pass
            await sending.close()
            await streaming.close()

    asyncio.run(scenario())


def with_authority(path: Path, **cluster: str) -> Path:
    document = yaml.safe_load(kubeconfig(path, {"token": "t"}, "https://127.0.0.1:1").read_text())
    document["clusters"][0]["cluster"].update(cluster)
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"\n", "certificate authority is empty"), (b"\x30\x82", "has certificates that cannot be used")],
    ids=["empty", "not PEM"],
)
def test_an_authority_that_cannot_be_used_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    """An empty one must not mean all authorities of the system."""
    path = with_authority(tmp_path / "config", **{"certificate-authority": "ca.crt"})
    (tmp_path / "ca.crt").write_bytes(content)
    with pytest.raises(BadKubeconfig, match=said):
        read_kubeconfig(path)


@pytest.mark.parametrize("before", [b"\xef\xbb\xbf", b"\xff\xfe", "# Főtanúsítvány\n".encode(), b"# autorit\xe9\n"])
@pytest.mark.parametrize("is_inline", [True, False])
def test_what_certificates_have_besides_is_no_matter(tmp_path: Path, before: bytes, is_inline: bool) -> None:
    """A byte order mark, comments in any language: editors and other systems put them into files."""
    authority = ensure_certificates(tmp_path / "tls", [], datetime.now(UTC)).authority
    content = before + authority.read_bytes()
    (tmp_path / "ca.crt").write_bytes(content)
    given = {"certificate-authority-data": b64encode(content).decode()}
    path = with_authority(tmp_path / "config", **given if is_inline else {"certificate-authority": "ca.crt"})
    context = read_kubeconfig(path).ssl_context()
    assert isinstance(context, ssl.SSLContext)
    assert len(context.get_ca_certs()) == 1


def exec_user(printed: str, **members: Any) -> dict[str, Any]:
    return {"exec": {"apiVersion": V1, "command": sys.executable, "args": ["-c", f"print({printed!r})"], **members}}


def credential(**status: str) -> str:
    return json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status})


def test_an_exec_plugin_returns_a_token_or_a_certificate(tmp_path: Path) -> None:
    path = tmp_path / "config"
    assert read_kubeconfig(kubeconfig(path, exec_user(credential(token="t")))).token == "t"
    both = credential(clientCertificateData="CERTIFICATE", clientKeyData="KEY")
    given = read_kubeconfig(kubeconfig(path, exec_user(both)))
    assert (given.token, given.certificate_pem, given.key_pem) == (None, "CERTIFICATE", "KEY")


def test_an_exec_plugin_gets_the_cluster_information(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(
        f"#!{sys.executable}\n"
        "import json, os\n"
        'told = json.loads(os.environ["KUBERNETES_EXEC_INFO"])\n'
        'token = told["spec"]["cluster"]["server"] + " " + os.environ["ACCOUNT"]\n'
        'print(json.dumps({**told, "status": {"token": token}}))\n'
    )
    program.chmod(0o700)
    section = {
        "apiVersion": V1,
        "command": "./program",
        "env": [{"name": "ACCOUNT", "value": "me"}],
        "provideClusterInfo": True,
    }
    config = kubeconfig(tmp_path / "config", {"exec": section}, "https://cluster.example")
    assert read_kubeconfig(config).token == "https://cluster.example me"


@pytest.mark.parametrize(
    ("user", "complaint"),
    [
        (exec_user("{}", apiVersion="client.authentication.k8s.io/v1alpha1"), "supported: client.authentication"),
        (exec_user("what?"), "printed no ExecCredential"),
        (exec_user(credential(clientKeyData="KEY")), "neither a token nor a certificate"),
        (exec_user("", args=["-c", "raise SystemExit(3)"]), "failed with exit code 3"),
        (exec_user("", command="no-such-program", installHint="install it"), "No such file or directory; install it"),
        ({"exec": {"apiVersion": V1}}, "invalid exec section"),
        ({"auth-provider": {"name": "oidc"}}, "uses auth-provider, which is not supported"),
        ({"token": "t", "as": "another-user"}, "uses as, which is not supported"),
    ],
)
def test_an_unsupported_user_is_a_clear_error(tmp_path: Path, user: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadKubeconfig, match=complaint):
        read_kubeconfig(kubeconfig(tmp_path / "config", user))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[" * 100_000, "cannot read kubeconfig .*: line 1: .*nested too deeply"),
        ("a: " + "[" * 100_000, "cannot read kubeconfig .*: line 1: nested more than"),
        (
            "".join(f"{' ' * depth}a:\n" for depth in range(2_000)),
            "cannot read kubeconfig .*: line .*: nested more than",
        ),
        ("a: [", "cannot read kubeconfig .*: line 2: not YAML"),
        ("", "is not a kubeconfig"),
        ("kind: Config\n---\nkind: Config\n", "is not a kubeconfig"),
        ("just a text", "is not a kubeconfig"),
    ],
    ids=["lists", "lists inside", "mappings", "no YAML", "nothing", "two", "a text"],
)
def test_an_invalid_kubeconfig_is_a_clear_error(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(BadKubeconfig, match=complaint):
        read_kubeconfig(tmp_path / "config")


def test_the_first_value_of_several_files_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contexts, clusters and users may be in different files; paths are relative to their own file."""
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / "token").write_text("from-a-file")
    files = {
        "contexts": {"current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]},
        "clusters": {"current-context": "y", "clusters": [{"name": "c", "cluster": {"server": "https://first"}}]},
        "users/users": {
            "clusters": [{"name": "c", "cluster": {"server": "https://second"}}],
            "users": [{"name": "u", "user": {"tokenFile": "token"}}],
        },
    }
    for name, content in files.items():
        (tmp_path / name).write_text(yaml.safe_dump(content))
    monkeypatch.setenv("KUBECONFIG", ":".join(str(tmp_path / name) for name in ("missing", *files)))
    found = find_connection()
    assert (found.server, found.token) == ("https://first", "from-a-file")
    with pytest.raises(BadKubeconfig, match="no context named 'y'"):
        find_connection(context="y")
