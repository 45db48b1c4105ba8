"""What a server remembers of an etcd beyond its own end: the history and the newest revision that it has seen, in a file.

An etcd that was restored while no server ran can look like the one before: with the same cluster token, it has the same ID. A server that
remembers a higher revision notices. The file is written about once a second and when the server stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from dralloc.primitives.decoders import UNREADABLE
from dralloc.server.store.disk import Disk
from dralloc.server.store.errors import CorruptStore
from dralloc.server.store.etcd_history import EtcdHistory

WRITE_EVERY_S = 1.0

_logger = logging.getLogger(__name__)


class SeenRevision(msgspec.Struct, frozen=True):
    """The newest revision, as etcd counts, that a server has seen in a history."""

    history: EtcdHistory
    revision: int


class EtcdMemory:
    """The file of one server and one store."""

    def __init__(self, path: Path, disk: Disk | None = None) -> None:
        self._path = path
        self._disk = disk or Disk()
        self._written: SeenRevision | None = None
        self._is_failing = False

    def read(self) -> SeenRevision | None:
        """What was seen before; None at the first start. Raises CorruptStore."""
        try:
            content = self._disk.read(self._path)
            self._written = msgspec.json.decode(content, type=SeenRevision) if content is not None else None
        except (*UNREADABLE, OSError) as error:
            raise CorruptStore(
                f"{self._path} cannot be read: {error}; it tells whether etcd was restored from a backup. If it was not, remove the file"
            ) from None
        return self._written

    async def write_regularly(self, seen: Callable[[], SeenRevision | None]) -> None:
        """Runs until it is cancelled, and writes what was seen then."""
        writing: asyncio.Future[None] | None = None
        try:
            while True:
                await asyncio.sleep(WRITE_EVERY_S)
                writing = asyncio.ensure_future(asyncio.to_thread(self._write, seen()))
                await asyncio.shield(writing)
        finally:
            # A thread cannot be cancelled: what it is writing must not replace what is written now.
            if writing is not None:
                await asyncio.wait((writing,))
            self._write(seen())

    def _write(self, seen: SeenRevision | None) -> None:
        if seen is None or seen == self._written:
            return
        try:
            self._disk.replace(self._path, msgspec.json.encode(seen))
        except OSError as error:
            if not self._is_failing:
                _logger.warning("%s cannot be written: %s", self._path, error.strerror)
            self._is_failing = True
        else:
            self._written, self._is_failing = seen, False
