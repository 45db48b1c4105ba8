"""WebSocket connections (RFC 6455), the server's side: messages over a connection whose upgrade was requested."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import struct
from typing import Final

from dralloc.node.streaming.node_request import NodeRequest

MESSAGE_BYTES_MAX: Final = 4 << 20
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
NORMAL: Final = 1000
_PROTOCOL_ERROR: Final = 1002
_TOO_BIG: Final = 1009


class WebSocketEnded(Exception):
    """The client closed the connection, or broke the protocol."""


def offered_protocols(request: NodeRequest) -> list[str]:
    """The subprotocols that the client offers, the preferred one first."""
    values = request.all("sec-websocket-protocol")
    return [protocol.strip() for value in values for protocol in value.split(",") if protocol.strip()]


def confirmation(request: NodeRequest, protocol: str) -> bytes:
    """The response that confirms the upgrade."""
    digest = hashlib.sha1(request.header("sec-websocket-key").encode() + _GUID, usedforsecurity=False).digest()
    return (
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
        f"sec-websocket-accept: {base64.b64encode(digest).decode()}\r\nsec-websocket-protocol: {protocol}\r\n\r\n"
    ).encode()


class WebSocket:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._is_closed = False

    async def receive(self) -> bytes:
        """The next message, complete; raises WebSocketEnded at the end."""
        message = b""
        while True:
            is_last, opcode, payload = await self._frame()
            match opcode:
                case 0 | 1 | 2:
                    message += payload
                    if len(message) > MESSAGE_BYTES_MAX:
                        await self._fail(_TOO_BIG)
                    if is_last:
                        return message
                case 8:
                    await self.close()
                    raise WebSocketEnded
                case 9:
                    await self._send(_PONG, payload)
                case 10:
                    pass
                case _:
                    await self._fail(_PROTOCOL_ERROR)

    async def send(self, message: bytes) -> None:
        await self._send(_BINARY, message)

    async def close(self, code: int = NORMAL) -> None:
        if not self._is_closed:
            await self._send(_CLOSE, struct.pack(">H", code))
            self._is_closed = True

    async def _fail(self, code: int) -> None:
        await self.close(code)
        raise WebSocketEnded

    async def _frame(self) -> tuple[bool, int, bytes]:
        try:
            first, second = await self._reader.readexactly(2)
            length = second & 0x7F
            if length == 126:
                (length,) = struct.unpack(">H", await self._reader.readexactly(2))
            elif length == 127:
                (length,) = struct.unpack(">Q", await self._reader.readexactly(8))
            if first & 0x70 or not second & 0x80:
                await self._fail(_PROTOCOL_ERROR)
            if length > MESSAGE_BYTES_MAX:
                await self._fail(_TOO_BIG)
            mask = await self._reader.readexactly(4)
            payload = await self._reader.readexactly(length) if length else b""
        except (asyncio.IncompleteReadError, OSError):
            raise WebSocketEnded from None
        return bool(first & 0x80), first & 0x0F, _unmasked(payload, mask)

    async def _send(self, opcode: int, payload: bytes) -> None:
        if self._is_closed:
            return
        length = len(payload)
        if length < 126:
            head = struct.pack(">BB", 0x80 | opcode, length)
        elif length < 1 << 16:
            head = struct.pack(">BBH", 0x80 | opcode, 126, length)
        else:
            head = struct.pack(">BBQ", 0x80 | opcode, 127, length)
        try:
            self._writer.write(head + payload)
            await self._writer.drain()
        except OSError:
            self._is_closed = True


def _unmasked(payload: bytes, mask: bytes) -> bytes:
    if not payload:
        return b""
    repeated = (mask * (len(payload) // 4 + 1))[: len(payload)]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")).to_bytes(len(payload), "big")


class MessageByteStream:
    """A stream of bytes in the messages of a WebSocket, for protocols that are tunnelled in it."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._received = b""

    async def read_exactly(self, count: int) -> bytes:
        while len(self._received) < count:
            try:
                self._received += await self._socket.receive()
            except WebSocketEnded:
                raise asyncio.IncompleteReadError(self._received, count) from None
        piece, self._received = self._received[:count], self._received[count:]
        return piece

    async def write(self, data: bytes) -> None:
        await self._socket.send(data)


class SocketByteStream:
    """The bytes of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.read_exactly = reader.readexactly

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()
