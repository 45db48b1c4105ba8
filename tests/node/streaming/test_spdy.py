"""SPDY sessions: streams, data and their ends, and clients that break the protocol."""

from __future__ import annotations

import asyncio
import struct
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.node.streaming.spdy import DICTIONARY, FRAME_BYTES_MAX, SpdyError, SpdySession


class Wire:
    """What a client sends, all of it at once, and what it gets."""

    def __init__(self, sent: bytes) -> None:
        self._sent = sent
        self.got = b""

    async def read_exactly(self, count: int) -> bytes:
        if len(self._sent) < count:
            raise asyncio.IncompleteReadError(self._sent, count)
        piece, self._sent = self._sent[:count], self._sent[count:]
        return piece

    async def write(self, data: bytes) -> None:
        self.got += data


class Client:
    """The frames of a client."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def opened(self, number: int, **headers: str) -> bytes:
        block = struct.pack(">I", len(headers))
        for name, value in headers.items():
            block += struct.pack(">I", len(name)) + name.encode() + struct.pack(">I", len(value)) + value.encode()
        packed = self._deflate.compress(block) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return control(1, struct.pack(">IIH", number, 0, 0) + packed)


def control(kind: int, payload: bytes, flags: int = 0) -> bytes:
    return struct.pack(">HHI", 0x8003, kind, flags << 24 | len(payload)) + payload


def data(number: int, payload: bytes, *, end: bool = False) -> bytes:
    return struct.pack(">II", number, int(end) << 24 | len(payload)) + payload


def test_the_dictionary_is_that_of_the_specification() -> None:
    assert (len(DICTIONARY), zlib.adler32(DICTIONARY)) == (1423, 0xE3C6A7C2)


def test_streams_carry_headers_and_data_to_their_end() -> None:
    async def main() -> None:
        client = Client()
        frames = client.opened(1, streamtype="error", port="80") + client.opened(3, streamtype="data", port="80")
        wire = Wire(frames + data(3, b"hello ") + data(3, b"world", end=True) + control(6, b"ping"))
        session = SpdySession(wire)
        await session.run()
        error, stream = await session.accept(), await session.accept()
        assert error is not None
        assert stream is not None
        assert (error.headers["streamtype"], stream.headers) == ("error", {"streamtype": "data", "port": "80"})
        assert [await stream.read(), await stream.read(), await stream.read()] == [b"hello ", b"world", b""]
        assert await session.accept() is None
        assert wire.got.endswith(control(6, b"ping"))
        assert wire.got.startswith(b"\x80\x03\x00\x02")

    asyncio.run(main())


@pytest.mark.parametrize(
    "frames",
    [
        struct.pack(">II", 1, FRAME_BYTES_MAX + 1),
        control(1, b"short"),
        control(1, struct.pack(">IIH", 1, 0, 0) + b"not compressed"),
        struct.pack(">HHI", 0x8002, 1, 0),
    ],
)
def test_a_broken_frame_ends_the_session(frames: bytes) -> None:
    with pytest.raises(SpdyError):
        asyncio.run(SpdySession(Wire(frames)).run())


def test_headers_that_unpack_to_much_are_refused() -> None:
    frames = Client().opened(1, streamtype="x" * (1 << 20))
    with pytest.raises(SpdyError, match="too large"):
        asyncio.run(SpdySession(Wire(frames)).run())


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_end_the_session_cleanly(noise: bytes, after_a_stream: bool) -> None:
    async def main() -> None:
        session = SpdySession(Wire((Client().opened(1, streamtype="data") if after_a_stream else b"") + noise))
        async with asyncio.timeout(5):
            with suppress(SpdyError):
                await session.run()
            while await session.accept() is not None:
                pass

    asyncio.run(main())
