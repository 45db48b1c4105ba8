"""Tables as kubectl prints them: columns as wide as their widest cell, three spaces between them."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table; the last column is not padded."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return [
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *rows)
    ]
