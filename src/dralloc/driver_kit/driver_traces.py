"""What a driver leaves on disk: CDI files, and a checkpoint whose format the kit does not know.

A checkpoint is searched for the UID of a claim, in names and contents of files: every driver must store it to find the claim again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dralloc.kubelet.cdi_registry import CdiRegistry

FILES_MAX: Final = 10_000
FILE_BYTES_MAX: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverTraces:
    """The directories of CDI files, and files or directories with the checkpoint; empty if they are not known."""

    cdi_dirs: tuple[Path, ...] = ()
    checkpoint: tuple[Path, ...] = ()

    def cdi_names(self) -> frozenset[str]:
        """The names of the CDI devices that a container runtime finds."""
        return CdiRegistry(self.cdi_dirs).names() if self.cdi_dirs else frozenset()

    def records_of(self, text: str) -> tuple[Path, ...]:
        """The files of the checkpoint that have the text in their name or content."""
        return tuple(path for path in self._files() if text in path.name or _contains(path, text.encode()))

    def _files(self) -> Iterator[Path]:
        count = 0
        for place in self.checkpoint:
            for path in [place] if place.is_file() else sorted(place.rglob("*")):
                if path.is_file() and count < FILES_MAX:
                    count += 1
                    yield path


def _contains(path: Path, text: bytes) -> bool:
    try:
        return path.stat().st_size <= FILE_BYTES_MAX and text in path.read_bytes()
    except FileNotFoundError:
        # Removed in the meantime.
        return False
