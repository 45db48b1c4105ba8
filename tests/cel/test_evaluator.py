"""The evaluator: results and errors of expressions about a device."""

from __future__ import annotations

import pytest

from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.program import compile_selector
from dralloc.primitives.semver import Semver
from tests.support.selectors import DRIVER, device_view, evaluate

D = f'device.attributes["{DRIVER}"]'
C = f'device.capacity["{DRIVER}"]'

TRUE = [
    # Access.
    f'device.driver == "{DRIVER}"',
    f'{D}.model == "a100"',
    f'{D}["index"] == 4',
    'device.attributes["numa.example.net"].node == 1',
    f'{C}.memory == quantity("40Gi")',
    "device.allowMultipleAllocations == false",
    ".device.driver == device.driver",
    'dyn(device)["driver"] == device.driver',
    "type(device) == map",
    "device == device",
    # Missing domains are empty, but not there.
    "device.attributes.nowhere == {}",
    'device.attributes["nowhere"].size() == 0',
    "has(device.attributes.nowhere)",
    'device.attributes[?"nowhere"].hasValue()',
    '!("nowhere" in device.attributes)',
    "size(device.attributes) == 2",
    f'device.attributes.map(d, d) == ["{DRIVER}", "numa.example.net"]',
    # Presence.
    f"has({D}.model) && !has({D}.nothing)",
    f"!has({D}.model.length)",
    f'"ecc" in {D} && !("none" in {D})',
    f'{D}.?nothing.orValue("x") == "x"',
    f'{D}.?model.orValue("x") == "a100"',
    f"{D}.?nothing == optional.none()",
    'device.attributes[?"nowhere"].?x.orValue(3) == 3',
    f"{D}.?nothing.more.and.more.orValue(1) == 1",
    # Errors are absorbed where the other side decides.
    f"{D}.nothing == 1 || true",
    f"true || {D}.nothing == 1",
    f"!({D}.nothing == 1 && false)",
    f"!(false && {D}.nothing == 1)",
    "[1, 2].exists(x, x == 2 || 1 / 0 == 1)",
    "![0, 1].all(x, x != 1 && 1 / x == 1)",
    "[0, 1, 0].exists(x, 7 / x == 7)",
    "cel.bind(e, 1 / 0, false && e == 1) == false",
    "false ? 1 / 0 == 1 : true",
    f'{D}.model && false == false || true',
    # Equality across types.
    "dyn(1) == 1.0 && dyn(1u) == 1 && dyn(1) != dyn('1')",
    f"({D}.ecc == 1) == false",
    f'({D}.model == 1) == false && {D}.model != 1',
    f'{D}.driverVersion != "560.35.3"',
    f'("560.35.3" == {D}.driverVersion) == false',
    "[dyn(1), dyn(2u)] == [dyn(1.0), dyn(2)]",
    "{dyn(1): 'a'} == {dyn(1u): 'a'}",
    "{dyn(1): 'a', dyn(1u): 'b', dyn(true): 'c'}.size() == 3",
    "{1: 'a'}[dyn(1.0)] == 'a' && {1u: 'a'}[dyn(1)] == 'a'",
    "dyn(9223372036854775807) == 9223372036854775807.0",
    "null == dyn(null) && dyn(null) != 0",
    "0.0 == -0.0",
    "0.0 / 0.0 != 0.0 / 0.0",
    # In constant lists.
    f'{D}.index in [4, 5] && !({D}.index in [5])',
    f'{D}.index in [4.0] && {D}.index in [4u]',
    f'!({D}.ecc in [1]) && !({D}.model in [true])',
    # Macros.
    f'{D}.exists(k, k == "model") && {D}.exists_one(k, k.startsWith("mod"))',
    f'{D}.filter(k, type({D}[k]) == int) == ["index"]',
    f'{D}.all(k, v, k != "ecc" || v)',
    "[1, 2, 3].map(x, x > 1, x * x) == [4, 9]",
    "[5, 6].transformList(i, x, i * x) == [0, 6]",
    "{'a': 1}.transformMap(k, v, v + 1) == {'a': 2}",
    "{'a': 'x'}.transformMapEntry(k, v, {v: k}) == {'x': 'a'}",
    "['bb', 'a'].sortBy(s, s.size()) == ['a', 'bb']",
    "cel.bind(a, 2, cel.bind(a, a + 1, a)) == 3",
    "[1].all(device, device == 1)",
    "{'a': 1, 'a': 2}['a'] == 2",
    "optional.of(1).optMap(x, x + 1) == optional.of(2)",
    "[?optional.of(1), ?optional.none()] == [1]",
    "{?'a': optional.of(1), ?'b': optional.none()} == {'a': 1}",
    # Messages of protobuf stand for plain values.
    "google.protobuf.Int64Value{value: 6} == 6",
    "google.protobuf.Struct{fields: {'a': 1}} == {'a': 1}",
    "google.protobuf.Duration{seconds: 90} == duration('90s')",
]  # fmt: skip

FAILURES = {
    f"{D}.nothing == 1": "no such key: nothing",
    f"{D}.nothing": ".?nothing.orValue",
    'device.attributes["nowhere"].x == 1': "no such key: x",
    f"{C}.none.isInteger()": "no such key: none",
    f"{D}.model.more == 1": "no such key: more",
    f"{D}.index": "must return a bool",
    f"!{D}.model": "no such overload",
    f"{D}.index ? true : false": "no such overload",
    f"true && {D}.index": "a bool is needed",
    f'{D}.driverVersion == "560.35.3"': "no such overload",
    f"{C}.memory == {C}.memory.add(0)": "no such overload",
    f"{D}.model < 1": "no such overload",
    f"{D}.index.all(x, true)": "expected iterable",
    f"{D}.index.all(k, v, true)": "range type",
    "1 / 0 == 1": "division by zero",
    "1 % 0 == 1": "modulus by zero",
    "9223372036854775807 + 1 > 0": "integer overflow",
    "-9223372036854775808 / -1 > 0": "integer overflow",
    "-(-9223372036854775808) > 0": "integer overflow",
    "0u - 1u == 0u": "unsigned integer overflow",
    "0.0 / 0.0 < 1.0": "NaN",
    "[1, 2][2] == 1": "index out of bounds: 2",
    "[1, 2][-1] == 1": "index out of bounds: -1",
    "[1][dyn(0.5)] == 1": "unsupported index value",
    "{'a': 1}['b'] == 1": "no such key: b",
    "optional.none().value() == 1": "dereference",
    "[1, 2].exists(x, 1 / 0 == x)": "division by zero",
    "[1, 0].map(x, 1 / x) == []": "division by zero",
    "['a', 'b'].transformMapEntry(i, s, {'k': i}) == {}": "already exists",
    "kubernetes.DRADevice{driver: 'x'}.driver == 'x'": "unknown type",
    f"(1 / 0 == 1 || {D}.nothing == 1)": "division by zero",
}


@pytest.mark.parametrize("sentence", TRUE)
def test_expressions_about_a_device_are_true(sentence: str) -> None:
    selector = compile_selector(sentence)
    assert selector.decide(device_view()) is True
    assert selector.matches(device_view()) is True


@pytest.mark.parametrize("expression", FAILURES)
def test_errors_name_the_problem(expression: str) -> None:
    selector = compile_selector(expression)
    for run in (selector.decide, selector.matches):
        with pytest.raises(CelEvaluationError) as caught:
            run(device_view())
        assert FAILURES[expression] in str(caught.value)


def test_a_device_without_attributes_loses_the_default_for_domains_when_its_map_is_bound() -> None:
    bare = device_view({}, {})
    assert compile_selector('device.attributes["x"].size() == 0').matches(bare)
    assert compile_selector('[device.attributes].all(m, m["x"].size() == 0)').matches(bare)
    with pytest.raises(CelEvaluationError, match="no such key: x"):
        compile_selector('cel.bind(m, device.attributes, m["x"].size() == 0)').matches(bare)
    assert compile_selector('cel.bind(m, device.attributes, m["x"].size() == 0)').matches(device_view())


def test_a_version_in_a_constant_string_list_aborts_the_evaluation() -> None:
    selector = compile_selector(f'{D}.driverVersion in ["a", "b"] || true')
    with pytest.raises(CelEvaluationError, match="internal error"):
        selector.matches(device_view())


def test_undefined_comparisons_inside_lists_count_as_equal() -> None:
    assert evaluate(f'[{D}.driverVersion] == [dyn("x")]') is True
    assert evaluate(f'[dyn("x")] == [{D}.driverVersion]') is False


def test_list_attributes_can_be_searched_and_iterated() -> None:
    device = device_view({"tags": ["fast", "new"], "ports": [1, 2], "versions": [Semver.parse("1.0.0")]}, {})
    for sentence in (
        f'{D}.tags.exists(t, t == "new")',
        f'{D}.tags.includes("fast") && !{D}.tags.includes(1)',
        f'"new" in {D}.tags',
        f"{D}.ports.sum() == 3",
        f'{D}.versions[0] == semver("1.0.0")',
        f"type({D}.tags) == list",
    ):
        assert compile_selector(sentence).matches(device), sentence


@pytest.mark.parametrize(
    ("expression", "cost"),
    [
        ("true", 0),
        ('device.driver == "gpu.example.com"', 4),
        (f'{D}.model != "T4"', 5),
        (f"has({D}.model)", 3),
        (f"{D}.?nothing.hasValue()", 4),
        (f"{D}.?index.value() == 2", 6),
        ("[1, 5] != [4, 3]", 1),
        ('"x" in ["x"]', 0),
        ("{'x': device.driver}.x == 'gpu.example.com'", 36),
        ("[7, 3].all(x, x == 1)", 8),
        ("[6, 0, 6, 0, 1].exists_one(x, x > 1)", 16),
        ("lists.range(10).size() >= 7", 23),
        ("[5, -3, 0, 0, 0, 4].sort() != [1]", 84),
        ("cidr('10.1.0.0/27').containsIP('169.254.1.1')", 5),
    ],
)
def test_costs_match_kubernetes(expression: str, cost: int) -> None:
    assert compile_selector(expression).measure(device_view())[1] == cost


@pytest.mark.parametrize("function", ["matches", "find", "findAll"])
def test_lone_surrogates_are_an_error_in_patterns(function: str) -> None:
    with pytest.raises(CelEvaluationError, match="not valid Unicode"):
        evaluate(f'{D}.x.{function}("a") == dyn(1)', device_view({"x": "\ud800"}))
