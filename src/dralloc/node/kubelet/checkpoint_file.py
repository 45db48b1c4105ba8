"""What the checkpoints of kubelets and drivers have in common. Their files differ; both carry a version and a CRC-32 checksum.

A checkpoint is replaced atomically, so a file that does not decode was damaged from outside. It is refused by name: guessing
would leave devices prepared that no component knows of.
"""

from __future__ import annotations

import zlib


class BadCheckpoint(Exception):
    """The file cannot be trusted; the message names it and says what to do."""


def checksum(content: bytes) -> int:
    return zlib.crc32(content)


def check_checksum(content: bytes, stated: int) -> None:
    """Raise `ValueError` unless the content has this checksum."""
    if (actual := checksum(content)) != stated:
        raise ValueError(f"checksum mismatch: the content has {actual}, the file states {stated}")
