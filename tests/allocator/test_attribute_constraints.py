"""matchAttribute, distinctAttribute and distinctAttributes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dralloc.devices.allocator.attribute_constraints import Constraint
from dralloc.kube.device_parts import AttributeValue, version
from dralloc.kube.request_name import RequestName
from dralloc.kube.resource_v1 import Device, DeviceAttribute
from dralloc.testing.builders import DRIVER, device

NUMA = f"{DRIVER}/numa"


def accepted(constraint: Constraint, *devices: Device) -> list[bool]:
    """`want` says for each device whether it may be taken after those before it."""
    state, answers = None, []
    for found in devices:
        values = constraint.values_of(DRIVER, found)
        after = None if values is None else constraint.after(state, values)
        answers.append(after is not None)
        state = after if after is not None else state
    return answers


def constraint(*, equal: bool, lists: bool = False, attribute: str = NUMA) -> Constraint:
    return Constraint(attributes=(attribute,), wants_equal=equal, requests=frozenset(), accepts_lists=lists)


def with_numa(*values: AttributeValue | None) -> list[Device]:
    return [device("d", attributes={} if value is None else {"numa": value}) for value in values]


def ints(*values: int) -> DeviceAttribute:
    return DeviceAttribute(ints=values)


@dataclass(frozen=True)
class Case:
    id: str
    values: tuple[AttributeValue | None, ...]
    equal: list[bool]
    distinct: list[bool]
    lists: bool = False


CASES = [
    Case("the same", (1, 1), [True, True], [True, False]),
    Case("different", (1, 2), [True, False], [True, True]),
    Case("missing, also as the first", (None, 1), [False, True], [False, True]),
    Case("of another type", (1, "1"), [True, False], [True, True]),
    Case("truth is not a number", (1, True), [True, False], [True, True]),
    Case("a refused device leaves no trace", (1, 2, 1), [True, False, True], [True, True, False]),
    Case("versions as text", (version("1.0.0"), version("1.0.0+a")), [True, False], [True, True]),
    Case("a list may be the first", (ints(1), 1), [True, False], [True, True]),
    Case("a list may not be the second", (1, ints(1)), [True, False], [True, False]),
    Case("a value of no kind may be the first", (DeviceAttribute(), DeviceAttribute()), [True, False], [True, False]),
    Case("lists on: something in common", (ints(1, 2), ints(2, 3)), [True, True], [True, False], lists=True),
    Case(
        "lists on: common to all",
        (ints(1, 2), ints(2, 3), ints(3, 1)),
        [True, True, False],
        [True, False, False],
        lists=True,
    ),
    Case("lists on: disjoint", (ints(1), ints(2)), [True, False], [True, True], lists=True),
    Case("lists on: scalars are lists of one", (1, ints(1, 2)), [True, True], [True, False], lists=True),
    Case("lists on: empty", (ints(), 1), [False, True], [False, True], lists=True),
    Case("lists on: of another type", (1, DeviceAttribute(strings=("1",))), [True, False], [True, True], lists=True),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_which_devices_satisfy_a_constraint_together(case: Case) -> None:
    devices = with_numa(*case.values)
    assert accepted(constraint(equal=True, lists=case.lists), *devices) == case.equal
    assert accepted(constraint(equal=False, lists=case.lists), *devices) == case.distinct


MODEL = f"{DRIVER}/model"


@dataclass(frozen=True)
class CaseOfSeveral:
    """`values` has the NUMA node and the model of each device."""

    id: str
    values: tuple[tuple[AttributeValue | None, AttributeValue | None], ...]
    want: list[bool]
    lists: bool = False


CASES_OF_SEVERAL = [
    CaseOfSeveral("one differs", ((0, "a"), (0, "b")), [True, True]),
    CaseOfSeveral("both differ", ((0, "a"), (1, "b")), [True, True]),
    CaseOfSeveral("none differs", ((0, "a"), (0, "a")), [True, False]),
    CaseOfSeveral("each pair has to differ", ((0, "a"), (0, "b"), (1, "a"), (0, "b")), [True, True, True, False]),
    CaseOfSeveral("one is missing, also on the first", ((0, None), (0, "a"), (None, "b")), [False, True, False]),
    CaseOfSeveral("of another type", ((0, "a"), ("0", "a")), [True, True]),
    CaseOfSeveral("a value of no kind is never accepted", ((0, DeviceAttribute()), (0, "a")), [False, True]),
    CaseOfSeveral("a list is never accepted while lists are off", ((ints(0), "a"), (0, "a")), [False, True]),
    CaseOfSeveral("lists on: disjoint in one", ((ints(0, 1), "a"), (ints(2), "a")), [True, True], lists=True),
    CaseOfSeveral("lists on: common in both", ((ints(0, 1), "a"), (ints(1, 2), "a")), [True, False], lists=True),
    CaseOfSeveral(
        "lists on: common in each with another device",
        ((ints(0), "a"), (ints(1), "b"), (ints(0, 1), "c"), (ints(0, 1), "b")),
        [True, True, True, False],
        lists=True,
    ),
]


@pytest.mark.parametrize("case", CASES_OF_SEVERAL, ids=lambda case: case.id)
def test_devices_that_must_differ_in_one_of_several_attributes(case: CaseOfSeveral) -> None:
    devices = [
        device("d", attributes={name: value for name, value in (("numa", numa), ("model", model)) if value is not None})
        for numa, model in case.values
    ]
    several = Constraint(attributes=(NUMA, MODEL), wants_equal=False, requests=frozenset(), accepts_lists=case.lists)
    assert accepted(several, *devices) == case.want


def test_an_attribute_is_looked_up_by_its_full_name_first() -> None:
    both = device("d", attributes={"numa": 1, NUMA: 2})
    assert constraint(equal=True).values_of(DRIVER, both) == frozenset({("int", 2)})
    assert constraint(equal=True).values_of("other.example.com", device("d", attributes={"numa": 1})) is None
    foreign = device("d", attributes={"other.example.com/numa": 1})
    assert constraint(equal=True, attribute="other.example.com/numa").values_of(DRIVER, foreign) == frozenset(
        {("int", 1)}
    )


def test_requests_are_covered_by_name_or_by_alternative() -> None:
    requests = frozenset({RequestName("a"), RequestName("b", "x")})
    named = Constraint(attributes=(NUMA,), wants_equal=True, requests=requests, accepts_lists=False)
    covered = [named.covers(RequestName.parse(text)) for text in ("a/y", "b/x", "b/y", "c")]
    assert covered == [True, True, False, False]
    assert constraint(equal=True).covers(RequestName("any"))
