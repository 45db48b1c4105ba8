"""How much work a decision may do before it is interrupted.

Objects of users decide how long a decision takes: selectors run on every device, terms are compared with every pod. Code whose
work they decide says what it has done (`work_done`) and asks before it goes on (`check_work`). Inside `work_allowance`, too much
work raises `WorkExceeded`; elsewhere nothing is limited. Work is counted, not measured, so that a decision is the same on every
machine: a unit is about a tenth of a microsecond.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class WorkExceeded(Exception):
    """The work that was allowed is done. What was worked out and cached is of use when the decision is made again."""


class Allowance:
    __slots__ = ("left", "work")

    def __init__(self, work: int) -> None:
        self.work = self.left = work

    @property
    def used(self) -> int:
        return self.work - self.left


_current: ContextVar[Allowance | None] = ContextVar("work_allowance", default=None)


@contextmanager
def work_allowance(work: int | None) -> Iterator[Allowance | None]:
    """Allows so much work inside the block, or any."""
    allowance = Allowance(work) if work is not None else None
    token = _current.set(allowance)
    try:
        yield allowance
    finally:
        _current.reset(token)


@contextmanager
def renewed_allowance() -> Iterator[None]:
    """Allows as much work inside the block as was allowed in the beginning. Outside, it counts as well."""
    outer = _current.get()
    with work_allowance(outer.work if outer is not None else None):
        try:
            yield
        finally:
            inner = _current.get()
            if outer is not None and inner is not None:
                outer.left -= inner.used


def work_done(work: int) -> None:
    allowance = _current.get()
    if allowance is not None:
        allowance.left -= work


def is_work_left() -> bool:
    allowance = _current.get()
    return allowance is None or allowance.left >= 0


def check_work() -> None:
    """Raises WorkExceeded if more was done than is allowed. Callers must be able to begin anew."""
    if not is_work_left():
        raise WorkExceeded
