"""Connections from this server to the streaming servers of nodes, which answer logs, exec, attach and port-forward.

The protocol on an upgraded connection is the client's and the node's own: this server copies bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dralloc.primitives.errors import ApiError, BadRequest, Forbidden, NotFound, ServiceUnavailable, Unauthorized

CONNECT_TIMEOUT_S: Final = 10.0
ANSWER_TIMEOUT_S: Final = 30.0
HEAD_BYTES_MAX: Final = 64 * 1024
ERROR_BYTES_MAX: Final = 16 * 1024
PIECE_BYTES: Final = 64 * 1024

Header = tuple[bytes, bytes]

_ERRORS: Final[dict[int, type[ApiError]]] = {400: BadRequest, 401: Unauthorized, 403: Forbidden, 404: NotFound}


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """Where a node's streaming server listens. `fingerprint` is the SHA-256 of its certificate, if the node publishes it."""

    node: str
    host: str
    port: int
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class NodeCredentials:
    """The certificate by which nodes recognize this server."""

    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """The files are read again for each connection, because they are renewed."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # A kubelet signs its own certificate unless it is told otherwise; nodes of this project publish theirs.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(self.certificate, self.key)
        return context


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """A response of a node, whose body or upgraded stream has not been read yet."""

    status: int
    headers: tuple[Header, ...]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def body(self) -> AsyncGenerator[bytes, None]:
        """The body, to the end of the connection."""
        try:
            while piece := await self.reader.read(PIECE_BYTES):
                yield piece
        finally:
            self.writer.close()

    async def tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copy bytes in both directions until one side ends."""
        directions = {
            asyncio.create_task(_copy(reader, self.writer)),
            asyncio.create_task(_copy(self.reader, writer)),
        }
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in directions:
                task.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
            self.writer.close()
            writer.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await source.read(PIECE_BYTES):
            target.write(piece)
            await target.drain()


async def ask_node(
    credentials: NodeCredentials, address: NodeAddress, method: str, target: str, headers: Iterable[Header] = ()
) -> NodeAnswer:
    """Send a request without a body; raises ApiError if the node cannot be reached or refuses. Without an upgrade, it is HTTP/1.0."""
    headers = tuple(headers)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(
                address.host, address.port, ssl=credentials.context(), limit=HEAD_BYTES_MAX
            )
    except TimeoutError:
        raise _unreachable(address, "no answer in time") from None
    except (OSError, ValueError) as error:
        raise _unreachable(address, str(error)) from None
    try:
        _check_certificate(address, writer)
        version = "1.1" if headers else "1.0"
        lines = [f"{method} {target} HTTP/{version}".encode(), b"host: %b" % address.host.encode()]
        lines += [b"%b: %b" % header for header in headers]
        writer.write(b"\r\n".join([*lines, b"", b""]))
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            status, answered = _parse_head(await reader.readuntil(b"\r\n\r\n"))
            if status not in (101, 200):
                raise _refusal(address, status, await reader.read(ERROR_BYTES_MAX))
        return NodeAnswer(status, answered, reader, writer)
    except ApiError:
        writer.close()
        raise
    except (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        writer.close()
        raise _unreachable(address, str(error) or "no answer in time") from None


def _check_certificate(address: NodeAddress, writer: asyncio.StreamWriter) -> None:
    if not address.fingerprint:
        return
    connection = writer.get_extra_info("ssl_object")
    shown = connection.getpeercert(binary_form=True) if connection is not None else b""
    if hashlib.sha256(shown or b"").hexdigest() != address.fingerprint:
        raise _unreachable(address, "the certificate there is not the one that the node publishes")


def _parse_head(head: bytes) -> tuple[int, tuple[Header, ...]]:
    first, *lines = head.strip().split(b"\r\n")
    words = first.split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1."):
        raise ValueError("the node does not answer in HTTP")
    if any(character in line for line in lines for character in (b"\r", b"\n")):
        raise ValueError("the node answers with a malformed header")
    headers = [line.partition(b":") for line in lines]
    return int(words[1]), tuple((name.strip().lower(), value.strip()) for name, _, value in headers)


def _refusal(address: NodeAddress, status: int, body: bytes) -> ApiError:
    text = " ".join(body.decode(errors="replace").split()) or f"node {address.node} answered with status {status}"
    return _ERRORS.get(status, ApiError)(text)


def _unreachable(address: NodeAddress, why: str) -> ApiError:
    return ServiceUnavailable(
        f"cannot connect to node {address.node} at {address.host}:{address.port}: {why}; check that its agent runs"
    )
