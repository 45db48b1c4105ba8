"""Selectors as callers use them: compiled once, shared by threads, explained."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from dralloc.cel.errors import CelCompileError, CelEvaluationError, CelTypeError
from dralloc.cel.program import compile_selector
from dralloc.cel.selector_explanation import ExplainedPart, shown_value
from tests.support.selectors import DRIVER, device_view, evaluate

D = f'device.attributes["{DRIVER}"]'


def test_a_text_is_compiled_once() -> None:
    assert compile_selector("device.driver == 'once'") is compile_selector("device.driver == 'once'")


def test_compile_errors_are_cached_and_raised_again() -> None:
    faults = []
    for _ in range(3):
        with pytest.raises(CelTypeError) as caught:
            compile_selector("device.nothing")
        faults.append(caught.value)
    assert faults[0] is faults[2]
    assert str(faults[0]).startswith("ERROR: <input>:1:7: ")


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "1",
        "device",
        "device.driver",
        "true &&",
        "int('x') == 1 || true",
        "'a'.find('(') == ''",
        "{}[[1]] == 1 || true",
    ],
)
def test_a_non_selector_is_rejected_at_compile_time(expression: str) -> None:
    with pytest.raises(CelCompileError):
        compile_selector(expression)


def test_threads_share_a_selector() -> None:
    selector = compile_selector(f"{D}.exists(k, k == 'index') && {D}.index % 2 == 0 && cel.bind(i, {D}.index, i >= 0)")
    devices = [device_view({"index": number}) for number in range(200)]
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(selector.matches, devices))
    assert answers == [number % 2 == 0 for number in range(200)]


def test_threads_may_compile_the_same_text_concurrently() -> None:
    texts = [f"device.driver == 'd{number}'" for number in range(20)] * 10
    with ThreadPoolExecutor(8) as threads:
        selectors = list(threads.map(compile_selector, texts))
    assert all(selector.text == text for selector, text in zip(selectors, texts, strict=True))


def told(expression: str) -> list[ExplainedPart]:
    return list(compile_selector(expression).explain(device_view()).parts)


def test_an_explanation_shows_each_informative_part() -> None:
    assert [(part.depth, part.text, part.values) for part in told(f'{D}.model == "h100" || {D}.index < 8')] == [
        (0, f'{D}.model == "h100" || {D}.index < 8', ("true",)),
        (1, f'{D}.model == "h100"', ("false",)),
        (2, f"{D}.model", ('"a100"',)),
        (1, f"{D}.index < 8", ("true",)),
        (2, f"{D}.index", ("4",)),
    ]


def test_an_explanation_shows_skipped_parts() -> None:
    parts = told(f"true || {D}.index < 8")
    assert [(part.text, part.times) for part in parts] == [
        (f"true || {D}.index < 8", 1),
        (f"{D}.index < 8", 0),
        (f"{D}.index", 0),
    ]


def test_an_explanation_shows_where_an_error_arose() -> None:
    parts = told(f"{D}.none > 3 && true")
    assert [(part.text, part.is_origin) for part in parts] == [
        (f"{D}.none > 3 && true", False),
        (f"{D}.none > 3", False),
        (f"{D}.none", True),
    ]
    assert all(part.error and "no such key: none" in part.error for part in parts)


def test_an_explanation_shows_the_first_values_of_a_loop() -> None:
    parts = {part.text: part for part in told("lists.range(9).all(x, x * 2 < 99)")}
    assert parts["x * 2"].values == ("0", "2", "4", "6", "8")
    assert parts["x * 2"].times == 9


@pytest.mark.parametrize(
    "expression",
    ["cel.bind(a, 1, a == 1)", "[2, 1].sortBy(x, -x) == [2, 1]", "optional.of(1).optMap(x, x + 1).hasValue()", "{'a': 1}.transformMap(k, v, v) == {'a': 1}", f"has({D}.model)"],
)  # fmt: skip
def test_macros_are_explained_as_they_are_written(expression: str) -> None:
    parts = told(expression)
    assert parts[0].text == expression.replace("'", '"')
    assert parts[0].values == ("true",)
    assert all(part.times for part in parts)


def test_an_explanation_fails_only_for_a_malformed_device() -> None:
    from dralloc.cel.device import DeviceView
    from dralloc.kube.resource_v1 import DeviceAttribute

    with pytest.raises(CelEvaluationError, match="attribute x"):
        compile_selector("true").explain(DeviceView.build("d", {"x": DeviceAttribute()}))


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ("[1, 2u, 3.0, 1e9]", "[1, 2u, 3.0, 1e+09]"),
        ("lists.range(7)", "[0, 1, 2, 3, 4, … 2 more]"),
        ("{'a': [null, true], 1: b'x'}", '{"a": [null, true], 1: b"x"}'),
        ("[optional.of('é\\n'), optional.none()]", '[optional.of("é\\n"), optional.none()]'),
        ("[quantity('1Gi'), semver('1.0.0')]", '[quantity("1Gi"), semver("1.0.0")]'),
        ("[duration('1m'), timestamp(0)]", '[duration("60s"), timestamp("1970-01-01T00:00:00Z")]'),
        ("[int, type(ip('::1'))]", "[int, net.IP]"),
        ("[ip('::1')]", "[a net.IP]"),
    ],
)
def test_values_are_shown_as_they_would_be_written(expression: str, want: str) -> None:
    assert shown_value(evaluate(expression)) == want
