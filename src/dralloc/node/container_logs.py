"""The log of a container: its output in a file, and when it was written.

Containers write to the file themselves, so that they do not depend on the agent. The agent notes the size of the file from time to
time; a line has the time of the first note that covers it.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

POLL_S: Final = 0.1
PIECE_BYTES: Final = 64 * 1024
# A line that is longer is sent in pieces.
LINE_BYTES_MAX: Final = 1 << 20
_NOTE: Final = struct.Struct(">Qd")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    follow: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    # Seconds since the epoch.
    since: float | None = None


def times_path(log: Path) -> Path:
    return log.with_name(f"{log.name}.times")


def note_size(log: Path, noted: int, now: float) -> int:
    """Note the size of a log that has grown since a size was noted; returns the size."""
    try:
        size = log.stat().st_size
    except OSError:
        return noted
    if size != noted:
        with times_path(log).open("ab") as notes:
            notes.write(_NOTE.pack(size, now))
    return size


class ContainerLog:
    """A log file; `is_running` says whether its container still writes to it."""

    def __init__(self, path: Path, is_running: Callable[[], bool], now: Callable[[], datetime]) -> None:
        self._path = path
        self._is_running = is_running
        self._now = now

    async def read(self, options: LogOptions) -> AsyncGenerator[bytes, None]:
        """The log as the options ask for it; raises OSError if there is none."""
        left = options.limit_bytes
        with self._path.open("rb") as file:
            start = _tail_offset(file, options.tail_lines)
            pieces = self._pieces(file, start, follow=options.follow)
            if options.timestamps or options.since is not None:
                pieces = self._lines(pieces, start, options)
            async for piece in pieces:
                shown = piece if left is None else piece[:left]
                yield shown
                if left is not None:
                    left -= len(shown)
                    if left <= 0:
                        return

    async def _pieces(self, file: BinaryIO, start: int, *, follow: bool) -> AsyncGenerator[bytes, None]:
        """The bytes from the offset on; following ends with the container."""
        file.seek(start)
        while True:
            # Asked first: what a container wrote before its end is read after that.
            goes_on = follow and self._is_current(file) and self._is_running()
            while piece := file.read(PIECE_BYTES):
                yield piece
            if not goes_on:
                return
            await asyncio.sleep(POLL_S)

    def _is_current(self, file: BinaryIO) -> bool:
        """False after a restart of the container, which has a new file."""
        try:
            return os.path.samestat(os.fstat(file.fileno()), self._path.stat())
        except OSError:
            return False

    async def _lines(
        self, pieces: AsyncGenerator[bytes, None], start: int, options: LogOptions
    ) -> AsyncGenerator[bytes, None]:
        """Whole lines with their times, without those before `since`."""
        unfinished, offset = b"", start
        async for piece in pieces:
            *lines, unfinished = (unfinished + piece).split(b"\n")
            if len(unfinished) > LINE_BYTES_MAX:
                lines, unfinished = [*lines, unfinished], b""
            shown = []
            for line in lines:
                offset += len(line) + 1
                shown.append(self._timed(line + b"\n", offset, options))
            if text := b"".join(shown):
                yield text
        if unfinished:
            yield self._timed(unfinished, offset + len(unfinished), options)

    def _timed(self, line: bytes, end: int, options: LogOptions) -> bytes:
        moment = self._time_of(end)
        if options.since is not None and moment < options.since:
            return b""
        return (_printed(moment) + b" " + line) if options.timestamps else line

    def _time_of(self, offset: int) -> float:
        """When the file had grown to this offset, as far as it was noted."""
        try:
            with times_path(self._path).open("rb") as notes:
                low, high = 0, os.fstat(notes.fileno()).st_size // _NOTE.size
                moment = None
                while low < high:
                    middle = (low + high) // 2
                    notes.seek(middle * _NOTE.size)
                    size, noted_at = _NOTE.unpack(notes.read(_NOTE.size))
                    if size >= offset:
                        high, moment = middle, noted_at
                    else:
                        low = middle + 1
        except OSError:
            moment = None
        return moment if moment is not None else self._now().timestamp()


def _printed(moment: float) -> bytes:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode()


def _tail_offset(file: BinaryIO, lines: int | None) -> int:
    """Where the last lines begin."""
    end = file.seek(0, os.SEEK_END)
    if lines is None:
        return 0
    if lines == 0:
        return end
    # An end of line at the end of the file ends the last line, and begins none.
    wanted, place = lines + 1, end
    if end:
        file.seek(end - 1)
        wanted -= file.read(1) != b"\n"
    while place > 0:
        begin = max(place - PIECE_BYTES, 0)
        file.seek(begin)
        piece = file.read(place - begin)
        count = piece.count(b"\n")
        if count >= wanted:
            for _ in range(count - wanted):
                piece = piece[piece.index(b"\n") + 1 :]
            position = len(piece) - piece.index(b"\n") - 1
            return place - position
        wanted -= count
        place = begin
    return 0
