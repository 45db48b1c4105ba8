"""The channels of an exec or attach session: input, output, errors, the size of the terminal, and how it ended.

A client opens them as streams of a SPDY session or as numbered channels of a WebSocket.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any, Final, Protocol

from dralloc.node.streaming.node_request import BadNodeRequest, NodeRequest
from dralloc.node.streaming.piece_queue import PieceQueue
from dralloc.node.streaming.spdy import SpdyError, SpdySession, SpdyStream
from dralloc.node.streaming.websocket import (
    SocketByteStream,
    WebSocket,
    WebSocketEnded,
    confirmation,
    offered_protocols,
)

STDIN, STDOUT, STDERR, ERROR, RESIZE = 0, 1, 2, 3, 4
# Before the number of a channel: the client closes it (v5.channel.k8s.io).
_CLOSE_SIGNAL: Final = 255
_STREAM_TYPES: Final = {"stdin": STDIN, "stdout": STDOUT, "stderr": STDERR, "error": ERROR, "resize": RESIZE}
_WEBSOCKET_PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_SPDY_PROTOCOLS: Final = ("v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io")
_STREAMS_TIMEOUT_S: Final = 30.0

Status = dict[str, Any]
SUCCESS: Final[Status] = {"metadata": {}, "status": "Success"}


def failure(message: str, *, exit_code: int | None = None) -> Status:
    status: Status = {"metadata": {}, "status": "Failure", "message": message}
    if exit_code is None:
        return {**status, "reason": "InternalError", "details": {"causes": [{"message": message}]}, "code": 500}
    causes = [{"reason": "ExitCode", "message": str(exit_code)}]
    return {**status, "reason": "NonZeroExitCode", "details": {"causes": causes}}


class CommandChannels(Protocol):
    """The client's side of a command."""

    # Set when the client is gone.
    gone: asyncio.Event
    stdin: PieceQueue
    # JSON texts with the width and height of the terminal.
    resizes: PieceQueue

    async def send(self, channel: int, data: bytes) -> None:
        """Send output; it is dropped if the client did not ask for the channel."""
        ...

    async def finish(self, status: Status) -> None:
        """Say how the command ended, and end the session."""
        ...


def wanted_channels(request: NodeRequest) -> frozenset[int]:
    names = {"input": STDIN, "output": STDOUT, "error": STDERR}
    wanted = {channel for name, channel in names.items() if request.is_set(name)}
    if request.is_set("tty"):
        # A terminal has one output.
        wanted -= {STDERR}
    return frozenset(wanted)


async def open_channels(
    request: NodeRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> tuple[CommandChannels, asyncio.Task[None]]:
    """Upgrade the connection; returns the channels, and the task that reads them. Raises BadNodeRequest."""
    wanted = wanted_channels(request)
    if request.upgrade == "websocket":
        protocol = _chosen(_WEBSOCKET_PROTOCOLS, offered_protocols(request))
        writer.write(confirmation(request, protocol))
        over_websocket = _WebSocketChannels(WebSocket(reader, writer), wanted)
        await over_websocket.announce()
        return over_websocket, asyncio.create_task(over_websocket.run())
    if request.upgrade == "spdy/3.1":
        offered = [each.strip() for value in request.all("x-stream-protocol-version") for each in value.split(",")]
        protocol = _chosen(_SPDY_PROTOCOLS, offered or ["channel.k8s.io"])
        writer.write(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n"
            f"x-stream-protocol-version: {protocol}\r\n\r\n".encode()
        )
        session = SpdySession(SocketByteStream(reader, writer))
        task = asyncio.create_task(_run_session(session))
        has_resize = request.is_set("tty") and protocol in _SPDY_PROTOCOLS[:2]
        needed = wanted | {ERROR} | ({RESIZE} if has_resize else set())
        channels = _SpdyChannels(session, as_json=protocol == _SPDY_PROTOCOLS[0])
        try:
            async with asyncio.timeout(_STREAMS_TIMEOUT_S):
                await channels.open(needed)
        except TimeoutError:
            channels.gone.set()
        return channels, task
    raise BadNodeRequest(400, "the connection must be upgraded to a WebSocket or to SPDY/3.1")


def _chosen(known: tuple[str, ...], offered: list[str]) -> str:
    """The protocol that this server prefers of those that the client offers."""
    found = next((protocol for protocol in known if protocol in offered), None)
    if found is None:
        raise BadNodeRequest(403, f"unable to negotiate protocol: client supports {offered}, server accepts {[*known]}")
    return found


async def _run_session(session: SpdySession) -> None:
    with suppress(SpdyError):
        await session.run()


class _WebSocketChannels:
    """Each message begins with the number of its channel."""

    def __init__(self, socket: WebSocket, wanted: frozenset[int]) -> None:
        self._socket = socket
        self._wanted = wanted
        self.gone = asyncio.Event()
        self.stdin, self.resizes = PieceQueue(), PieceQueue()

    async def announce(self) -> None:
        """An empty message: clients wait for the first one."""
        await self._socket.send(bytes([min(self._wanted - {STDIN}, default=ERROR)]))

    async def run(self) -> None:
        try:
            while True:
                message = await self._socket.receive()
                channel, content = message[:1], message[1:]
                if channel == bytes([STDIN]):
                    await self.stdin.put(content)
                elif channel == bytes([RESIZE]):
                    await self.resizes.put(content)
                elif channel == bytes([_CLOSE_SIGNAL]) and content[:1] == bytes([STDIN]):
                    await self.stdin.end()
        except WebSocketEnded:
            pass
        finally:
            self.gone.set()
            await self.stdin.end()
            await self.resizes.end()

    async def send(self, channel: int, data: bytes) -> None:
        if channel in self._wanted:
            await self._socket.send(bytes([channel]) + data)

    async def finish(self, status: Status) -> None:
        await self._socket.send(bytes([ERROR]) + json.dumps(status).encode())
        await self._socket.close()


class _SpdyChannels:
    """Each channel is a stream, which a header names."""

    def __init__(self, session: SpdySession, *, as_json: bool) -> None:
        self._session = session
        self._as_json = as_json
        self._streams: dict[int, SpdyStream] = {}
        self.gone = asyncio.Event()
        self.stdin, self.resizes = PieceQueue(), PieceQueue()

    async def open(self, needed: frozenset[int]) -> None:
        """Wait until the client has opened the streams."""
        while not needed <= self._streams.keys():
            stream = await self._session.accept()
            if stream is None:
                self.gone.set()
                return
            channel = _STREAM_TYPES.get(stream.headers.get("streamtype", ""))
            if channel is not None:
                self._streams[channel] = stream
        if STDIN in self._streams:
            self.stdin = self._streams[STDIN].received
        if RESIZE in self._streams:
            self.resizes = self._streams[RESIZE].received
        self._waiting = asyncio.create_task(self._wait_for_end())

    async def _wait_for_end(self) -> None:
        while await self._session.accept() is not None:
            pass
        self.gone.set()

    async def send(self, channel: int, data: bytes) -> None:
        if channel in self._streams:
            with suppress(OSError):
                await self._streams[channel].write(data)

    async def finish(self, status: Status) -> None:
        with suppress(OSError):
            if self._as_json:
                await self._streams[ERROR].write(json.dumps(status).encode())
            elif "message" in status:
                await self._streams[ERROR].write(status["message"].encode())
            for stream in self._streams.values():
                await stream.close()
            await self._session.say_goodbye()
