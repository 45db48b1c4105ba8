"""The file of the audit log: batches, rotation, and what happens when it cannot be written."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dralloc.apiserver.audit.audit_log import AuditLog, LogRotation
from dralloc.system_clock import SystemClock
from tests.support.local_api import FixedClock


class TickingClock:
    """A clock that is later at each look."""

    def __init__(self) -> None:
        self._now = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        self._now += timedelta(seconds=1)
        return self._now


def wait_until(holds: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(600):
        if holds():
            return
        pause.wait(0.02)
    raise AssertionError("it does not come about")


def test_lines_are_appended_and_flushed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for part in (b"a\n", b"b\n"):
        log = AuditLog(path, SystemClock())
        log.open()
        log.write(part)
        log.close()
    assert path.read_bytes() == b"a\nb\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_lines_reach_the_file_while_the_server_runs(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log", SystemClock())
    log.open()
    try:
        for line in (b"a\n", b"b\n"):
            log.write(line)
            wait_until(lambda line=line: (tmp_path / "audit.log").read_bytes().endswith(line))  # type: ignore[misc]
    finally:
        log.close()


def test_files_are_rotated_by_size_and_old_ones_are_deleted(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log", TickingClock(), LogRotation(backups_max=2), size_bytes_max=100)
    log.open()
    lines = [f"{number:04}\n".encode() for number in range(200)]
    for line in lines:
        log.write(line)
    log.close()
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files][-1] == "audit.log"
    assert [file.name[:18] for file in files[:-1]] == ["audit-2026-01-01T0"] * 2
    assert all(file.stat().st_size <= 100 for file in files)
    # Nothing is lost or repeated at the edges of files.
    assert b"".join(file.read_bytes() for file in files) == b"".join(lines[-60:])


def test_a_line_larger_than_a_file_is_kept_whole(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log", TickingClock(), LogRotation(backups_max=0), size_bytes_max=10)
    log.open()
    for line in (b"x" * 50 + b"\n", b"a\n", b"b\n"):
        log.write(line)
    log.close()
    assert sorted(file.read_bytes() for file in tmp_path.iterdir()) == [b"a\nb\n", b"x" * 50 + b"\n"]


def test_a_full_queue_drops_events_and_counts_them(tmp_path: Path) -> None:
    """Nothing reads the pipe, so the writer is stuck as on a disk that does not respond."""
    fifo = tmp_path / "audit.log"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    log = AuditLog(fifo, FixedClock(), queue_bytes_max=1_000_000)
    log.open()
    try:
        line = b"x" * 999 + b"\n"
        for _ in range(3000):
            log.write(line)
        assert log.metrics.dropped >= 1999
    finally:
        os.close(reader)
        log.close()


def test_events_are_kept_while_the_disk_is_full(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`/dev/full` refuses every write with ENOSPC, and is replaced by a file then."""
    path = tmp_path / "audit.log"
    path.symlink_to("/dev/full")
    log = AuditLog(path, SystemClock())
    log.open()
    try:
        log.write(b"a\n")
        wait_until(lambda: "No space left on device" in caplog.text)
        log.write(b"b\n")
        usable = os.open(tmp_path / "usable", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(usable, log._descriptor)
        os.close(usable)
        wait_until(lambda: "is written again" in caplog.text)
        assert (tmp_path / "usable").read_bytes() == b"a\nb\n"
        assert log.metrics.dropped == 0
    finally:
        log.close()
