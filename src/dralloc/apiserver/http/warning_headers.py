"""Warnings about accepted requests, as HTTP headers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

# The limit of Kubernetes, for clients and proxies that bound the size of headers.
WARNINGS_BYTES_MAX: Final = 4096


def warning_headers(warnings: Iterable[str]) -> tuple[tuple[bytes, bytes], ...]:
    """One header for each distinct warning, as many as fit."""
    headers: list[tuple[bytes, bytes]] = []
    room = WARNINGS_BYTES_MAX
    for text in dict.fromkeys(warnings):
        value = _quoted(text)
        room -= len(value)
        if room < 0:
            break
        headers.append((b"warning", value))
    return tuple(headers)


def _quoted(text: str) -> bytes:
    printable = "".join(character if character.isprintable() else " " for character in text)
    escaped = printable.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'.encode()
