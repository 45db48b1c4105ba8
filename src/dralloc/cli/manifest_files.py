"""The files that a user names: manifests, directories of them, or standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

STANDARD_INPUT: Final = "-"
SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})


@dataclass(frozen=True, slots=True)
class Source:
    """A file's name and bytes, or why it cannot be read."""

    name: str
    content: bytes = b""
    error: str = ""


def read_sources(names: list[str]) -> Iterator[Source]:
    """Every file named, and every manifest below every directory named, in order."""
    for name in names:
        path = Path(name)
        if name == STANDARD_INPUT:
            yield Source(shown_name(name), sys.stdin.buffer.read())
        elif path.is_dir():
            found = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
            if not found:
                yield Source(name, error="no manifests (*.yaml, *.yml, *.json) in this directory")
            yield from map(_read, found)
        else:
            yield _read(path)


def shown_name(name: str) -> str:
    """How messages call what the user named."""
    return "<stdin>" if name == STANDARD_INPUT else name


def _read(path: Path) -> Source:
    try:
        return Source(str(path), path.read_bytes())
    except OSError as error:
        return Source(str(path), error=error.strerror or str(error))
