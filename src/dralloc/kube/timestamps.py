"""Timestamps as text: parsed as RFC 3339 in any time zone, kept and printed in UTC and whole seconds, as Kubernetes
does.

With one canonical text for each second, timestamps are equal exactly if their texts are.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

CANONICAL_LENGTH: Final = len("2026-01-31T12:00:00Z")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CANONICAL: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.,][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})"
)


class BadTimestamp(ValueError):
    """A text that is not a timestamp."""


class TimestampText(str):
    """The type of a field whose text must be a timestamp to be decoded."""

    __slots__ = ()


# Many objects have the times of one second.
@lru_cache(maxsize=1024)
def parse_timestamp(text: str) -> datetime:
    """Parses an RFC 3339 timestamp."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise BadTimestamp(f"{text!r} is not a timestamp such as 2026-01-31T12:00:00Z")
    # Python parses at most microseconds; finer digits are ignored.
    fraction = match[1] or ""
    readable = text.replace(fraction, f".{fraction[1:7]}", 1) if fraction else text
    try:
        return datetime.fromisoformat(readable).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise BadTimestamp(f"{text!r} is not a timestamp: {error}") from None


def stated_time(text: str | None) -> datetime | None:
    """The time that an object states; None if it states none that can be read."""
    try:
        return parse_timestamp(text) if text else None
    except BadTimestamp:
        return None


def print_timestamp(moment: datetime) -> str:
    """Returns the timestamp as Kubernetes prints it, truncated to seconds."""
    since = moment - _EPOCH
    return _print_second(since.days, since.seconds)


# Many objects are created in one second, and to print it takes longer than to look it up.
@lru_cache(maxsize=1024)
def _print_second(days: int, seconds: int) -> str:
    return (_EPOCH + timedelta(days, seconds)).isoformat().removesuffix("+00:00") + "Z"


def canonical_timestamp(text: str) -> str:
    """Returns the canonical text of the timestamp."""
    if len(text) == CANONICAL_LENGTH and _is_canonical(text):
        return text
    return print_timestamp(parse_timestamp(text))


# Many objects are created in one second, and each is read at every change.
@lru_cache(maxsize=1024)
def _is_canonical(text: str) -> bool:
    parse_timestamp(text)
    return _CANONICAL.fullmatch(text) is not None
