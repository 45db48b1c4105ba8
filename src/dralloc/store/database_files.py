"""The files beside the database file of a SQLite store."""

from __future__ import annotations

from pathlib import Path


def log_path(database: Path) -> Path:
    """The write-ahead log, where SQLite has it: beside the file itself if `database` is a symbolic link to it."""
    real = database.resolve()
    return real.with_name(f"{real.name}-wal")


def mark_path(database: Path) -> Path:
    """The high-water mark."""
    return database.with_name(f"{database.name}-mark")


def restoring_path(database: Path) -> Path:
    """The store that `dralloc restore` makes beside the one that it replaces, on the same file system."""
    real = database.resolve()
    return real.with_name(f"{real.name}.restoring")
