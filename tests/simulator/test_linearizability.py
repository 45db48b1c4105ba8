"""The check of histories: right ones pass, each kind of wrong answer is found."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from random import Random

import pytest

from tests.simulator.linearizability import ABSENT, Answer, RegisterRequest, is_linearizable
from tests.simulator.register_clients import UNDER_WAY_MAX_S, RegisterHistory

DONE, CONFLICT, UNKNOWN = Answer.DONE, Answer.CONFLICT, Answer.UNKNOWN


def write(called: float, returned: float, expected: int, value: int, answer: Answer = DONE) -> RegisterRequest:
    return RegisterRequest(called=called, returned=returned, expected=expected, value=value, answer=answer)


def lost(called: float, expected: int, value: int) -> RegisterRequest:
    return write(called, inf, expected, value, UNKNOWN)


def read(called: float, returned: float, value: int) -> RegisterRequest:
    return RegisterRequest(called=called, returned=returned, is_read=True, value=value, answer=DONE)


@dataclass(frozen=True)
class Case:
    id: str
    requests: tuple[RegisterRequest, ...]
    right: bool = True


CASES = [
    Case("nothing", ()),
    Case("a write, then a read", (write(0, 1, 0, 1), read(2, 3, 1))),
    Case("a stale read", (write(0, 1, 0, 1), write(2, 3, 1, 2), read(4, 5, 1)), right=False),
    Case("a read during a write sees the old value", (write(0, 1, 0, 1), write(2, 5, 1, 2), read(3, 4, 1))),
    Case("the new value is gone again", (write(0, 9, 0, 1), read(1, 2, 1), read(3, 4, 0)), right=False),
    Case("two writes of which one must fail", (write(0, 1, 0, 1), write(0, 1, 0, 2)), right=False),
    Case("two writes of which one fails", (write(0, 1, 0, 1), write(0, 1, 0, 2, CONFLICT))),
    Case("a conflict without a reason", (write(0, 1, 0, 1), write(2, 3, 1, 2, CONFLICT)), right=False),
    Case("a lost write", (write(0, 1, 0, 1), read(2, 3, 0)), right=False),
    Case("a write without an answer that happened", (lost(0, 0, 1), read(2, 3, 0), read(4, 5, 1))),
    Case("a write without an answer that never happened", (lost(0, 0, 1), read(2, 3, 0), read(4, 5, 0))),
    Case(
        "a write without an answer cannot happen twice",
        (lost(0, 0, 1), read(1, 2, 1), write(3, 4, 1, 0), read(5, 6, 1)),
        right=False,
    ),
    Case("a deletion, and a read of nothing", (write(0, 1, 0, 1), write(2, 3, 1, ABSENT), read(4, 5, 0))),
    Case("a value that no request wrote", (write(0, 1, 0, 1), read(2, 3, 7)), right=False),
    Case("a missing object exists", (write(0, 1, 0, 1), write(2, 3, 1, 2, Answer.MISSING)), right=False),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_histories(case: Case) -> None:
    assert is_linearizable(case.requests) is case.right


def test_a_real_register_is_always_linearizable() -> None:
    for seed in range(30):
        random, value, requests = Random(seed), 0, []
        for number in range(1, 40):
            moment = number + random.random()
            around = (moment - random.random() * 3, moment + random.random() * 3)
            if random.random() < 0.5:
                requests.append(read(*around, value))
            else:
                expected = random.choice((value, value, number - 1))
                matches = expected == value
                answer = random.choice((UNKNOWN, DONE if matches else CONFLICT))
                returned = inf if answer is UNKNOWN else around[1]
                requests.append(write(around[0], returned, expected, number, answer))
                value = number if matches else value
        assert is_linearizable(requests)


@pytest.mark.parametrize(("restored", "right"), [(2, True), (2 * UNDER_WAY_MAX_S, False)], ids=["soon", "long after"])
def test_a_write_without_an_answer_may_take_effect_after_a_restore(restored: float, right: bool) -> None:
    history = RegisterHistory()
    history.call("r", lost(1, 970, 992))
    history.restore(restored)
    for seen in (read(restored + 1, restored + 2, 970), read(restored + 3, restored + 4, 992)):
        history.end("r")
        history.call("r", seen)
    history.check()
    assert (not history.violations) == right
