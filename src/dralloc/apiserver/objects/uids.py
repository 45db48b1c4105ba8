"""Where the UIDs of new objects come from."""

from __future__ import annotations

import os


def random_uid() -> str:
    """A random UUID (version 4), as text. Made by hand because this is on the way of every create."""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
