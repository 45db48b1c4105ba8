"""Reads and writes of pipes and terminals that do not block the event loop."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios
from collections.abc import Callable
from typing import Any, Final

PIECE_BYTES: Final = 32 * 1024


async def read_some(descriptor: int) -> bytes:
    """The next bytes; empty at the end."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            return os.read(descriptor, PIECE_BYTES)
        except BlockingIOError:
            await _wait(loop.add_reader, loop.remove_reader, descriptor)
        except OSError:
            # A terminal whose processes have ended.
            return b""


async def write_all(descriptor: int, data: bytes) -> None:
    """Raises OSError if nothing reads there any more."""
    loop = asyncio.get_running_loop()
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            await _wait(loop.add_writer, loop.remove_writer, descriptor)


async def _wait(add: Callable[..., Any], remove: Callable[[int], Any], descriptor: int) -> None:
    ready = asyncio.Event()
    add(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        remove(descriptor)


def resize_terminal(descriptor: int, width: int, height: int) -> None:
    size = struct.pack("HHHH", min(max(height, 0), 0xFFFF), min(max(width, 0), 0xFFFF), 0, 0)
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, size)
