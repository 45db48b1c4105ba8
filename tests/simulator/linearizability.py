"""Linearizability of requests to single objects, against a small model: a register with compare-and-swap.

A history of requests is linearizable if each request can be given a moment between its call and its answer at which it took effect
at once. A request without an answer may have taken effect at any moment after its call, or never. The search is that of Wing and
Gong with the memory of Lowe; each object is checked alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from math import inf

from msgspec import Struct

ABSENT = 0
"""The value of an object that does not exist. Each write has a value of its own, above zero."""


class Answer(Enum):
    """What the server said to a request."""

    DONE = auto()
    # The object was not as expected.
    CONFLICT = auto()
    # The object does not exist.
    MISSING = auto()
    # The server stated that it did nothing.
    REFUSED = auto()
    # No answer.
    UNKNOWN = auto()


class RegisterRequest(Struct, kw_only=True, gc=False):
    """A read, or a write that expects a value. A creation expects none; a deletion writes none."""

    called: float
    returned: float = inf
    is_read: bool = False
    expected: int = ABSENT
    # The value that is written; of a read, the value that it returned.
    value: int = ABSENT
    answer: Answer = Answer.UNKNOWN

    def after(self, value: int) -> int | None:
        """The value after the request took effect on a value; None if the answer contradicts that."""
        if self.is_read:
            return value if self.value == value else None
        matches = value == self.expected
        match self.answer:
            case Answer.DONE:
                return self.value if matches else None
            case Answer.UNKNOWN:
                # Without effect it is as if it had never happened, and needs no moment.
                return self.value if matches else None
            case Answer.CONFLICT:
                # A creation finds an object, a change finds another value; one that finds none may get either answer.
                return None if matches else value
            case Answer.MISSING:
                return value if value == ABSENT else None
            case Answer.REFUSED:
                return value


def is_linearizable(requests: Sequence[RegisterRequest], initial: int = ABSENT) -> bool:
    """True if some order of the requests explains all answers."""
    # Reads without an answer and refused requests say nothing.
    ordered = sorted(
        (
            request
            for request in requests
            if request.answer is not Answer.REFUSED and not (request.is_read and request.answer is Answer.UNKNOWN)
        ),
        key=lambda request: request.called,
    )
    answered = sum(1 << place for place, request in enumerate(ordered) if request.returned < inf)
    seen: set[tuple[int, int]] = set()
    stack = [(0, initial)]
    while stack:
        done, value = stack.pop()
        if done & answered == answered:
            return True
        if (done, value) in seen:
            continue
        seen.add((done, value))
        # A request may be next if it was called before every other one that is left had returned.
        deadline = inf
        for place, request in enumerate(ordered):
            if done >> place & 1:
                continue
            if request.called > deadline:
                break
            deadline = min(deadline, request.returned)
            after = request.after(value)
            if after is not None:
                stack.append((done | 1 << place, after))
    return False
