"""When a list is of another history of the store than what its client has seen before."""

from __future__ import annotations

import pytest

from dralloc.client.informer import HistoryChanged, KnownHistory, history_change
from dralloc.primitives.new_history import HISTORY_GAP

# Of a busy cluster, within days.
MANY_WRITES = 400_000_000


@pytest.mark.parametrize(
    ("revision", "is_other"),
    [
        pytest.param(7, False, id="it went on"),
        pytest.param(5 + MANY_WRITES, False, id="others wrote much, and the watch expired"),
        pytest.param(5 + HISTORY_GAP, True, id="a new history, or etcd with the usual --bump-revision"),
        pytest.param(3, True, id="revisions went back"),
    ],
)
def test_a_list_is_compared_with_what_its_reader_has_seen(revision: int, is_other: bool) -> None:
    history = KnownHistory()
    history.check(5, seen=0)
    assert raises(history, revision, seen=5) == is_other


@pytest.mark.parametrize(
    ("revision", "is_other"),
    [
        pytest.param(4, False, id="the others' lists were answered later"),
        pytest.param(5 + HISTORY_GAP, True, id="a backup was restored between the lists"),
    ],
)
def test_a_first_list_is_compared_with_those_of_others(revision: int, is_other: bool) -> None:
    """A component that starts while a backup is restored must not plan from objects of two histories."""
    history = KnownHistory()
    history.check(5, seen=0)
    assert raises(history, revision, seen=0) == is_other


def test_events_of_others_count() -> None:
    history = KnownHistory()
    history.check(5, seen=0)
    history.reach(5 + MANY_WRITES)
    assert not raises(history, 5 + 2 * MANY_WRITES, seen=0)


def test_whoever_starts_again_with_the_same_client_is_not_told_again() -> None:
    history = KnownHistory()
    history.check(5, seen=0)
    assert raises(history, 5 + HISTORY_GAP, seen=5)
    assert not raises(history, 6 + HISTORY_GAP, seen=0)


def test_a_group_that_other_errors_have_ended_too_is_no_change_of_the_history() -> None:
    changed, bug = HistoryChanged(5, 3), ValueError("a bug")
    assert history_change(ExceptionGroup("", [changed])) is changed
    assert history_change(ExceptionGroup("", [changed, ExceptionGroup("", [changed])])) is changed
    assert history_change(ExceptionGroup("", [changed, ExceptionGroup("", [bug])])) is None
    assert history_change(bug) is None


def raises(history: KnownHistory, revision: int, *, seen: int) -> bool:
    try:
        history.check(revision, seen=seen)
    except HistoryChanged:
        return True
    return False
