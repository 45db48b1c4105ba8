"""Timestamps and durations: parsing, printing, arithmetic, and their parts in a time zone."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.library.conversions import conversion_error, positional_text
from dralloc.cel.library.functions import Library
from dralloc.cel.library.standard import INTEGER_OVERFLOW, checked_int
from dralloc.cel.values import DURATION, INT_MAX, INT_MIN, TIMESTAMP, Duration, Timestamp

LIBRARY: Final = Library()
define: Final = LIBRARY.define

SECOND: Final = 10**9
DAY_S: Final = 86_400
# The years 1 to 9999.
TIMESTAMP_MIN_S: Final = -62_135_596_800
TIMESTAMP_MAX_S: Final = 253_402_300_799

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


# --- Reading and printing ------------------------------------------------------------------------------------

_UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3_600 * SECOND,
}
_DURATION_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)


@define("duration", str)
def parse_duration(text: str) -> Duration:
    """Parses a duration such as `1h30m`: an optional sign, and numbers with units."""
    sign = -1 if text.startswith("-") else 1
    unsigned = text[1:] if text[:1] in ("-", "+") else text
    nanos = 0 if unsigned == "0" else _parse_unsigned_duration(unsigned)
    if nanos is None or not INT_MIN <= sign * nanos <= INT_MAX:
        raise conversion_error(text, DURATION.name)
    return Duration(sign * nanos)


def _parse_unsigned_duration(text: str) -> int | None:
    nanos, position = 0, 0
    while match := _DURATION_PART.match(text, position):
        whole, fraction, unit = match[1], match[2] or "", _UNITS[match[3]]
        # More digits than a 64-bit number has are invalid, and Python refuses to parse thousands of them.
        if not (whole or fraction) or len(whole.lstrip("0")) > 19:
            return None
        nanos += int(whole or "0") * unit
        digits = fraction[:18]
        if digits:
            nanos += int(float(int(digits)) * (float(unit) / 10.0 ** len(digits)))
        position = match.end()
    return nanos if text and position == len(text) else None


_TIMESTAMP: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?(?:Z|([+-])([0-9]{2}):([0-9]{2}))",
    re.ASCII,
)


@define("timestamp", str)
def parse_timestamp(text: str) -> Timestamp:
    """Parses an RFC 3339 timestamp: `2026-01-31T09:30:00Z`."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise conversion_error(text, TIMESTAMP.name)
    year, month, day, hour, minute, second = (int(part) for part in match.group(1, 2, 3, 4, 5, 6))
    offset_hours, offset_minutes = int(match[9] or "0"), int(match[10] or "0")
    if offset_hours > 24 or offset_minutes > 60:
        raise conversion_error(text, TIMESTAMP.name)
    offset_s = (offset_hours * 3_600 + offset_minutes * 60) * (-1 if match[8] == "-" else 1)
    try:
        # The year 0 has as many days as 2000, but Python does not support it.
        moment = datetime(year or 2000, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise conversion_error(text, TIMESTAMP.name) from None
    seconds = (moment - _EPOCH) // timedelta(seconds=1) - offset_s
    fraction = (match[7] or "")[:9].ljust(9, "0")
    if year == 0:
        raise CelEvaluationError("timestamp overflow")
    return checked_timestamp(seconds * SECOND + int(fraction), offset_s)


def checked_timestamp(nanos: int, offset_s: int = 0) -> Timestamp:
    """Returns an instant between the years 1 and 9999; raises otherwise."""
    if TIMESTAMP_MIN_S <= nanos // SECOND <= TIMESTAMP_MAX_S:
        return Timestamp(nanos, offset_s)
    raise CelEvaluationError("timestamp overflow")


def checked_duration(nanos: int) -> Duration:
    """Returns a duration that fits 64 bits; raises otherwise."""
    if INT_MIN <= nanos <= INT_MAX:
        return Duration(nanos)
    raise CelEvaluationError(INTEGER_OVERFLOW)


define("timestamp", int)(lambda seconds: checked_timestamp(seconds * SECOND))


@define("string", Duration)
def text_of_duration(duration: Duration) -> str:
    """The number of seconds."""
    seconds = _whole_and_rest(duration.nanos, SECOND)
    return f"{positional_text(float(seconds.whole) + float(seconds.rest) / 1e9)}s"


@define("string", Timestamp)
def text_of_timestamp(timestamp: Timestamp) -> str:
    """Returns RFC 3339 text with the original offset, and no more decimals than needed."""
    seconds, nanos = divmod(timestamp.nanos, SECOND)
    date = _civil_date(seconds + timestamp.offset_s)
    fraction = f".{nanos:09}".rstrip("0") if nanos else ""
    return f"{date.year:04}-{date.month:02}-{date.day:02}T{date.hour:02}:{date.minute:02}:{date.second:02}{fraction}{_offset_text(timestamp.offset_s)}"


def _offset_text(offset_s: int) -> str:
    if offset_s == 0:
        return "Z"
    hours, minutes = divmod(abs(offset_s) // 60, 60)
    return f"{'-' if offset_s < 0 else '+'}{hours:02}:{minutes:02}"


define("int", Timestamp)(lambda timestamp: timestamp.nanos // SECOND)
define("int", Duration)(lambda duration: duration.nanos)


# --- Calculating ---------------------------------------------------------------------------------------------


@define("_+_", Duration, Duration)
def add_durations(left: Duration, right: Duration) -> Duration:
    return checked_duration(left.nanos + right.nanos)


define("_-_", Duration, Duration)(lambda left, right: checked_duration(left.nanos - right.nanos))


@define("_+_", Timestamp, Duration)
def add_duration(timestamp: Timestamp, duration: Duration) -> Timestamp:
    return checked_timestamp(timestamp.nanos + duration.nanos, timestamp.offset_s)


define("_+_", Duration, Timestamp)(lambda duration, timestamp: add_duration(timestamp, duration))


@define("_-_", Timestamp, Duration)
def subtract_duration(timestamp: Timestamp, duration: Duration) -> Timestamp:
    return checked_timestamp(timestamp.nanos - duration.nanos, timestamp.offset_s)


define("_-_", Timestamp, Timestamp)(lambda left, right: checked_duration(left.nanos - right.nanos))
define("-_", Duration)(lambda duration: checked_duration(-duration.nanos))


class _Parts(NamedTuple):
    whole: int
    rest: int


def _whole_and_rest(nanos: int, unit: int) -> _Parts:
    """Rounds towards zero; both parts have the sign of the number."""
    whole, rest = divmod(abs(nanos), unit)
    return _Parts(whole, rest) if nanos >= 0 else _Parts(-whole, -rest)


# --- Parts ---------------------------------------------------------------------------------------------------


define("getHours", Duration)(lambda duration: _whole_and_rest(duration.nanos, 3_600 * SECOND).whole)
define("getMinutes", Duration)(lambda duration: _whole_and_rest(duration.nanos, 60 * SECOND).whole)
define("getSeconds", Duration)(lambda duration: _whole_and_rest(duration.nanos, SECOND).whole)
define("getMilliseconds", Duration)(lambda duration: checked_int(_whole_and_rest(duration.nanos, 1_000_000).whole))


class _Civil(NamedTuple):
    """Local date and time."""

    year: int
    month: int
    day: int
    hour: int
    minute: int
    second: int
    day_of_week: int
    day_of_year: int


_Part = Callable[[_Civil, Timestamp], int]

_PARTS: Final[dict[str, _Part]] = {
    "getFullYear": lambda civil, _: civil.year,
    "getMonth": lambda civil, _: civil.month - 1,
    "getDate": lambda civil, _: civil.day,
    "getDayOfMonth": lambda civil, _: civil.day - 1,
    "getDayOfWeek": lambda civil, _: civil.day_of_week,
    "getDayOfYear": lambda civil, _: civil.day_of_year,
    "getHours": lambda civil, _: civil.hour,
    "getMinutes": lambda civil, _: civil.minute,
    "getSeconds": lambda civil, _: civil.second,
    "getMilliseconds": lambda _, timestamp: timestamp.nanos % SECOND // 1_000_000,
}


def _define_part(name: str, part: _Part) -> None:
    @define(name, Timestamp)
    def in_utc(timestamp: Timestamp) -> int:
        return part(_civil_date(timestamp.nanos // SECOND), timestamp)

    @define(name, Timestamp, str)
    def in_zone(timestamp: Timestamp, zone: str) -> int:
        seconds = timestamp.nanos // SECOND
        return part(_civil_date(seconds + _zone_offset_s(zone, seconds)), timestamp)


for _name, _part in _PARTS.items():
    _define_part(_name, _part)


def _civil_date(seconds: int) -> _Civil:
    """Returns the date of a second since 1970, on the proleptic calendar."""
    days, second_of_day = divmod(seconds, DAY_S)
    # Python's calendar ends with the year 9999, and an offset can exceed it: 400 years have a whole number of weeks.
    cycles = days // 146_097
    date = (_EPOCH + timedelta(days=days - cycles * 146_097)).timetuple()
    hour, second_of_hour = divmod(second_of_day, 3_600)
    minute, second = divmod(second_of_hour, 60)
    return _Civil(
        date.tm_year + 400 * cycles, date.tm_mon, date.tm_mday, hour, minute, second, (days + 4) % 7, date.tm_yday - 1
    )


_OFFSET: Final = re.compile(r"([+-]?)([0-9]{1,9}):([0-9]{1,9})", re.ASCII)


def _zone_offset_s(zone: str, seconds: int) -> int:
    """Returns the offset from UTC: a literal offset (`-05:30`), or that of a named zone at that second."""
    if ":" not in zone:
        return _named_zone_offset_s(zone, seconds)
    match = _OFFSET.fullmatch(zone)
    if match is None:
        raise CelEvaluationError(f"invalid time zone offset {zone!r}: use the form +02:00")
    offset_s = (int(match[2]) * 60 + int(match[3])) * 60
    return -offset_s if match[1] == "-" else offset_s


def _named_zone_offset_s(zone: str, seconds: int) -> int:
    if zone in ("", "UTC", "Local"):
        return 0
    # In the zone, the first and last days may be outside Python's calendar.
    seconds = min(max(seconds, TIMESTAMP_MIN_S + 2 * DAY_S), TIMESTAMP_MAX_S - 2 * DAY_S)
    offset = (_EPOCH + timedelta(seconds=seconds)).astimezone(_load_zone(zone)).utcoffset()
    assert offset is not None, "a time in a zone has an offset"
    return offset // timedelta(seconds=1)


@lru_cache(maxsize=64)
def _load_zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        raise CelEvaluationError(f"unknown time zone {name}") from None
