"""The server that a command works with: finding it, talking to it, and saying what to do where that fails."""

from __future__ import annotations

import socket
import ssl
import sys
from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from msgspec import MsgspecError

from dralloc.cli.output import INTERRUPTED, fail
from dralloc.cli.progress import patience
from dralloc.cli.termination import run_until_terminated
from dralloc.client.discovery import UnknownKind
from dralloc.client.http_transport import HttpTransport
from dralloc.client.kubeconfig import BadKubeconfig, ConnectionConfig, find_connection
from dralloc.client.transport import Transport, TransportError
from dralloc.kube.codec import DecodeError
from dralloc.primitives.errors import ApiError, Forbidden, Unauthorized

Answer = TypeVar("Answer")

CHOOSE: Final = "choose a kubeconfig with --kubeconfig or KUBECONFIG"
# Chains of causes are short; this only keeps a circle from holding us.
_CAUSES_MAX: Final = 10


def find_server(kubeconfig: Path | None, context: str | None, *, otherwise: str = "") -> ConnectionConfig:
    """The server that is meant. `otherwise` is what else the user could do where there is none."""
    try:
        return find_connection(kubeconfig, context=context)
    except BadKubeconfig as error:
        is_named = kubeconfig is not None or context is not None
        ways = list(filter(None, (otherwise,) if is_named else (CHOOSE, otherwise, _cluster_of_ours())))
        *others, last = ways or [""]
        fail(f"{error}{'; ' if ways else ''}{', '.join(others)}{', or ' if others else ''}{last}")


def _cluster_of_ours() -> str:
    """How to come to a cluster where none is named."""
    from dralloc.cli.up import default_directory

    left = default_directory() / "kubeconfig"
    return f"use that of dralloc up: export KUBECONFIG={left}" if left.is_file() else "start a cluster: dralloc up"


def ask_server(
    connection: ConnectionConfig,
    work: Callable[[Transport], Awaitable[Answer]],
    *,
    is_endless: bool = False,
    doing: str = "",
    otherwise: str = "",
    loop_factory: Callable[[], AbstractEventLoop] | None = None,
) -> Answer:
    """What the work answers. Ends the command with a line that says what to do where the server does not.

    Work that is endless is ended by Ctrl-C, and that is as it should be. `doing` is told who waits for long,
    `otherwise` who cannot reach the server: what else they could do.
    """

    async def run() -> Answer:
        transport = HttpTransport(connection)
        try:
            async with patience(doing):
                return await work(transport)
        finally:
            await transport.close()

    try:
        return run_until_terminated(run(), loop_factory)
    except (ApiError, TransportError, DecodeError, MsgspecError, UnknownKind) as error:
        also = f", or {otherwise}" if otherwise and isinstance(error, TransportError) else ""
        fail(what_to_do(error, connection.server) + also)
    except KeyboardInterrupt:
        if is_endless:
            sys.exit(0)
        fail("interrupted", INTERRUPTED)


def what_to_do(error: Exception, server: str) -> str:
    """What went wrong with the server, and what helps."""
    match error:
        case Unauthorized():
            return (
                f"{server} rejects your credentials: the token or certificate of the kubeconfig has expired or is for "
                "another cluster; get a new kubeconfig, or choose another one with --kubeconfig or --context"
            )
        case Forbidden():
            return f"{server} denies access: {error}; get the permission, or choose another user with --context"
        case TransportError():
            return _unreached(error, server)
        case DecodeError() | MsgspecError():
            return _undecodable(error, server)
        case _:
            return f"{server}: {error}"


def _unreached(error: TransportError, server: str) -> str:
    for cause in _causes(error):
        match cause:
            case ssl.SSLCertVerificationError():
                return (
                    f"the certificate of {server} cannot be verified ({cause.verify_message}): the kubeconfig's "
                    "certificate-authority is outdated or belongs to another cluster; get a new kubeconfig"
                )
            case ssl.SSLError():
                return (
                    f"{server} failed the TLS handshake ({cause.reason or cause}); if it serves plain http, "
                    "the kubeconfig's server must begin with http://"
                )
            case ConnectionRefusedError():
                return (
                    f"nothing listens at {server}; start a server there (dralloc up starts one), "
                    "or choose another one with --kubeconfig or --context"
                )
            case socket.gaierror():
                return f"the host name of {server} cannot be resolved; check the kubeconfig and the network"
            case TimeoutError():
                return f"timeout waiting for {server}; check network, firewall and VPN"
            case MsgspecError():
                return _undecodable(cause, server)
    return str(error)


def _undecodable(error: BaseException, server: str) -> str:
    return f"{server} sent a response that this version of dralloc cannot decode: {error}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, what it came from, and what that wraps."""
    for _ in range(_CAUSES_MAX):
        if error is None:
            return
        yield error
        for wrapped in (getattr(error, "os_error", None), getattr(error, "certificate_error", None)):
            if isinstance(wrapped, BaseException):
                yield wrapped
        error = error.__cause__
