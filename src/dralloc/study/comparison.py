"""Runs of one trace and strategy, with several seeds, as one row: means over the seeds."""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Final

from dralloc.study.run import Run, ordered_sizes


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """The runs of one trace with one strategy."""

    trace: str
    strategy: str
    runs: tuple[Run, ...]

    @property
    def unallocated_percent(self) -> float:
        return fmean(run.unallocated_percent for run in self.runs)

    @property
    def deviation(self) -> float:
        """The standard deviation of the unallocated part over the seeds."""
        return stdev([run.unallocated_percent for run in self.runs]) if len(self.runs) > 1 else 0.0

    @property
    def stranded_percent(self) -> dict[str, float]:
        parts = [run.stranded_percent for run in self.runs]
        causes = dict.fromkeys(cause for part in parts for cause in part)
        return {cause: fmean(part.get(cause, 0.0) for part in parts) for cause in causes}

    @property
    def unplaced_by_size(self) -> dict[str, float]:
        """The mean number of pods that no node ever took."""
        counts: Counter[str] = Counter()
        for run in self.runs:
            counts.update(run.unplaced_by_size)
        return {size: counts[size] / len(self.runs) for size in ordered_sizes(counts)}

    def mean(self, *keys: str) -> float:
        """The mean of a value of the summaries."""
        values: list[float] = []
        for run in self.runs:
            value: Any = run.summary()
            for key in keys:
                value = value[key]
            values.append(value)
        return fmean(values)

    def values(self) -> dict[str, Any]:
        return {
            "trace": self.trace,
            "strategy": self.strategy,
            "seeds": [run.setting.seed for run in self.runs],
            "pods": self.mean("pods"),
            "placed": self.mean("placed"),
            "unplaced": self.mean("unplaced"),
            "allocated_percent": 100 - self.unallocated_percent,
            "unallocated_percent": self.unallocated_percent,
            "unallocated_percent_deviation": self.deviation,
            "stranded_percent": self.stranded_percent,
            "unplaced_by_size": self.unplaced_by_size,
            "wait_s": {"mean": self.mean("wait_s", "mean"), "p95": self.mean("wait_s", "p95")},
            "moves": self.mean("moves"),
            "decisions_per_s": self.mean("decisions_per_s"),
        }


def compared(runs: Iterable[Run]) -> list[ComparedRuns]:
    """The runs by trace and strategy, in their order."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.setting.trace, run.setting.strategy), []).append(run)
    return [ComparedRuns(trace, strategy, tuple(members)) for (trace, strategy), members in groups.items()]


def allocation_curve(runs: Sequence[Run], points: int = 200) -> list[tuple[float, float]]:
    """The allocated part of the devices in percent; the mean of the runs at each point.

    Over the percentage of the devices that arrived pods request; where pods leave, over time in hours.
    """
    xs = [_progress_of(run) for run in runs]
    end = min(each[-1] for each in xs)
    return [
        (at, fmean(_allocated_at(run, x, at) for run, x in zip(runs, xs, strict=True)))
        for at in (end * number / points for number in range(points + 1))
    ]


def _progress_of(run: Run) -> list[float]:
    if run.has_departures:
        return [time_s / 3600 for time_s in run.steps["time_s"]]
    return [100 * milli / run.capacity_milli if run.capacity_milli else 0.0 for milli in run.steps["arrived_milli"]]


def _allocated_at(run: Run, progress: Sequence[float], at: float) -> float:
    """After the last arrival up to this point."""
    index = bisect_right(progress, at) - 1
    return 100 * run.steps["allocated_milli"][index] / run.capacity_milli if index >= 0 and run.capacity_milli else 0.0


def stranded_curves(runs: Sequence[Run], causes: Sequence[str]) -> dict[str, list[tuple[float, float]]]:
    """By cause: the stranded part of the devices in percent at the sampled arrivals; the mean of the runs."""
    length = min(len(run.stranded["arrival"]) for run in runs)
    return {
        cause: [
            (
                fmean(run.stranded["arrival"][index] for run in runs),
                fmean(100 * run.stranded[cause][index] / run.capacity_milli for run in runs),
            )
            for index in range(length)
        ]
        for cause in causes
    }


# --- Csv rows -------------------------------------------------------------------------------------------------------
# Rows of CSV files, plain or compressed, with errors that name file, line and column.


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
