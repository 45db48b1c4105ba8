"""The instances of a driver on one node; during a rolling update there are two.

They share a directory. Each instance holds a lock on a file of its own, which the kernel releases when the process ends. The locks
show which instances live, which is the newest (only that one publishes devices), and which sockets are stale. Calls for claims are
serialized by one more lock, in the same file as Kubernetes' helper library uses.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from dralloc.atomic_files import naming
from dralloc.primitives.decoders import UNREADABLE

SERIALIZE_LOCK: Final = "serialize.lock"
FILE_SUFFIX: Final = ".instance"


class AlreadyRunning(Exception):
    """Another running instance uses the same sockets."""


class _Instance(msgspec.Struct):
    """The content of the file of an instance."""

    sockets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Neighbour:
    number: int
    path: Path
    is_alive: bool
    sockets: tuple[str, ...]


class Instances:
    """This instance, and the others of its driver."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._number = 0
        self._file: int | None = None
        self._within_process = asyncio.Lock()

    def enter(self, sockets: tuple[str, ...]) -> None:
        """Become the newest instance, and remove files of dead instances; raises `AlreadyRunning`."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with _locked(self._directory / "enter.lock"):
            neighbours = tuple(self._neighbours())
            for neighbour in neighbours:
                if neighbour.is_alive and set(neighbour.sockets) & set(sockets):
                    raise AlreadyRunning(
                        f"another instance serves {', '.join(neighbour.sockets)}; to run two instances, set POD_UID for each"
                    )
            for neighbour in neighbours:
                if not neighbour.is_alive:
                    _remove_left_over(neighbour)
            self._number = max((neighbour.number for neighbour in neighbours), default=0) + 1
            # Under enter.lock, so that no instance sees the file incomplete or unlocked.
            path = self._directory / f"{self._number:08}{FILE_SUFFIX}"
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            with naming(path), open(self._file, "wb", closefd=False) as file:
                file.write(msgspec.json.encode(_Instance(sockets)))

    def leave(self) -> None:
        if self._file is not None:
            (self._directory / f"{self._number:08}{FILE_SUFFIX}").unlink(missing_ok=True)
            os.close(self._file)
            self._file = None

    def is_newest(self) -> bool:
        """True if no running instance started after this one."""
        return not any(neighbour.is_alive and neighbour.number > self._number for neighbour in self._neighbours())

    @asynccontextmanager
    async def serialized(self) -> AsyncIterator[None]:
        """Hold the lock that all instances share."""
        async with self._within_process:
            file = os.open(self._directory / SERIALIZE_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    await asyncio.to_thread(fcntl.flock, file, fcntl.LOCK_EX)
                yield
            finally:
                os.close(file)

    def _neighbours(self) -> Iterator[_Neighbour]:
        with suppress(FileNotFoundError):
            for name in sorted(os.listdir(self._directory)):
                number = name.removesuffix(FILE_SUFFIX)
                if name.endswith(FILE_SUFFIX) and number.isdecimal() and int(number) != self._number:
                    path = self._directory / name
                    with suppress(FileNotFoundError):
                        yield _Neighbour(int(number), path, _is_locked(path), _sockets(path))


def _is_locked(path: Path) -> bool:
    file = os.open(path, os.O_RDWR)
    try:
        # A shared lock, so that two readers do not take each other for the owner.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(file)


def _sockets(path: Path) -> tuple[str, ...]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Instance).sockets
    except UNREADABLE:
        return ()


def _remove_left_over(neighbour: _Neighbour) -> None:
    for socket in neighbour.sockets:
        Path(socket).unlink(missing_ok=True)
    neighbour.path.unlink(missing_ok=True)


class _locked:  # noqa: N801 - reads as a statement
    """A lock on a file inside the block."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1

    def __enter__(self) -> None:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self._file)
