"""The files beside the database file of a SQLite store."""

from __future__ import annotations

from pathlib import Path


def log_path(database: Path) -> Path:
    """The write-ahead log, as SQLite names it."""
    return database.with_name(f"{database.name}-wal")


def mark_path(database: Path) -> Path:
    """The high-water mark."""
    return database.with_name(f"{database.name}-mark")


def restoring_path(database: Path) -> Path:
    """The store that `dralloc restore` makes beside the one that it replaces."""
    return database.with_name(f"{database.name}.restoring")
