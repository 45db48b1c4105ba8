"""SPDY/3.1 sessions, the server's side: what kubectl speaks for port-forward, and older ones for exec and attach.

No maintained library has it. Only what Kubernetes' clients use is here: they do not use flow control windows, priorities or pushes.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import Mapping
from typing import Final, Protocol

from dralloc.node.streaming.piece_queue import PieceQueue

_VERSION: Final = 3
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY = 1, 2, 3, 6, 7
_FIN: Final = 1
_PIECE_BYTES: Final = 32 * 1024
# Bounds on what a client may send.
FRAME_BYTES_MAX: Final = 1 << 20
HEADER_BYTES_MAX: Final = 64 * 1024
STREAMS_MAX: Final = 1024

_WORDS: Final = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow authorization "
    "cache-control connection content-base content-encoding content-language content-length content-location content-md5 content-range "
    "content-type date etag expect expires from host if-match if-modified-since if-none-match if-range if-unmodified-since last-modified "
    "location max-forwards pragma proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding "
    "upgrade user-agent vary via warning www-authenticate method get status|200 OK|version|HTTP/1.1|url public set-cookie keep-alive origin"
)
_CODES: Final = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authoritative Information"
    "204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error"
    "501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, "
    "Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,"
    "publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _dictionary() -> bytes:
    """The dictionary that the specification gives for the compression of headers."""
    words = [word for part in _WORDS.split("|") for word in ([part] if part == "200 OK" else part.split())]
    return b"".join(struct.pack(">I", len(word)) + word.encode() for word in words) + _CODES.encode()


DICTIONARY: Final = _dictionary()


class SpdyError(ValueError):
    """The client broke the protocol; the session ends."""


class ByteStream(Protocol):
    """What a session is carried by."""

    async def read_exactly(self, count: int) -> bytes:
        """Raises IncompleteReadError at the end."""
        ...

    async def write(self, data: bytes) -> None: ...


class SpdyStream:
    """One stream of a session."""

    def __init__(self, session: SpdySession, number: int, headers: Mapping[str, str]) -> None:
        self.number = number
        self.headers = headers
        self.received = PieceQueue()
        self._session = session
        self._is_closed = False

    async def read(self) -> bytes:
        """The next piece; empty at the end."""
        return await self.received.get()

    async def write(self, data: bytes) -> None:
        for begin in range(0, len(data), _PIECE_BYTES):
            if not self._is_closed:
                await self._session.send_data(self.number, data[begin : begin + _PIECE_BYTES])

    async def close(self) -> None:
        """Say that nothing more is sent."""
        if not self._is_closed:
            self._is_closed = True
            await self._session.send_data(self.number, b"", end=True)

    async def reset(self) -> None:
        """The client neither sends nor reads any more."""
        self._is_closed = True
        await self.received.end()


class SpdySession:
    """The streams that a client opens, until the connection ends."""

    def __init__(self, carrier: ByteStream) -> None:
        self._carrier = carrier
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._streams: dict[int, SpdyStream] = {}
        self._opened: asyncio.Queue[SpdyStream | None] = asyncio.Queue()
        self._writing = asyncio.Lock()

    async def run(self) -> None:
        """Read frames until the connection ends. Raises SpdyError."""
        try:
            while True:
                await self._read_frame()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            for stream in list(self._streams.values()):
                await stream.reset()
            self._opened.put_nowait(None)

    async def accept(self) -> SpdyStream | None:
        """The next stream that the client opens; None at the end of the session."""
        return await self._opened.get()

    async def send_data(self, number: int, data: bytes, *, end: bool = False) -> None:
        await self._send(struct.pack(">II", number, (_FIN if end else 0) << 24 | len(data)) + data)

    async def say_goodbye(self) -> None:
        await self._send_control(_GOAWAY, struct.pack(">II", max(self._streams, default=0), 0))

    async def _read_frame(self) -> None:
        first, second = struct.unpack(">II", await self._carrier.read_exactly(8))
        flags, length = second >> 24, second & 0xFFFFFF
        if length > FRAME_BYTES_MAX:
            raise SpdyError("a frame is too large")
        payload = await self._carrier.read_exactly(length) if length else b""
        if not first & 0x80000000:
            return await self._on_data(first, flags, payload)
        if first >> 16 & 0x7FFF != _VERSION:
            raise SpdyError("not SPDY/3")
        match first & 0xFFFF:
            case 1:
                await self._on_stream(flags, payload)
            case 3 if length >= 8:
                if (stream := self._streams.pop(_number(payload), None)) is not None:
                    await stream.reset()
            case 6:
                await self._send_control(_PING, payload)
            case 8 if length >= 4:
                # The compression of headers has a state.
                self._read_headers(payload[4:])
        return None

    async def _on_data(self, number: int, flags: int, payload: bytes) -> None:
        stream = self._streams.get(number)
        if stream is None:
            return
        await stream.received.put(payload)
        if flags & _FIN:
            await stream.received.end()

    async def _on_stream(self, flags: int, payload: bytes) -> None:
        if len(payload) < 10:
            raise SpdyError("a frame is too short")
        number, headers = _number(payload), self._read_headers(payload[10:])
        if number in self._streams or len(self._streams) >= STREAMS_MAX:
            await self._send_control(_RST_STREAM, struct.pack(">II", number, 3))
            return
        stream = self._streams[number] = SpdyStream(self, number, headers)
        if flags & _FIN:
            await stream.received.end()
        await self._send_control(_SYN_REPLY, struct.pack(">I", number) + self._write_headers())
        self._opened.put_nowait(stream)

    def forget(self, stream: SpdyStream) -> None:
        """The stream is over on both sides."""
        self._streams.pop(stream.number, None)

    def _read_headers(self, block: bytes) -> dict[str, str]:
        try:
            plain = self._inflate.decompress(block, HEADER_BYTES_MAX)
        except zlib.error as error:
            raise SpdyError(f"headers cannot be read: {error}") from None
        if self._inflate.unconsumed_tail:
            raise SpdyError("headers are too large")
        texts: list[str] = []
        place = 4
        while place + 4 <= len(plain):
            length = _number(plain[place:])
            texts.append(plain[place + 4 : place + 4 + length].decode("latin-1"))
            place += 4 + length
        return {name.lower(): value for name, value in zip(texts[::2], texts[1::2], strict=False)}

    def _write_headers(self) -> bytes:
        """No headers: Kubernetes' clients read none."""
        return self._deflate.compress(struct.pack(">I", 0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    async def _send_control(self, kind: int, payload: bytes) -> None:
        await self._send(struct.pack(">HHI", 0x8000 | _VERSION, kind, len(payload)) + payload)

    async def _send(self, frame: bytes) -> None:
        async with self._writing:
            await self._carrier.write(frame)


def _number(data: bytes) -> int:
    return int.from_bytes(data[:4], "big") & 0x7FFFFFFF
