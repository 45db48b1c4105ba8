"""Rows of CSV files, plain or compressed, with errors that name file, line and column."""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_GZIP: Final = b"\x1f\x8b"
# What tables have in cells without a value.
_NOTHING: Final = frozenset({"", "nan", "none", "null"})


class BadInput(ValueError):
    """A file or a description cannot be used; the message says where and why."""


@dataclass(frozen=True, slots=True)
class CsvTable:
    """A table of a file. `columns` are the names of the first line. `dialect` is that of the separator: a comma, or a tab."""

    file: str
    columns: tuple[str, ...]
    text: str
    dialect: str

    def rows(self) -> Iterator[CsvRow]:
        """Raises BadInput."""
        reader = csv.reader(io.StringIO(self.text), self.dialect)
        try:
            next(reader)
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(self.columns):
                    raise BadInput(
                        f"{self.file}:{reader.line_num}: {len(cells)} columns, but the first line names {len(self.columns)}"
                    )
                yield CsvRow(self.file, reader.line_num, dict(zip(self.columns, map(str.strip, cells), strict=True)))
        except csv.Error as error:
            raise BadInput(f"{self.file}:{reader.line_num}: {error}") from None

    def require(self, names: Sequence[str]) -> None:
        """Raises BadInput if a column is missing."""
        if missing := [name for name in names if name not in self.columns]:
            raise BadInput(f"{self.file}:1: no column {', '.join(missing)}; there are {', '.join(self.columns)}")


@dataclass(frozen=True, slots=True)
class CsvRow:
    file: str
    line: int
    cells: dict[str, str]

    def bad(self, column: str, why: str) -> BadInput:
        return BadInput(f"{self.file}:{self.line}: column {column}: {why}")

    def text(self, column: str) -> str:
        """The cell, empty if it has no value or there is no such column."""
        cell = self.cells.get(column, "")
        return "" if cell.lower() in _NOTHING else cell

    def name(self, column: str) -> str:
        if not (text := self.cells[column]):
            raise self.bad(column, "a name is required")
        return text

    def number(self, column: str, default: float | None = None, *, minimum: float = 0) -> float:
        """A finite number; without a value the default, if there is one."""
        text = self.text(column)
        if not text and default is not None:
            return default
        try:
            found = float(text)
        except ValueError:
            raise self.bad(column, f"expected a number, got {text!r}") from None
        if not math.isfinite(found) or found < minimum:
            raise self.bad(column, f"expected a number of at least {minimum:g}, got {text!r}")
        return found

    def optional_number(self, column: str, *, minimum: float = 0) -> float | None:
        return self.number(column, minimum=minimum) if self.text(column) else None

    def whole(self, column: str, default: int | None = None, *, maximum: int | None = None) -> int:
        """A whole number of at least 0."""
        found = self.number(column, default)
        if found != int(found):
            raise self.bad(column, f"expected a whole number, got {self.text(column)!r}")
        if maximum is not None and found > maximum:
            raise self.bad(column, f"expected at most {maximum}, got {self.text(column)!r}")
        return int(found)

    def scaled(self, column: str, factor: int) -> int:
        """A number in another unit, rounded to a whole one; 0 without a value."""
        return round(self.number(column, 0) * factor)


def read_bytes(path: str | Path) -> bytes:
    """The content of a file, unpacked. Raises BadInput."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    if not content.startswith(_GZIP):
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path}: damaged gzip file: {error}") from None


def table_of(path: str | Path, content: bytes) -> CsvTable:
    """Raises BadInput."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise BadInput(f"{path}:{line}: not UTF-8 text") from None
    first = text.partition("\n")[0]
    dialect = "excel-tab" if "\t" in first and "," not in first else "excel"
    try:
        columns = next(csv.reader(io.StringIO(text), dialect), [])
    except csv.Error as error:
        raise BadInput(f"{path}:1: {error}") from None
    names = tuple(map(str.strip, columns))
    if not any(names):
        raise BadInput(f"{path}:1: no columns; the first line must name them")
    if len(set(names)) < len(names):
        raise BadInput(f"{path}:1: two columns have the same name")
    return CsvTable(str(path), names, text, dialect)
