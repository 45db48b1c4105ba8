"""How much work a decision may do."""

from __future__ import annotations

import pytest

from dralloc.primitives.work_allowance import (
    WorkExceeded,
    check_work,
    is_work_left,
    renewed_allowance,
    work_allowance,
    work_done,
)


def test_without_an_allowance_any_work_may_be_done() -> None:
    work_done(10**12)
    check_work()


def test_too_much_work_is_interrupted_when_more_is_asked_for() -> None:
    with work_allowance(10) as allowance:
        work_done(10)
        check_work()
        work_done(1)
        assert not is_work_left()
        with pytest.raises(WorkExceeded):
            check_work()
    assert allowance is not None
    assert allowance.used == 11
    check_work()


def test_a_part_may_do_as_much_as_the_whole_which_counts_it() -> None:
    with work_allowance(10):
        work_done(8)
        with renewed_allowance():
            work_done(8)
            check_work()
        assert not is_work_left()
        with work_allowance(None):
            check_work()


def test_a_part_of_what_is_not_limited_is_not_limited() -> None:
    with renewed_allowance():
        work_done(10**12)
        check_work()
