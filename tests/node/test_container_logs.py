"""The log of a container: its last lines, since a time, with times, limited, followed."""

from __future__ import annotations

import asyncio
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dralloc.node.container_logs import ContainerLog, LogOptions, note_size

NOW = datetime(2026, 1, 1, 12, 0, 10, tzinfo=UTC)
START = NOW.timestamp() - 10


async def read(path: Path, options: LogOptions, *, is_running: bool = False) -> bytes:
    log = ContainerLog(path, lambda: is_running, lambda: NOW)
    return b"".join([piece async for piece in log.read(options)])


def noted_log(path: Path) -> Path:
    """Three lines, written at seconds 1, 2 and 3, and one that was not noted yet."""
    log, noted = path / "c.log", -1
    for second, line in enumerate((b"one\n", b"two\n", b"three\n"), start=1):
        with log.open("ab") as file:
            file.write(line)
        noted = note_size(log, noted, START + second)
    with log.open("ab") as file:
        file.write(b"four\n")
    return log


def test_lines_have_the_times_at_which_they_were_noted(tmp_path: Path) -> None:
    shown = asyncio.run(read(noted_log(tmp_path), LogOptions(timestamps=True))).decode().splitlines()
    assert shown == [
        "2026-01-01T12:00:01.000000000Z one",
        "2026-01-01T12:00:02.000000000Z two",
        "2026-01-01T12:00:03.000000000Z three",
        "2026-01-01T12:00:10.000000000Z four",
    ]


def test_lines_since_a_time(tmp_path: Path) -> None:
    log = noted_log(tmp_path)
    assert asyncio.run(read(log, LogOptions(since=START + 2.5))) == b"three\nfour\n"
    assert asyncio.run(read(log, LogOptions(since=START + 2.5, tail_lines=1))) == b"four\n"


def test_a_limit_counts_bytes(tmp_path: Path) -> None:
    assert asyncio.run(read(noted_log(tmp_path), LogOptions(limit_bytes=6))) == b"one\ntw"


@given(
    text=st.lists(st.sampled_from([b"", b"a", b"bc", b"x" * 70_000]), max_size=6).map(b"\n".join),
    ends=st.booleans(),
    lines=st.integers(0, 8),
)
def test_the_last_lines_are_those_of_a_plain_split(text: bytes, ends: bool, lines: int) -> None:
    text += b"\n" if ends else b""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "c.log"
        log.write_bytes(text)
        wanted = text.splitlines(keepends=True)
        assert asyncio.run(read(log, LogOptions(tail_lines=lines))) == b"".join(
            wanted[len(wanted) - lines :] if lines < len(wanted) else wanted
        )


def test_following_ends_with_the_container(tmp_path: Path) -> None:
    async def main() -> None:
        log, running = tmp_path / "c.log", True
        log.write_bytes(b"first\n")
        followed = ContainerLog(log, lambda: running, lambda: NOW).read(LogOptions(follow=True))
        assert await anext(followed) == b"first\n"
        with log.open("ab") as file:
            file.write(b"second\n")
        running = False
        assert [piece async for piece in followed] == [b"second\n"]

    asyncio.run(main())


def test_following_ends_when_the_container_restarts(tmp_path: Path) -> None:
    async def main() -> None:
        log = tmp_path / "c.log"
        log.write_bytes(b"first run\n")
        followed = ContainerLog(log, lambda: True, lambda: NOW).read(LogOptions(follow=True))
        assert await anext(followed) == b"first run\n"
        log.rename(tmp_path / "c.previous.log")
        log.write_bytes(b"second run\n")
        assert [piece async for piece in followed] == []

    asyncio.run(main())
