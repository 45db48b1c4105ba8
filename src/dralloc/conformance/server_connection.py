"""A plain connection to an API server for checks that must see every header; it uses the standard library only."""

from __future__ import annotations

import os
import ssl
from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from dralloc.conformance.vector_family import VectorOptions
from dralloc.primitives.decoders import UNREADABLE

TIMEOUT_S = 30.0


class CannotConnect(OSError):
    """The server cannot be reached, or its URL is invalid."""


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    code: int
    content_type: str
    warnings: tuple[str, ...]
    body: bytes
    # Names are lower case.
    headers: Mapping[str, str]

    @property
    def document(self) -> Any:
        """The body as JSON, or `None` if it is not JSON."""
        try:
            return msgspec.json.decode(self.body)
        except UNREADABLE:
            return None


@dataclass(frozen=True, slots=True)
class ServerCredentials:
    """How to verify the server, and the token to authenticate with."""

    token: str | None = None
    authority_pem: str | None = None


def connect(options: VectorOptions) -> ServerConnection:
    if options.server is None:
        raise CannotConnect("no server given: use --server URL")
    return ServerConnection(
        options.server, find_credentials(options.server, token=options.token, kubeconfig=options.kubeconfig)
    )


def find_credentials(server: str, *, token: str | None = None, kubeconfig: Path | None = None) -> ServerCredentials:
    """Returns the given token, or the credentials for this server in a kubeconfig (the given one, `$KUBECONFIG`, or the
    default).
    """
    if token is not None:
        return ServerCredentials(token=token)
    candidates = [kubeconfig] if kubeconfig else [*_default_kubeconfigs()]
    for path in candidates:
        if path.is_file() and (found := _credentials_in(path, server if kubeconfig is None else None)):
            return found
    return ServerCredentials()


def _default_kubeconfigs() -> list[Path]:
    named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return [*named, Path.home() / ".kube" / "config", Path.home() / ".dralloc" / "kubeconfig"]


def _credentials_in(path: Path, server: str | None) -> ServerCredentials | None:
    """Returns the credentials of the context for this server, or of the current context if no server is given."""
    document = yaml.safe_load(path.read_text()) or {}
    clusters = {entry["name"]: entry.get("cluster") or {} for entry in document.get("clusters") or []}
    users = {entry["name"]: entry.get("user") or {} for entry in document.get("users") or []}
    for entry in document.get("contexts") or []:
        context = entry.get("context") or {}
        cluster = clusters.get(context.get("cluster"), {})
        wanted = entry["name"] == document.get("current-context") if server is None else cluster.get("server") == server
        if wanted:
            authority = cluster.get("certificate-authority-data")
            return ServerCredentials(
                token=users.get(context.get("user"), {}).get("token"),
                authority_pem=b64decode(authority).decode("ascii") if authority else None,
            )
    return None


class ServerConnection:
    """One kept-alive connection to one server."""

    def __init__(self, server: str, credentials: ServerCredentials) -> None:
        parts = urlsplit(server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CannotConnect(f"not a server URL: {server!r}")
        self._credentials = credentials
        self._connection: HTTPConnection
        if parts.scheme == "https":
            self._connection = HTTPSConnection(
                parts.hostname,
                parts.port,
                timeout=TIMEOUT_S,
                context=ssl.create_default_context(cadata=credentials.authority_pem),
            )
        else:
            self._connection = HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_S)

    def __enter__(self) -> ServerConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | Iterable[tuple[str, str]],
        body: bytes | None,
        *,
        with_token: bool = True,
    ) -> ServerAnswer:
        """Send a request, with the connection's token unless the headers have a credential."""
        sent = list(headers.items() if isinstance(headers, Mapping) else headers)
        names = {name.lower() for name, _ in sent}
        if "accept" not in names:
            sent.append(("Accept", "application/json"))
        if with_token and self._credentials.token and "authorization" not in names:
            sent.append(("Authorization", f"Bearer {self._credentials.token}"))
        if body is not None or method in ("POST", "PUT", "PATCH"):
            sent.append(("Content-Length", str(len(body or b""))))
        try:
            self._connection.putrequest(method, path)
            for name, value in sent:
                self._connection.putheader(name, value)
            self._connection.endheaders(body)
            answer = self._connection.getresponse()
            content = answer.read()
        except ssl.SSLCertVerificationError as error:
            self._connection.close()
            raise CannotConnect(
                f"the server's certificate is not trusted ({error.verify_message}): use --kubeconfig"
            ) from error
        except (OSError, HTTPException) as error:
            self._connection.close()
            raise CannotConnect(f"{method} {path}: {error}") from error
        return ServerAnswer(
            code=answer.status,
            content_type=answer.headers.get("Content-Type", ""),
            warnings=tuple(answer.headers.get_all("Warning") or ()),
            body=content,
            headers={name.lower(): value for name, value in answer.headers.items()},
        )
