"""Compilation: checks of the API server and the scheduler, and properties of expressions."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import pytest
from hypothesis import given

from dralloc.cel.attribute_reads import Reads
from dralloc.cel.compiler import (
    CheckedExpression,
    RefusalReason,
    RefusedExpression,
    check_selector,
    compile_derived_attribute,
    compile_selector_expression,
    environment_for,
)
from dralloc.cel.environment import Environment, stored_environment
from dralloc.cel.errors import CelCompileError, CelError, CelProgramError, CelTypeError
from dralloc.cel.program import Selector
from dralloc.primitives.features import FeatureGates
from dralloc.primitives.semver import Semver
from tests.support.expressions import expression_texts, typed_texts
from tests.support.selectors import device_view

STORED = stored_environment()
NEW = environment_for(FeatureGates.defaults())
LISTS = environment_for(FeatureGates.defaults().override({"DRAListTypeAttributes": True}))
EXCLUSIVE = environment_for(FeatureGates.defaults().override({"DRAConsumableCapacity": False}))


def _verdict(outcome: CheckedExpression | RefusedExpression) -> RefusalReason | None:
    return outcome.fault if isinstance(outcome, RefusedExpression) else None


@dataclass(frozen=True)
class Case:
    id: str
    text: str
    stored: RefusalReason | None = None
    new: RefusalReason | None = None


SELECTORS = [
    Case("bool", "device.driver == 'a'"),
    Case("an attribute", "device.attributes['d'].a"),
    Case("a capacity", "device.capacity['d'].a", stored=RefusalReason.INVALID, new=RefusalReason.INVALID),
    Case("dyn of something", "dyn(1)", new=RefusalReason.INVALID),
    Case("an optional", "device.attributes['d'].?a", stored=RefusalReason.INVALID, new=RefusalReason.INVALID),
    Case("nothing", "", stored=RefusalReason.INVALID, new=RefusalReason.INVALID),
    Case("too complex", "lists.range(1000000).size() > 1", new=RefusalReason.TOO_COMPLEX),
    Case("just not too complex", "lists.range(999987).size() > 1"),
    Case("longest", "true" + " " * 10236),
    Case("too long", "true" + " " * 10237, new=RefusalReason.TOO_LONG),
    Case("too long in bytes", f"'{'é' * 5120}' == ''", new=RefusalReason.TOO_LONG),
    Case("too long comes before all else", "(" + " " * 10240, stored=RefusalReason.INVALID, new=RefusalReason.TOO_LONG),
    Case("mixed list", "[1, 'a'].size() > 1", stored=RefusalReason.INVALID, new=RefusalReason.INVALID),
    Case("mixed map", "{1: 1, 2: 'a'}.size() > 1", stored=RefusalReason.INVALID, new=RefusalReason.INVALID),
    Case("mixed list inside format", "'%d%s'.format([1, 'a']) == ''"),
    Case("mixed list deep inside format", "'%s'.format([[1, 'a']]) == ''"),
    Case("optional elements count by their value", "[?optional.of(1), 2].size() > 1"),
    Case("attribute beside dyn", "[device.attributes['d'].a, dyn(1)].size() > 1", new=RefusalReason.INVALID),
    Case("bad duration", "duration('1') > duration('2s')", stored=RefusalReason.INVALID, new=RefusalReason.INVALID),
    Case(
        "bad timestamp",
        "true || timestamp('2024') == timestamp(0)",
        stored=RefusalReason.INVALID,
        new=RefusalReason.INVALID,
    ),
    Case("bad pattern", "true || 'a'.matches('(')", stored=RefusalReason.INVALID, new=RefusalReason.INVALID),
    Case(
        "bad text where the pattern of a method would be",
        "matches('(', 'a')",
        stored=RefusalReason.INVALID,
        new=RefusalReason.INVALID,
    ),
    Case("pattern that is computed", "'a'.matches('(' + '')"),
    Case("bad number behind true", "true || int('x') == 1", stored=RefusalReason.INVALID, new=RefusalReason.INVALID),
    Case(
        "bad number through dyn", "true || int(dyn([1])) == 1", stored=RefusalReason.INVALID, new=RefusalReason.INVALID
    ),
    Case("bad number that is computed", "true || int('x' + '') == 1"),
    Case(
        "bad pattern to find", "true || 'a'.find('a**') == ''", stored=RefusalReason.INVALID, new=RefusalReason.INVALID
    ),
    Case("type of a constant", "type(dyn(int)) == type", new=RefusalReason.TOO_COMPLEX),
]


@pytest.mark.parametrize("case", SELECTORS, ids=lambda case: case.id)
def test_selectors(case: Case) -> None:
    assert _verdict(check_selector(case.text, STORED)) == case.stored
    assert _verdict(check_selector(case.text, NEW)) == case.new


FORMATS = [
    ("'%s %d %.2f %e %b %x %X %o %%'.format(['a', 1, 1.0, 1.0, true, 'a', b'a', 1u])", True),
    ("'%s'.format([[1, {'a': null}]])", True),
    ("'%s'.format([device.attributes['d'].a])", True),
    ("'%s'.format([quantity('1')])", False),
    ("'%s'.format([[quantity('1')]])", False),
    ("'%d'.format([1.0])", False),
    ("'%f'.format([1])", False),
    ("'%f'.format(['NaN'])", True),
    ("'%b'.format(['a'])", False),
    ("'%y'.format([1])", False),
    ("'%.f'.format([1.0])", False),
    ("'%'.format([1])", False),
    ("'%d %d'.format([1])", False),
    ("'%d'.format([1, 2])", False),
    ("device.driver.format([1])", True),
]


@pytest.mark.parametrize(("text", "is_good"), FORMATS, ids=[text for text, _ in FORMATS])
def test_format_templates_are_checked_against_their_arguments(text: str, is_good: bool) -> None:
    outcome = check_selector(f"{text} == ''", STORED)
    assert isinstance(outcome, CheckedExpression) == is_good


def test_refusals_have_a_reason_and_a_position() -> None:
    with pytest.raises(CelTypeError, match=r"<input>:1:8: all must be of type int, this is string"):
        compile_selector_expression("[1, 2, 'a'] == []")
    with pytest.raises(CelProgramError, match=r"<input>:1:12: .*type conversion error"):
        compile_selector_expression("true || int('x') == 1")
    refusal = check_selector("device.capacity['d'].a", NEW)
    assert isinstance(refusal, RefusedExpression)
    assert "a selector must return bool, or an attribute that is a bool, not kubernetes.Quantity" in refusal.message


DERIVED = [
    ("1", True, True),
    ("'a'", True, True),
    ("true", True, True),
    ("semver('1.2.3')", True, True),
    ("device.attributes['d'].a", True, True),
    ("dyn(1)", True, True),
    ("quantity('1')", False, False),
    ("1.0", False, False),
    ("1u", False, False),
    ("[1]", False, True),
    ("[[1]]", False, False),
    ("['a'].map(x, x)", False, True),
    ("{'a': 1}", False, False),
    ("null", False, False),
]


@pytest.mark.parametrize(("text", "without_lists", "with_lists"), DERIVED, ids=[text for text, _, _ in DERIVED])
def test_derived_attributes(text: str, without_lists: bool, with_lists: bool) -> None:
    assert _compiles_as_attribute(text, NEW) == without_lists
    assert _compiles_as_attribute(text, LISTS) == with_lists
    assert _compiles_as_attribute(text, STORED) == with_lists


def _compiles_as_attribute(text: str, environment: Environment) -> bool:
    try:
        compile_derived_attribute(text, environment)
    except CelCompileError:
        return False
    return True


def test_gates_choose_the_environment() -> None:
    assert _verdict(check_selector("device.allowMultipleAllocations", NEW)) is None
    assert _verdict(check_selector("device.allowMultipleAllocations", EXCLUSIVE)) is RefusalReason.INVALID
    assert _verdict(check_selector("device.attributes['d'].a.includes(1)", NEW)) is RefusalReason.INVALID
    assert _verdict(check_selector("device.attributes['d'].a.includes(1)", LISTS)) is None


@dataclass(frozen=True)
class ReadCase:
    id: str
    text: str
    attributes: frozenset[tuple[str, str]] = frozenset()
    capacity: frozenset[tuple[str, str]] = frozenset()
    is_exact: bool = True


def pairs(*names: str) -> frozenset[tuple[str, str]]:
    return frozenset(("d", name) for name in names)


READS = [
    ReadCase("driver only", "device.driver == 'a'"),
    ReadCase("by field", "device.attributes['d'].a == 1 && device.capacity['d'].m.isInteger()", pairs("a"), pairs("m")),
    ReadCase("by key", "device.attributes['d']['a'] == device.attributes.d['b']", pairs("a", "b")),
    ReadCase("by optional steps", "device.attributes[?'d'].?a.orValue(1) == 1", pairs("a")),
    ReadCase("by presence", "has(device.attributes['d'].a) || 'b' in device.attributes['d']", pairs("a", "b")),
    ReadCase("through a name", "cel.bind(d, device.attributes['d'], d.a == 1 && d.b == 2)", pairs("a", "b")),
    ReadCase("through a name of the device", "cel.bind(d, device, d.capacity['d'].m.isInteger())", capacity=pairs("m")),
    ReadCase("through an optional", "device.attributes[?'d'].optMap(d, d.a == 1).hasValue()", pairs("a")),
    ReadCase("what an attribute holds does not matter", "device.attributes['d'].a.all(x, x.b == 1)", pairs("a")),
    ReadCase("a hidden name is another", "[1].all(device, device == 1)"),
    ReadCase("iteration reads all", "device.attributes['d'].all(k, k != '')", is_exact=False),
    ReadCase("a computed name reads all", "device.attributes['d'][device.driver] == 1", is_exact=False),
    ReadCase("comparison reads all", "device.attributes['d'] == {}", is_exact=False),
    ReadCase("counting reads all", "size(device.capacity) == 1", is_exact=False),
    ReadCase("asking for a domain reads all", "'d' in device.attributes", is_exact=False),
    ReadCase("a list holds all", "[device.attributes].size() == 1", is_exact=False),
]


@pytest.mark.parametrize("case", READS, ids=lambda case: case.id)
def test_reads_of_an_expression(case: ReadCase) -> None:
    want = Reads(attributes=case.attributes, capacity=case.capacity, is_exact=case.is_exact)
    assert compile_selector_expression(case.text).reads == want


def test_cheap_selectors_stay_within_budget() -> None:
    assert compile_selector_expression("device.attributes['d'].a == 1").stays_within_budget
    assert compile_selector_expression("device.attributes['d'].all(k, k.matches('a+'))").stays_within_budget
    assert not compile_selector_expression("lists.range(200000).all(x, x >= 0)").stays_within_budget
    assert not compile_selector_expression("type(device.driver) == string").stays_within_budget


@pytest.mark.slow
@pytest.mark.fuzz
@given(expression_texts())
def test_checking_a_selector_raises_nothing(text: str) -> None:
    for environment in (STORED, NEW, LISTS, EXCLUSIVE):
        check_selector(text, environment)
        _compiles_as_attribute(text, environment)
    with contextlib.suppress(CelError):
        checked = compile_selector_expression(text)
        assert checked.reads is checked.reads
        assert checked.cost_max >= 0


DEVICE = device_view({"bool": True, "int": 4, "string": "a100", "version": Semver.parse("1.2.3")}, {"memory": "80Gi"})


@pytest.mark.slow
@pytest.mark.fuzz
@given(typed_texts())
def test_actual_cost_is_within_the_estimate(text: str) -> None:
    with contextlib.suppress(CelError):
        checked = compile_selector_expression(text)
        _, cost = Selector(checked).measure(DEVICE)
        assert cost <= 3 * checked.cost_max + 10 or not checked.cost.is_upper_bound


@pytest.mark.slow
@pytest.mark.fuzz
@given(typed_texts())
def test_accepted_expressions_also_compile_when_stored(text: str) -> None:
    if isinstance(check_selector(text, NEW), CheckedExpression):
        compile_selector_expression(text)


def test_compiling_a_refused_expression_raises() -> None:
    with pytest.raises(CelCompileError):
        compile_selector_expression("1")
