"""WebSocket messages: framing, fragments, pings, and clients that break the protocol."""

from __future__ import annotations

import asyncio
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.node.streaming.node_request import NodeRequest
from dralloc.node.streaming.websocket import MESSAGE_BYTES_MAX, WebSocket, WebSocketEnded, confirmation

MASK = b"\x01\x02\x03\x04"


def frame(
    payload: bytes, opcode: int = 2, *, last: bool = True, masked: bool = True, length: int | None = None
) -> bytes:
    stated = len(payload) if length is None else length
    first, bit = (0x80 if last else 0) | opcode, 0x80 if masked else 0
    if stated < 126:
        head = struct.pack(">BB", first, bit | stated)
    elif stated < 1 << 16:
        head = struct.pack(">BBH", first, bit | 126, stated)
    else:
        head = struct.pack(">BBQ", first, bit | 127, stated)
    if not masked:
        return head + payload
    # As one number: some payloads have megabytes.
    mask = (MASK * (len(payload) // 4 + 1))[: len(payload)]
    return head + MASK + (int.from_bytes(payload) ^ int.from_bytes(mask)).to_bytes(len(payload))


class Written:
    """The writer of a connection, of which only what is written counts."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    async def drain(self) -> None:
        pass


async def received(sent: bytes) -> tuple[list[bytes], bytes]:
    """The messages in what a client sends, and what it is sent."""
    reader, written = asyncio.StreamReader(), Written()
    reader.feed_data(sent)
    reader.feed_eof()
    socket, messages = WebSocket(reader, written), []  # type: ignore[arg-type]
    while True:
        try:
            messages.append(await socket.receive())
        except WebSocketEnded:
            return messages, written.data


def test_the_confirmation_is_that_of_the_specification() -> None:
    request = NodeRequest("GET", (), (), (("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),))
    assert b"sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in confirmation(request, "p")


@given(st.lists(st.binary(max_size=70_000), max_size=4))
def test_messages_of_every_length_arrive(messages: list[bytes]) -> None:
    got, _ = asyncio.run(received(b"".join(map(frame, messages))))
    assert got == messages


def test_fragments_are_joined_and_pings_answered() -> None:
    sent = frame(b"one ", last=False) + frame(b"ping", 9) + frame(b"two", 0) + frame(b"\x03\xe8", 8) + frame(b"late")
    messages, written = asyncio.run(received(sent))
    assert messages == [b"one two"]
    assert written == frame(b"ping", 10, masked=False) + frame(b"\x03\xe8", 8, masked=False)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(b"plain", masked=False), 1002),
        (frame(b"", 5), 1002),
        (frame(b"", length=MESSAGE_BYTES_MAX + 1), 1009),
        (frame(b"x" * MESSAGE_BYTES_MAX, last=False) + frame(b"y", 0), 1009),
    ],
)
def test_a_client_that_breaks_the_protocol_is_told_and_left(sent: bytes, code: int) -> None:
    messages, written = asyncio.run(received(sent))
    assert (messages, written) == ([], frame(struct.pack(">H", code), 8, masked=False))
