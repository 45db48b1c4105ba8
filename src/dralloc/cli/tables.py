"""Tables as kubectl prints them: columns as wide as their widest cell, three spaces between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableLayout:
    """How wide the columns are: rows that come later are set below those that came first."""

    widths: tuple[int, ...]

    @classmethod
    def of(cls, rows: Sequence[Sequence[str]]) -> TableLayout:
        return cls(tuple(max(map(len, column)) for column in zip(*rows, strict=True)))

    def line(self, row: Sequence[str]) -> str:
        return "   ".join(cell.ljust(width) for cell, width in zip(row, self.widths, strict=True)).rstrip()


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table; the last column is not padded."""
    everything = (header, *rows)
    return list(map(TableLayout.of(everything).line, everything))
