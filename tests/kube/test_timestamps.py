"""Canonical timestamps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.kube.timestamps import BadTimestamp, canonical_timestamp, parse_timestamp, print_timestamp


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
        ("2026-01-31T12:00:00.999999999Z", "2026-01-31T12:00:00Z"),
        ("2026-01-31T00:30:00+01:00", "2026-01-30T23:30:00Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
    ],
)
def test_timestamps_print_in_utc_and_whole_seconds(text: str, want: str) -> None:
    assert canonical_timestamp(text) == want


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2026-02-30T00:00:00Z",
        "2026-01-31",
        "2026-01-31 12:00:00Z",
        "0001-01-01T00:00:00+09:00",
        "2026-01-31T12:00:00",
    ],
)
def test_invalid_timestamps_are_rejected(text: str) -> None:
    with pytest.raises(BadTimestamp):
        canonical_timestamp(text)


@given(moment=st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)))
def test_printed_timestamps_round_trip(moment: datetime) -> None:
    moment = moment.replace(tzinfo=UTC)
    again = parse_timestamp(print_timestamp(moment))
    assert timedelta(0) <= moment - again < timedelta(seconds=1)
    assert canonical_timestamp(print_timestamp(again)) == print_timestamp(again)
