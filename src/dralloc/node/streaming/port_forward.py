"""Port-forward: connections of a client to ports of a pod, in pairs of SPDY streams. Pods share the network of their node."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from dralloc.node.streaming.node_request import BadNodeRequest, NodeRequest
from dralloc.node.streaming.spdy import ByteStream, SpdyError, SpdySession, SpdyStream
from dralloc.node.streaming.websocket import (
    MessageByteStream,
    SocketByteStream,
    WebSocket,
    confirmation,
    offered_protocols,
)
from dralloc.primitives.whole_numbers import whole_number

PROTOCOL: Final = "portforward.k8s.io"
TUNNEL: Final = f"SPDY/3.1+{PROTOCOL}"
HOST: Final = "127.0.0.1"
_PIECE_BYTES: Final = 32 * 1024


async def forward_ports(request: NodeRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve a client until it disconnects; raises BadNodeRequest."""
    carrier: ByteStream
    if request.upgrade == "websocket":
        if TUNNEL not in offered_protocols(request):
            raise BadNodeRequest(403, f"port-forward over a WebSocket needs the protocol {TUNNEL}: use a newer client")
        writer.write(confirmation(request, TUNNEL))
        carrier = MessageByteStream(WebSocket(reader, writer))
    elif request.upgrade == "spdy/3.1":
        writer.write(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n"
            f"x-stream-protocol-version: {PROTOCOL}\r\n\r\n".encode()
        )
        carrier = SocketByteStream(reader, writer)
    else:
        raise BadNodeRequest(400, "the connection must be upgraded to a WebSocket or to SPDY/3.1")
    session = SpdySession(carrier)
    forwards: set[asyncio.Task[None]] = set()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_run(session))
        await _accept_pairs(session, forwards)
        left = tuple(forwards)
        for forward in left:
            forward.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def _run(session: SpdySession) -> None:
    with suppress(SpdyError):
        await session.run()


async def _accept_pairs(session: SpdySession, forwards: set[asyncio.Task[None]]) -> None:
    """Forward each pair of streams, one for data and one for an error, that have the same request."""
    halves: dict[str, dict[str, SpdyStream]] = {}
    while (stream := await session.accept()) is not None:
        # Old clients number nothing: the error stream comes first, and the data stream has the next odd number.
        request = stream.headers.get("requestid") or str((stream.number + 1) // 4)
        pair = halves.setdefault(request, {})
        pair[stream.headers.get("streamtype", "")] = stream
        if pair.keys() >= {"data", "error"}:
            del halves[request]
            forward = asyncio.create_task(_forward(session, pair["data"], pair["error"]))
            forwards.add(forward)
            forward.add_done_callback(forwards.discard)


async def _forward(session: SpdySession, data: SpdyStream, error: SpdyStream) -> None:
    port = data.headers.get("port", "")
    number = whole_number(port)
    try:
        if number is None or not 0 < number < 65536:
            raise OSError(f"{port!r} is not a port")
        reader, writer = await asyncio.open_connection(HOST, number)
    except OSError as failed:
        await _ignoring_the_end(error.write(f"error forwarding port {port}: {failed.strerror or failed}".encode()))
    else:
        try:
            await _copy_both_ways(data, reader, writer)
        finally:
            writer.close()
    await _ignoring_the_end(data.close())
    await _ignoring_the_end(error.close())
    session.forget(data)
    session.forget(error)


async def _copy_both_ways(data: SpdyStream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    sending = asyncio.create_task(_send(data, writer))
    try:
        with suppress(OSError):
            while piece := await reader.read(_PIECE_BYTES):
                await data.write(piece)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def _send(data: SpdyStream, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await data.read():
            writer.write(piece)
            await writer.drain()
        writer.write_eof()


async def _ignoring_the_end(sending: object) -> None:
    with suppress(OSError):
        await sending  # type: ignore[misc]
