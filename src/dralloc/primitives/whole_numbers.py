"""Numbers that users write into texts: annotations, names of ports, lists of indexes."""

from __future__ import annotations

from typing import Final

# As many as 64 bits always hold. Python refuses to read numbers of some thousand digits, with an error that callers do not expect.
DIGITS_MAX: Final = 18


def whole_number(text: str) -> int | None:
    """The number in a text that has only digits, and not too many of them."""
    return int(text) if len(text) <= DIGITS_MAX and text.isdecimal() else None
