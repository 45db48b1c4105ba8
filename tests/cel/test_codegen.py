"""The fast path returns the evaluator's result, or falls back to it."""

from __future__ import annotations

import pytest
from hypothesis import given

from dralloc.cel.codegen import generate
from dralloc.cel.compiler import compile_selector_expression as check
from dralloc.cel.device import DeviceView
from dralloc.cel.errors import CelCompileError, CelError
from dralloc.cel.program import compile_selector
from tests.support.selectors import DRIVER, GPU, device_view, device_views, typed_selectors

D = f'device.attributes["{DRIVER}"]'
C = f'device.capacity["{DRIVER}"]'


class GaveUpError(Exception):
    pass


def give_up(device: DeviceView) -> bool:
    raise GaveUpError


def fast_answer(expression: str, device: DeviceView) -> bool | None:
    """What generated code says by itself; None where it leaves the answer to the evaluator."""
    checked = check(expression)
    matcher = generate(checked.typed, give_up, is_cheap=checked.stays_within_budget)
    assert matcher is not None, f"no code for {expression}"
    try:
        return matcher(device)
    except GaveUpError:
        return None


def outcome(matcher: object, device: DeviceView) -> object:
    assert callable(matcher)
    try:
        return matcher(device)
    except CelError:
        return CelError


USUAL = [
    'device.driver == "gpu.example.com"',
    f'{D}.model == "a100" && {D}.index != 5 && {D}.ecc',
    f'{D}.model in ["a100", "h100"] && {D}.index in [1, 4]',
    f'{D}.model.startsWith("a") && {D}.model.matches("^a[0-9]+$") && {D}.model.contains("10")',
    f'{C}.memory.compareTo(quantity("10Gi")) >= 0 && {C}.memory.isLessThan(quantity("80Gi"))',
    f'{C}.memory != quantity("1") && {C}.memory == quantity("40Gi")',
    f'{D}.driverVersion.isGreaterThan(semver("550.0.0")) && {D}.driverVersion.compareTo(semver("560.35.3")) == 0',
    f'has({D}.model) && "model" in {D} && !has({D}.none)',
    f'{D}.?none.orValue("x") == "x" && {D}.?model.hasValue() && {D}.?index.value() == 4',
    f'cel.bind(gpu, {D}, gpu.model == "a100" && gpu.index < 8)',
    f'{D}.exists(k, k == "model") && {D}.all(k, v, k != "index" || v == 4)',
    f'({D}.index > 3 ? {D}.model : "none") == "a100"',
    f"{D}.index * 2 + 1 == 9 && size({D}) == 4",
    "device.allowMultipleAllocations == false",
    "[1, 2, 3].exists(x, x * 2 == 4) && [1, 2].exists_one(x, x == 1)",
    f"{D}.map(k, k).size() == 4 && {D}.transformMap(k, v, k).size() == 4",
]


@pytest.mark.parametrize("expression", USUAL)
def test_common_selectors_run_without_the_evaluator(expression: str) -> None:
    assert fast_answer(expression, device_view()) is True
    assert compile_selector(expression).is_generated


@pytest.mark.parametrize(
    ("expression", "attributes", "want"),
    [
        ("{D}.x == 1", {"x": True}, False),
        ("{D}.x == 0", {"x": False}, False),
        ("{D}.x == true", {"x": 1}, False),
        ("{D}.x in [1]", {"x": True}, False),
        ("{D}.x in [true]", {"x": 1}, False),
        ("{D}.x in [1.0]", {"x": 1}, True),
        ("{D}.x in [0, 1]", {"x": False}, False),
        ('{D}.x != "a"', {"x": 1}, True),
        ('"a" == {D}.x', {"x": ["a"]}, False),
        ("{D}.x + 1 > {D}.x", {"x": 2**63 - 2}, True),
        ("{D}.x / 2 == -3 && {D}.x % 2 == -1", {"x": -7}, True),
        ("size({D}.x) == 1", {"x": "é"}, True),
        ("{D}.x == {D}.x", {"x": [1, 2]}, True),
    ],
)  # fmt: skip
def test_python_semantics_do_not_leak(expression: str, attributes: dict[str, object], want: bool) -> None:
    selector = compile_selector(expression.replace("{D}", D))
    device = device_view(attributes)  # type: ignore[arg-type]
    assert selector.matches(device) is want
    assert selector.decide(device) is want


@pytest.mark.parametrize(
    "expression",
    [
        f"{D}.none == 1",
        f"{D}.none == 1 || true",
        f'{D}.driverVersion == "560.35.3"',
        f"{D}.index && true",
        f'{D}.index.startsWith("a")',
        f"{D}.model > 3",
        f"{D}.index + 9223372036854775807 > 0",
        f"{D}.model.all(x, true)",
        "[1][1] == 1",
        "1 / 0 == 1",
    ],
)
def test_unusual_cases_fall_back_to_the_evaluator(expression: str) -> None:
    assert fast_answer(expression, device_view()) is None
    selector = compile_selector(expression)
    assert outcome(selector.matches, device_view()) == outcome(selector.decide, device_view())


def test_both_sides_of_a_comparison_are_evaluated() -> None:
    # What the text on the left would be compared with is no text, and still its error counts.
    selector = compile_selector(f"string({D}.none) != {D}.index")
    assert outcome(selector.matches, device_view()) is CelError


def test_negative_indexes_do_not_count_from_the_end() -> None:
    assert fast_answer("[1, 2][-1] == 2", device_view()) is None


def test_expensive_expressions_fall_back_to_the_evaluator() -> None:
    for expression in (
        "lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))",
        "optional.of(1)" + ".optMap(a, a)" * 40 + ".hasValue()",
        'cel.bind(a, "x" + device.driver, "%s%s".format([a, a]).size() > 0)' + " && type(device) == map",
    ):
        assert not compile_selector(expression).is_generated, expression


def test_simple_selectors_of_unknown_cost_still_run_fast() -> None:
    checked = check(f'{C}.memory != quantity("1Gi") && type({D}.index) == int')
    assert not checked.stays_within_budget
    assert compile_selector(checked.text).is_generated


@pytest.mark.fuzz
@given(typed_selectors(), device_views())
def test_the_fast_path_agrees_with_the_evaluator(expression: str, device: DeviceView) -> None:
    try:
        selector = compile_selector(expression)
    except CelCompileError:
        return
    assert outcome(selector.matches, device) == outcome(selector.decide, device)


def test_one_selector_is_used_for_many_devices() -> None:
    selector = compile_selector(f"{D}.index >= 2")
    devices = [device_view({**GPU, "index": number}) for number in range(4)]
    assert [selector.matches(device) for device in devices] == [False, False, True, True]
