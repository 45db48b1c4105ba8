"""Numbers that users write into texts: annotations, names of ports, lists of indexes."""

from __future__ import annotations

from typing import Final

# As many as 64 bits always hold. Python refuses to read numbers of some thousand digits, with an error that callers do not expect.
DIGITS_MAX: Final = 18


def whole_number(text: str) -> int | None:
    """The number in a text that has only the digits 0 to 9, and not too many of them."""
    return int(text) if len(text) <= DIGITS_MAX and text.isascii() and text.isdecimal() else None
