"""Servers that do not answer: each ends in one line that says what to do, and never in a traceback."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from dralloc.cli.main import app
from dralloc.server.identity.certificates import ensure_certificates
from tests.support.api_thread import ApiThread, Said, api_thread, refused
from tests.support.ports import free_port

COMMANDS = [("top", "devices"), ("explain", "pod", "p"), ("allocate",), ("get", "pods"), ("record",)]


def kubeconfig(path: Path, server: object, *, cluster: dict[str, str] | None = None, **user: object) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "u", "user": user}],
    }
    file = path / "config"
    file.write_text(yaml.safe_dump(document))
    return file


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env=environment)


def assert_one_line(told: Result, *words: str) -> None:
    assert told.exit_code == 2
    assert told.stdout == ""
    [line] = told.stderr.splitlines()
    for word in words:
        assert word in line


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiThread]:
    with api_thread(tmp_path_factory.mktemp("api")) as running:
        yield running


@contextmanager
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_nobody_listens(tmp_path: Path, command: tuple[str, ...]) -> None:
    told = run(*command, "--kubeconfig", str(kubeconfig(tmp_path, f"http://127.0.0.1:{free_port()}")))
    assert_one_line(told, "nothing listens at http://127.0.0.1:", "dralloc up starts one", "--kubeconfig")
    assert ("or name files with -f" in told.stderr) == (command[0] in ("top", "explain", "allocate"))


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_credentials_that_are_not_known(tmp_path: Path, api: ApiThread, command: tuple[str, ...]) -> None:
    told = run(*command, "--kubeconfig", str(kubeconfig(tmp_path, api.url, token="expired")))
    assert_one_line(told, "rejects your credentials", "get a new kubeconfig")


def test_no_rights_at_all(api: ApiThread) -> None:
    api.answers["/apis"] = refused(403, "Forbidden", 'forbidden: User "jane" cannot get path "/apis"')
    try:
        told = run("top", "devices", "--kubeconfig", str(api.kubeconfig))
    finally:
        api.answers.clear()
    assert_one_line(told, "denies access", "jane", "choose another user with --context")


def test_no_kubernetes_behind_the_address(api: ApiThread) -> None:
    api.answers["/apis"] = refused(404, "", "page not found")
    try:
        told = run("top", "devices", "--kubeconfig", str(api.kubeconfig))
    finally:
        api.answers.clear()
    assert_one_line(told, "/apis does not exist", "the address of a Kubernetes API server")


def test_answers_that_make_no_sense(api: ApiThread) -> None:
    api.answers["/apis/resource.k8s.io/v1/resourceslices"] = Said(200, {"items": "nonsense"})
    try:
        told = run("top", "devices", "--kubeconfig", str(api.kubeconfig))
    finally:
        api.answers.clear()
    assert_one_line(told, "sent a response that this version of dralloc cannot decode")


def test_a_host_that_does_not_exist(tmp_path: Path) -> None:
    told = run("top", "devices", "--kubeconfig", str(kubeconfig(tmp_path, "http://nowhere.invalid:6443")))
    assert_one_line(told, "the host name of http://nowhere.invalid:6443 cannot be resolved")


@pytest.mark.parametrize("server", ["nonsense", "", 5, "ftp://x", "http://a b", "http://h:abc", "http://h:99999"])
def test_a_server_that_is_no_url(tmp_path: Path, server: object) -> None:
    told = run("get", "pods", "--kubeconfig", str(kubeconfig(tmp_path, server)))
    assert_one_line(told, f"server {server!r} is not a URL such as https://HOST:6443")


PEM = "bm9uc2Vuc2U="


@pytest.mark.parametrize(
    ("cluster", "user", "said"),
    [
        ({}, {"token": "a\nb"}, "a token with invalid characters"),
        ({}, {"token": "ключ"}, "a token with invalid characters"),
        ({}, {"token": 5}, "a token with invalid characters"),
        ({"certificate-authority-data": PEM}, {}, "certificates that cannot be used"),
        ({"certificate-authority": "nowhere"}, {}, "No such file"),
        ({}, {"client-certificate-data": PEM}, "a client certificate without its key"),
        ({}, {"client-certificate-data": PEM, "client-key-data": PEM}, "certificates that cannot be used"),
    ],
)
def test_credentials_that_cannot_be_used(
    tmp_path: Path, cluster: dict[str, str], user: dict[str, object], said: str
) -> None:
    file = kubeconfig(tmp_path, "https://127.0.0.1:1", cluster=cluster, **user)
    assert_one_line(run("get", "pods", "--kubeconfig", str(file)), said)


@pytest.mark.parametrize("text", ["", "hello", "[1, 2]", "a: [", "\x00"])
def test_files_that_are_no_kubeconfig(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    assert_one_line(run("get", "pods", "--kubeconfig", str(tmp_path / "config")), "kubeconfig", str(tmp_path))


@pytest.mark.slow
def test_a_certificate_that_nobody_vouches_for(tmp_path: Path) -> None:
    files = ensure_certificates(tmp_path, ["127.0.0.1"], datetime.now(UTC))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    with listening() as listener:
        answering = threading.Thread(target=_shake_hands, args=(listener, context))
        answering.start()
        address = f"https://127.0.0.1:{listener.getsockname()[1]}"
        told = run("top", "devices", "--kubeconfig", str(kubeconfig(tmp_path, address)))
        answering.join()
    assert_one_line(told, "cannot be verified", "certificate-authority", "get a new kubeconfig")


def _shake_hands(listener: socket.socket, context: ssl.SSLContext) -> None:
    connection, _ = listener.accept()
    # Who does not trust us says so, or hangs up.
    with connection, pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(connection, server_side=True)


@pytest.mark.slow
def test_http_where_tls_is_expected(tmp_path: Path, api: ApiThread) -> None:
    told = run("top", "devices", "--kubeconfig", str(kubeconfig(tmp_path, api.url.replace("http", "https"))))
    assert_one_line(told, "failed the TLS handshake", "must begin with http://")


@pytest.mark.parametrize("command", [("top", "devices"), ("explain", "pod", "p"), ("allocate",)], ids=" ".join)
def test_no_kubeconfig_at_all(tmp_path: Path, command: tuple[str, ...]) -> None:
    told = run(*command, HOME=str(tmp_path), KUBECONFIG="")
    assert_one_line(
        told,
        "config does not exist; choose a kubeconfig with --kubeconfig or KUBECONFIG, name files with -f, or start a cluster",
    )


def test_an_unknown_context(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, "http://127.0.0.1:1")
    told = run("top", "devices", "--kubeconfig", str(file), "--context", "there")
    assert_one_line(told, "has no context named 'there'")
    told = run("get", "pods", "--context", "there", KUBECONFIG=str(file))
    assert told.stderr.endswith("has no context named 'there'\n"), "a cluster is named, so no other one is proposed"


@pytest.mark.parametrize("named", ["", "absent"])
def test_who_names_no_cluster_is_led_to_that_of_up(tmp_path: Path, named: str) -> None:
    places = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path), "KUBECONFIG": named and str(tmp_path / named)}
    assert_one_line(run("get", "pods", **places), ", or start a cluster: dralloc up")
    left = tmp_path / "dralloc" / "kubeconfig"
    left.parent.mkdir()
    left.touch()
    assert_one_line(run("get", "pods", **places), f", or use that of dralloc up: export KUBECONFIG={left}")
