"""The address of an API server and the credentials for it, from kubeconfig files or a pod's service account."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import tempfile
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from dralloc.kube.manifests import read_manifest
from dralloc.primitives.decoders import UNREADABLE, make_decoder

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
UNSUPPORTED: Final = (
    *("proxy-url", "tls-server-name"),
    *("auth-provider", "username", "as", "as-uid", "as-groups", "as-user-extra"),
)

_Files = Sequence[tuple[Path, dict[str, Any]]]


class BadKubeconfig(Exception):
    """The kubeconfig is missing, unreadable or incomplete; the message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionConfig:
    """A server and the credentials for it. Certificates are PEM text."""

    server: str
    token: str | None = None
    authority_pem: str | None = None
    certificate_pem: str | None = None
    key_pem: str | None = None
    verify: bool = True
    namespace: str = "default"
    # Reloads the credentials, which may have changed; raises BadKubeconfig. May block for long.
    renew: Callable[[], ConnectionConfig] | None = field(default=None, compare=False, repr=False)

    def ssl_context(self) -> ssl.SSLContext | bool:
        """Returns the TLS settings for this server; `True` (the system's authorities) by default. Raises SSLError or ValueError."""
        if not self.server.startswith("https"):
            return True
        if self.verify and self.authority_pem is None and self.certificate_pem is None:
            return True
        if self.authority_pem is not None and not self.authority_pem.strip():
            # As a file that is being written. To `ssl` it would mean the system's authorities.
            raise ssl.SSLError("the certificate authority is empty")
        context = ssl.create_default_context(cadata=self.authority_pem)
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate_pem is not None and self.key_pem is not None:
            _load_certificate(context, self.certificate_pem + "\n" + self.key_pem)
        return context


def find_connection(kubeconfig: str | Path | None = None, *, context: str | None = None) -> ConnectionConfig:
    """Finds the connection that kubectl would use: the given file, `$KUBECONFIG`, the pod's service account,
    `~/.kube/config`.
    """
    if _is_in_cluster(kubeconfig):
        return _in_cluster()
    return read_kubeconfig(*_kubeconfig_files(kubeconfig), context=context)


def context_names(kubeconfig: str | Path | None = None) -> list[str]:
    """The names of the contexts that `find_connection` could be asked for."""
    entries = (entry for path in _kubeconfig_files(kubeconfig) for entry in _read(path).get("contexts") or ())
    return [str(entry["name"]) for entry in entries if isinstance(entry, dict) and entry.get("name")]


def _kubeconfig_files(kubeconfig: str | Path | None) -> list[Path]:
    """The given file, those of `$KUBECONFIG` that exist, or `~/.kube/config`."""
    if kubeconfig is not None:
        return [Path(kubeconfig)]
    if listed := os.environ.get("KUBECONFIG"):
        existing = [path for part in listed.split(os.pathsep) if part and (path := Path(part)).is_file()]
        if not existing:
            reason = "is a directory" if Path(listed).is_dir() else "does not exist"
            raise BadKubeconfig(f"KUBECONFIG names {listed}, which {reason}")
        return existing
    return [Path.home() / ".kube" / "config"]


def read_kubeconfig(*paths: Path, context: str | None = None) -> ConnectionConfig:
    """Returns the connection of the current or the given context. Of several files, the first value wins."""
    files = [(path, _read(path)) for path in paths]
    with _explained(paths):
        found = _connection_in(files, context)
        _check(found)
        return replace(found, renew=partial(read_kubeconfig, *paths, context=context))


@contextmanager
def _explained(paths: Sequence[Path]) -> Iterator[None]:
    """What goes wrong inside the block is the fault of these files."""
    shown = f"kubeconfig {', '.join(map(str, paths))}"
    try:
        yield
    except _Lacking as lacking:
        raise BadKubeconfig(f"{shown} {lacking}") from None
    except ProgramFailed as failed:
        raise BadKubeconfig(f"{shown}: {failed}") from None
    except (AttributeError, KeyError, TypeError, ValueError, OSError) as error:
        raise BadKubeconfig(f"{shown} is not complete: {type(error).__name__}: {error}") from error


class _Lacking(Exception):
    """What is missing or unsupported in the files; the message continues a sentence that begins with their names."""


def _read(path: Path) -> dict[str, Any]:
    try:
        manifest = read_manifest(path.read_bytes())
    except FileNotFoundError:
        raise BadKubeconfig(f"kubeconfig {path} does not exist") from None
    except OSError as error:
        raise BadKubeconfig(f"cannot read kubeconfig {path}: {' '.join(str(error).split())}") from error
    if manifest.error is not None:
        raise BadKubeconfig(f"cannot read kubeconfig {path}: line {manifest.error.position.line}: {manifest.error}")
    trees = [document.tree for document in manifest.documents]
    if len(trees) != 1 or not isinstance(trees[0], dict):
        raise BadKubeconfig(f"{path} is not a kubeconfig: it has no clusters, users and contexts")
    return trees[0]


def _context_in(files: _Files, context: str | None) -> dict[str, Any]:
    chosen = context or next(filter(None, (document.get("current-context") for _, document in files)), None)
    if chosen is None:
        raise _Lacking("has no current context; choose one with --context")
    about, _ = _named(files, "context", chosen)
    return about


def _connection_in(files: _Files, context: str | None) -> ConnectionConfig:
    about = _context_in(files, context)
    cluster, cluster_file = _named(files, "cluster", about["cluster"])
    user, user_file = _named(files, "user", about["user"]) if about.get("user") else ({}, cluster_file)
    # Ignoring a proxy or an impersonation would be worse than failing.
    if ignored := [name for name in UNSUPPORTED if user.get(name) or cluster.get(name)]:
        raise _Lacking(f"uses {ignored[0]}, which is not supported")
    given = run_credential_program(user["exec"], cluster, user_file.parent) if user.get("exec") else None
    return ConnectionConfig(
        server=cluster["server"],
        token=given.token if given else user.get("token") or _token(user.get("tokenFile"), user_file),
        authority_pem=_pem(cluster, "certificate-authority", cluster_file),
        certificate_pem=given.certificate_pem if given else _pem(user, "client-certificate", user_file),
        key_pem=given.key_pem if given else _pem(user, "client-key", user_file),
        verify=not cluster.get("insecure-skip-tls-verify", False),
        namespace=about.get("namespace") or "default",
    )


def _check(connection: ConnectionConfig) -> None:
    """Raises if no request could be sent with this configuration."""
    server, token = connection.server, connection.token
    try:
        url = urlsplit(server)
        is_usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0 and " " not in server
    except (AttributeError, TypeError, ValueError):
        is_usable = False
    if not is_usable:
        raise _Lacking(f"has a cluster whose server {server!r} is not a URL such as https://HOST:6443")
    if token is not None and not (isinstance(token, str) and token.isascii() and token.isprintable()):
        raise _Lacking("has a token with invalid characters")
    if (connection.certificate_pem is None) != (connection.key_pem is None):
        raise _Lacking("has a client certificate without its key, or a key without its certificate")
    try:
        connection.ssl_context()
    except (ssl.SSLError, ValueError) as error:
        raise _Lacking(f"has certificates that cannot be used: {error}") from None


def _named(files: _Files, kind: str, name: str) -> tuple[dict[str, Any], Path]:
    """Returns a context, cluster or user by its name, and the file that defines it."""
    for path, document in files:
        for entry in document.get(f"{kind}s") or ():
            if entry.get("name") == name:
                return entry[kind] or {}, path
    raise _Lacking(f"has no {kind} named {name!r}")


def _pem(section: dict[str, Any], name: str, path: Path) -> str | None:
    if inline := section.get(f"{name}-data"):
        return _pem_text(b64decode(inline))
    content = _file_content(section.get(name), path)
    return _pem_text(content) if content is not None else None


def _pem_text(content: bytes) -> str:
    """The text without what PEM does not have: a byte order mark, comments that are not ASCII."""
    return content.decode("ascii", errors="ignore").strip()


def _token(name: str | None, kubeconfig: Path) -> str | None:
    content = _file_content(name, kubeconfig)
    return content.decode(errors="replace").strip() if content is not None else None


def _file_content(name: str | None, kubeconfig: Path) -> bytes | None:
    """Returns the file's content; a relative path is relative to the kubeconfig, as for kubectl."""
    return (kubeconfig.parent / name).read_bytes() if name else None


def _is_in_cluster(kubeconfig: str | Path | None) -> bool:
    return kubeconfig is None and not os.environ.get("KUBECONFIG") and (SERVICE_ACCOUNT / "token").is_file()


def _in_cluster() -> ConnectionConfig:
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "kubernetes.default.svc")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    return ConnectionConfig(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        token=(SERVICE_ACCOUNT / "token").read_text().strip(),
        authority_pem=_pem_text((SERVICE_ACCOUNT / "ca.crt").read_bytes()),
        namespace=(SERVICE_ACCOUNT / "namespace").read_text().strip(),
        # The kubelet writes a new token before the old one expires.
        renew=_in_cluster,
    )


def _load_certificate(context: ssl.SSLContext, pem: str) -> None:
    """Python loads client certificates from files only, so the text is written to a private temporary file."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)


# --- Exec credentials -----------------------------------------------------------------------------------------------
# Credentials from exec plugins of a kubeconfig (`users[].exec`).


VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
# The plugin may ask its user for a password.
PATIENCE_S: Final = 120.0


class ProgramFailed(Exception):
    """The plugin returned no credentials; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecCredential:
    """The plugin's result: a token, a certificate with its key, or both. PEM text."""

    token: str | None
    certificate_pem: str | None
    key_pem: str | None


class _Variable(msgspec.Struct):
    name: str
    value: str = ""


class _Exec(msgspec.Struct, rename="camel"):
    """The `exec` section of a kubeconfig's user."""

    command: str
    api_version: str
    args: Sequence[str] | None = None
    env: Sequence[_Variable] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: _Status = msgspec.field(default_factory=_Status)


def run_credential_program(section: object, cluster: Mapping[str, Any], directory: Path) -> ExecCredential:
    """Returns the plugin's credentials for this cluster. A relative path is relative to the kubeconfig's directory, as
    for kubectl.
    """
    make_decoder(_Exec)  # Reuses what the decoder learned about the type.
    try:
        program = msgspec.convert(section, _Exec)
    except msgspec.ValidationError as error:
        raise ProgramFailed(f"invalid exec section: {error}") from None
    if program.api_version not in VERSIONS:
        raise ProgramFailed(f"unsupported apiVersion {program.api_version!r} of exec; supported: {', '.join(VERSIONS)}")
    command = str(directory / program.command) if os.sep in program.command else program.command
    answer = _run([command, *(program.args or ())], _environment(program, cluster), program.install_hint)
    try:
        credential = make_decoder(_ExecCredential).decode(answer)
    except UNREADABLE as error:
        raise ProgramFailed(f"{command} printed no ExecCredential: {error}") from None
    status = credential.status
    if not status.token and not (status.client_certificate_data and status.client_key_data):
        raise ProgramFailed(f"{command} returned neither a token nor a certificate with its key")
    return ExecCredential(
        token=status.token, certificate_pem=status.client_certificate_data, key_pem=status.client_key_data
    )


def _environment(program: _Exec, cluster: Mapping[str, Any]) -> dict[str, str]:
    is_interactive = program.interactive_mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
    spec: dict[str, Any] = {"interactive": is_interactive}
    if program.provide_cluster_info:
        spec["cluster"] = {name: value for name, value in cluster.items() if name != "extensions"}
    told = {"apiVersion": program.api_version, "kind": "ExecCredential", "spec": spec}
    added = {variable.name: variable.value for variable in program.env or ()}
    return {**os.environ, **added, "KUBERNETES_EXEC_INFO": json.dumps(told)}


def _run(command: list[str], environment: dict[str, str], hint: str) -> bytes:
    """Returns the plugin's standard output; its standard error goes to the user."""
    try:
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stdin=None, check=False, timeout=PATIENCE_S
        )
    except OSError as error:
        advice = f"; {hint.strip()}" if hint else ""
        raise ProgramFailed(f"cannot run {command[0]}: {error.strerror or error}{advice}") from None
    except subprocess.TimeoutExpired:
        raise ProgramFailed(f"{command[0]} did not finish within {PATIENCE_S:.0f} s") from None
    if done.returncode != 0:
        raise ProgramFailed(f"{command[0]} failed with exit code {done.returncode}")
    return done.stdout
