"""Table columns, and cells that several kinds share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from dralloc.kube.timestamps import BadTimestamp, parse_timestamp
from dralloc.server.documents.json_documents import Document

Cell = str | int
WIDE: Final = 1

NONE: Final = "<none>"
UNKNOWN: Final = "<unknown>"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its header, and the function that renders its cell at a time."""

    name: str
    cell: Callable[[Document, datetime], Cell]
    description: str = ""
    priority: int = 0
    type: str = "string"
    format: str = ""


def at(document: Document, *path: str) -> Any:
    """The value at the path, or `None`."""
    value: Any = document
    for step in path:
        if not isinstance(value, dict):
            return None
        value = value.get(step)
    return value


def field(*path: str, absent: Cell = NONE) -> Callable[[Document, datetime], Cell]:
    """A function that renders the value at the path."""

    def cell(document: Document, _: datetime) -> Cell:
        value = at(document, *path)
        return absent if value in (None, "") else value

    return cell


def age(document: Document, now: datetime) -> Cell:
    """How long ago the object was created."""
    return time_since(at(document, "metadata", "creationTimestamp"), now)


def time_since(timestamp: Any, now: datetime) -> str:
    try:
        return print_duration(now - parse_timestamp(timestamp)) if isinstance(timestamp, str) else UNKNOWN
    except BadTimestamp:
        return UNKNOWN


def print_duration(duration: timedelta) -> str:
    """A duration as kubectl prints it, with two or three significant digits."""
    seconds = int(duration.total_seconds())
    if seconds < -1:
        return "<invalid>"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{max(seconds, 0)}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    if days < 8 * 365:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def _name(document: Document, _: datetime) -> Cell:
    return str(at(document, "metadata", "name") or "")


NAME: Final = Column("Name", _name, "The object's name, unique in its namespace.", format="name")
AGE: Final = Column("Age", age, "How long ago the object was created.")
