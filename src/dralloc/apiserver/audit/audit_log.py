"""The audit log's file: a background thread writes it in batches and rotates it by size.

A request only appends its events to a queue, so a slow or full disk delays no request. While the file cannot be written, the queue keeps
events and the thread tries again every second; if the queue is full, new events are dropped, counted in `apiserver_audit_error_total` and
reported in the server's log. A crash loses the events of the last tenth of a second.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from dralloc.apiserver.audit.audit_metrics import AuditMetrics
from dralloc.primitives.clock import Clock

STDOUT: Final = "-"
QUEUE_BYTES_MAX: Final = 64 * 1024 * 1024
# Collects events into one write, and bounds what a crash loses.
BATCH_S: Final = 0.1
RETRY_S: Final = 1.0
# A server that stops waits no longer for a disk that does not respond.
STOP_S: Final = 5.0
MEBIBYTE: Final = 1024 * 1024

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRotation:
    """When a file is full, and which full files are kept; 0 keeps all."""

    size_mib_max: int = 100
    backups_max: int = 10
    age_days_max: int = 0


class AuditLog:
    """Appends lines to a file, or to the standard output for the path `-`. `open` raises OSError."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        rotation: LogRotation | None = None,
        *,
        queue_bytes_max: int = QUEUE_BYTES_MAX,
        size_bytes_max: int | None = None,
    ) -> None:
        self._path = path
        self._clock = clock
        self._rotation = rotation or LogRotation()
        self._size_max = size_bytes_max or self._rotation.size_mib_max * MEBIBYTE
        self._queue_bytes_max = queue_bytes_max
        self._lines: deque[bytes] = deque()
        # Taken from the queue, and not written yet.
        self._batch: list[bytes] = []
        # Changed by the loop's thread and by the writer's: `_appended` only by the first, `_written` only by the second.
        self._appended = self._written = 0
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit-log", daemon=True)
        self._descriptor = -1
        self._size = 0
        self._is_dropping = False
        self.metrics = AuditMetrics()

    def open(self) -> None:
        """Open the file and start the writer."""
        self._open_file()
        self._thread.start()

    def write(self, line: bytes) -> None:
        """Queue one line with its line feed; drops it if the queue is full."""
        if self._appended - self._written + len(line) > self._queue_bytes_max:
            self.metrics.drop()
            if not self._is_dropping:
                self._is_dropping = True
                _logger.error(
                    "the queue of the audit log is full: events are dropped until %s can be written", self._path
                )
            return
        self._is_dropping = False
        self._lines.append(line)
        self._appended += len(line)
        if not self._wake.is_set():
            self._wake.set()

    def close(self) -> None:
        """Write what is queued, as far as that is possible, and close the file. Blocks up to a few seconds."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(STOP_S)
        if lost := len(self._lines) + len(self._batch):
            self.metrics.drop(lost)
            _logger.error("%d audit events were lost: %s could not be written", lost, self._path)
        if not self._thread.is_alive() and self._path != Path(STDOUT):
            os.close(self._descriptor)

    # --- The writer's thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait()
            self._stopping.wait(BATCH_S)
            self._wake.clear()
            self._write_queued()

    def _write_queued(self) -> None:
        """Write all queued lines; tries again while the file cannot be written, until the log is closed."""
        has_failed = False
        while self._lines or self._batch:
            try:
                self._write_batch()
            except OSError as error:
                if not has_failed:
                    _logger.error("cannot write the audit log %s: %s; trying again", self._path, error.strerror)
                has_failed = True
                if self._stopping.wait(RETRY_S):
                    return
        if has_failed:
            _logger.warning("the audit log %s is written again", self._path)

    def _write_batch(self) -> None:
        """Write the lines that fit into the file, at least one."""
        size = sum(map(len, self._batch))
        while self._lines and (not self._batch or self._size + size + len(self._lines[0]) <= self._size_max):
            line = self._lines.popleft()
            self._batch.append(line)
            size += len(line)
        if self._size and self._size + size > self._size_max:
            self._rotate()
        try:
            _write_all(self._descriptor, b"".join(self._batch))
        except OSError:
            self._cut_off()
            raise
        self._batch.clear()
        self._size += size
        self._written += size

    def _cut_off(self) -> None:
        """Remove what was written of a batch, because all of it is written again."""
        with suppress(OSError):
            os.ftruncate(self._descriptor, self._size)

    def _open_file(self) -> None:
        if self._path == Path(STDOUT):
            self._descriptor, self._size_max = 1, 1 << 62
            return
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._descriptor).st_size

    def _rotate(self) -> None:
        """Rename the full file as kube-apiserver does, open a new one, and delete old ones."""
        moment = self._clock.now().strftime("%Y-%m-%dT%H-%M-%S.%f")
        full = self._path.with_name(f"{self._path.stem}-{moment}{self._path.suffix}")
        # Missing if the last attempt ended here, or if the file was removed.
        with suppress(FileNotFoundError):
            self._path.rename(full)
        before = self._descriptor
        self._open_file()
        os.close(before)
        self._delete_old_files()

    def _delete_old_files(self) -> None:
        pattern = re.compile(
            rf"{re.escape(self._path.stem)}-(\d{{4}}-\d\d-\d\dT\d\d-\d\d-\d\d.*){re.escape(self._path.suffix)}"
        )
        full = sorted(
            (each for each in self._path.parent.iterdir() if pattern.fullmatch(each.name)), key=lambda each: each.name
        )
        keep = self._rotation.backups_max
        old = full[:-keep] if keep else []
        if self._rotation.age_days_max:
            oldest = self._clock.now() - timedelta(days=self._rotation.age_days_max)
            old += [each for each in full if each.stat().st_mtime < oldest.timestamp()]
        for each in old:
            each.unlink(missing_ok=True)


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        written = os.write(descriptor, view)
        view = view[written:]
