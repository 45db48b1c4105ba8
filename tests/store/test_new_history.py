"""A new history begins above every revision that was given out, whichever backup is restored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from dralloc.primitives.new_history import HISTORY_GAP, first_of_history

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def test_restores_in_any_order_give_higher_revisions() -> None:
    first = first_of_history(100, NOON)
    of_a_later_backup = first_of_history(first + 500, NOON + timedelta(minutes=1))
    of_the_first_backup_again = first_of_history(100, NOON + timedelta(minutes=2))
    assert 100 < first < of_a_later_backup < of_the_first_backup_again


def test_the_histories_of_two_restores_are_far_apart() -> None:
    """Clients tell them apart by the distance, which writes do not cover (`client/informer.py`)."""
    writes = 500_000
    given_out = first_of_history(100, NOON) + writes
    assert first_of_history(100, NOON + timedelta(seconds=1)) - given_out > HISTORY_GAP / 2
    assert first_of_history(given_out, NOON + timedelta(milliseconds=1)) - given_out >= HISTORY_GAP


def test_a_clock_that_is_behind_does_not_lead_back() -> None:
    newest = first_of_history(100, NOON) + 500
    assert first_of_history(newest, NOON - timedelta(days=365)) == newest + HISTORY_GAP
