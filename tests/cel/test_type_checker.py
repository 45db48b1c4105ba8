"""The type checker: types, errors and their messages."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import pytest
from hypothesis import given

from dralloc.cel import types
from dralloc.cel.environment import Environment, new_environment, stored_environment
from dralloc.cel.errors import CelError, CelTypeError
from dralloc.cel.parser import parse
from dralloc.cel.type_checker import check_types
from dralloc.cel.types import Substitution, Type
from tests.support.expressions import expression_texts

STORED = stored_environment()
NEW = new_environment(has_multiple_allocations=True, has_list_attributes=False)
BARE = new_environment(has_multiple_allocations=False, has_list_attributes=False)


def type_of(text: str, environment: Environment = STORED) -> str:
    return str(check_types(parse(text), environment).result)


TYPED = [
    ("null", "null"),
    ("1 + 2", "int"),
    ("1u * 2u", "uint"),
    ("1.0 / 2.0", "double"),
    ("'a' + 'b'", "string"),
    ("b'a' + b'b'", "bytes"),
    ("1 < 2.0", "bool"),
    ("[1] + [2]", "list(int)"),
    ("[]", "list(dyn)"),
    ("[[], [1]]", "list(list(int))"),
    ("{'a': [1u]}", "map(string, list(uint))"),
    ("{}", "map(dyn, dyn)"),
    ("[1, 'a']", "list(dyn)"),
    ("[1, null]", "list(dyn)"),
    ("[?optional.of(1)]", "list(int)"),
    ("{'a': 1}['a']", "int"),
    ("{'a': 1}.a", "int"),
    ("{'a': 1}.?a", "optional_type(int)"),
    ("[[1]][?0]", "optional_type(list(int))"),
    ("[[1]][?0][0]", "optional_type(int)"),
    ("{'a': {'b': 1}}.?a.b", "optional_type(int)"),
    ("optional.none().or(optional.of(1))", "optional_type(int)"),
    ("optional.of(1).orValue(2)", "int"),
    ("optional.of('a').optMap(x, x.size())", "optional_type(int)"),
    ("[optional.of(1)].unwrapOpt()", "list(int)"),
    ("type(1)", "type(int)"),
    ("type", "type(type)"),
    ("google.protobuf.Timestamp", "type(timestamp)"),
    ("net.IP", "type(net.IP)"),
    ("dyn(1)", "dyn"),
    ("true ? 1 : dyn('a')", "dyn"),
    ("[1, 2].map(x, x > 1)", "list(bool)"),
    ("[1, 2].filter(x, x > 1)", "list(int)"),
    ("{'a': 1}.map(k, k)", "list(string)"),
    ("['a'].transformList(i, v, i)", "list(int)"),
    ("['a'].transformMap(i, v, v)", "map(int, string)"),
    ("{'a': 1}.transformMapEntry(k, v, {v: k})", "map(int, string)"),
    ("[[1], []].flatten()", "list(int)"),
    ("['b', 'a'].sortBy(x, x.size())", "list(string)"),
    ("lists.range(3)", "list(int)"),
    ("cel.bind(x, [1], x[0])", "int"),
    ("timestamp('2024-01-01T00:00:00Z') - timestamp('2024-01-01T00:00:00Z')", "duration"),
    ("quantity('1').add(1)", "kubernetes.Quantity"),
    ("semver('1.2.3').major()", "int"),
    ("ip('1.2.3.4')", "net.IP"),
    ("cidr('1.2.3.4/8').ip()", "net.IP"),
    ("url('http://a').getQuery()", "map(string, list(string))"),
    ("format.named('uuid')", "optional_type(kubernetes.NamedFormat)"),
    ("google.protobuf.Int64Value{value: 1}", "wrapper(int)"),
    ("kubernetes.DRADevice{driver: 'a'}", "kubernetes.DRADevice"),
    ("device", "kubernetes.DRADevice"),
    ("device.driver", "string"),
    ("device.allowMultipleAllocations", "bool"),
    ("device.attributes", "map(string, map(string, dyn))"),
    ("device.attributes['d'].a", "dyn"),
    ("device.attributes['d'].a.b.c", "dyn"),
    ("device.attributes.d.?a", "optional_type(dyn)"),
    ("device.capacity['d'].a", "kubernetes.Quantity"),
    ("device.attributes['d'].a + 1", "int"),
    ("device.attributes['d'].a + device.attributes['d'].b", "dyn"),
    ("device.attributes['d'].a.all(x, x)", "bool"),
    ("device.attributes['d'].a.includes(1)", "bool"),
    ("device.attributes['d'].a.allowed()", "bool"),
    ("has(device.attributes.d)", "bool"),
    ("null == device.capacity['d'].a", "bool"),
]


@pytest.mark.parametrize(("text", "want"), TYPED, ids=[text for text, _ in TYPED])
def test_type_of_a_stored_expression(text: str, want: str) -> None:
    assert type_of(text) == want


# The text, where the fault is, and a part of what is said about it.
REFUSED = [
    ("a", 0, "undeclared reference to 'a'"),
    ("a.b", 0, "undeclared reference to 'a'"),
    ("f(1)", 1, "undeclared reference to function 'f'"),
    ("1.f()", 3, "undeclared reference to function 'f'"),
    ("1 + 'a'", 2, "no overload of '+' for (int, string)"),
    ("1 == 1.0", 2, "no overload of '==' for (int, double)"),
    ("1 in {'a': 1}", 2, "no overload of 'in' for (int, map(string, int))"),
    ("!1", 0, "no overload of '!' for (int)"),
    ("-'a'", 0, "no overload of '-' for (string)"),
    ("true ? 1 : 'a'", 5, "no overload of '?:' for (bool, int, string)"),
    ("[1]['a']", 3, "no overload of '[]' for (list(int), string)"),
    ("'a'.size(1)", 8, "no overload of 'size' for string.(int)"),
    ("'a'.contains(1)", 12, "no overload of 'contains' for string.(int)"),
    ("duration(1)", 8, "no overload of 'duration' for (int)"),
    ("quantity('1') < quantity('2')", 14, "no overload of '<' for (kubernetes.Quantity, kubernetes.Quantity)"),
    ("quantity('1').isLessThan(1)", 24, "no overload of 'isLessThan' for kubernetes.Quantity.(int)"),
    ("quantity('1').sign()", 18, "no overload of 'sign' for kubernetes.Quantity.()"),
    ("'a'.reverse()", 11, "no overload of 'reverse' for string.()"),
    ("null == 1", 5, "no overload of '==' for (null, int)"),
    ("optional.of(1) == optional.of('a')", 15, "no overload of '=='"),
    ("[?1]", 2, "a value of type optional_type(int) is needed, this is int"),
    ("'a'.b", 3, "a value of type string has no fields"),
    ("quantity('1').value", 13, "has no field 'value'"),
    ("device.name", 6, "undefined field 'name' of kubernetes.DRADevice; its fields are allowMultipleAllocations,"),
    ("device.attributes['d'].a < semver('1.2.3')", 25, "no overload of '<' for (dyn, kubernetes.Semver)"),
    ("1.map(x, x)", 0, "a value of type int cannot be iterated"),
    ("[1].all(x, x)", 7, "no overload of '&&' for (bool, int)"),
    ("[1].map(x, y)", 11, "undeclared reference to 'y'"),
    ("cel.bind(x, 1, x) + x", 20, "undeclared reference to 'x'"),
    ("kubernetes.URL", 0, "undeclared reference to 'kubernetes'"),
    ("Foo{}", 3, "there is no message type 'Foo'"),
    ("kubernetes.DRADevice{name: 1}", 27, "undefined field 'name'"),
    ("google.protobuf.Int64Value{value: 'a'}", 34, "a value of type int is needed, this is string"),
]


@pytest.mark.parametrize(("text", "offset", "words"), REFUSED, ids=[text for text, _, _ in REFUSED])
def test_rejects_with_a_reason(text: str, offset: int, words: str) -> None:
    with pytest.raises(CelTypeError) as refusal:
        check_types(parse(text), STORED)
    assert words in refusal.value.problems[0].message
    assert refusal.value.problems[0].offset == offset


def test_all_errors_are_reported_in_order() -> None:
    with pytest.raises(CelTypeError) as refusal:
        check_types(parse("b && 1 + 'a' == a"), STORED)
    assert [problem.offset for problem in refusal.value.problems] == [0, 7, 16]


@dataclass(frozen=True)
class GateCase:
    id: str
    text: str
    stored: bool
    new: bool
    bare: bool


GATED = [
    GateCase("multiple allocations", "device.allowMultipleAllocations", stored=True, new=True, bare=False),
    GateCase("a macro over an attribute", "device.attributes['d'].a.all(x, x)", stored=True, new=False, bare=False),
    GateCase("includes", "device.attributes['d'].a.includes(1)", stored=True, new=False, bare=False),
    GateCase("arithmetic with an attribute", "device.attributes['d'].a + 1 > 2", stored=True, new=True, bare=True),
    GateCase("a macro over all attributes", "device.attributes['d'].all(k, k != '')", stored=True, new=True, bare=True),
]


@pytest.mark.parametrize("case", GATED, ids=lambda case: case.id)
def test_environments_differ_by_feature(case: GateCase) -> None:
    assert (_compiles(case.text, STORED), _compiles(case.text, NEW), _compiles(case.text, BARE)) == (
        case.stored,
        case.new,
        case.bare,
    )


def _compiles(text: str, environment: Environment) -> bool:
    with contextlib.suppress(CelTypeError):
        check_types(parse(text), environment)
        return True
    return False


def test_type_size_is_limited() -> None:
    text = "0"
    for depth in range(30):
        text = f"cel.bind(x{depth}, {'{1: 1}' if depth == 29 else f'{{x{depth + 1}: x{depth + 1}}}'}, {text})"
    with pytest.raises(CelTypeError, match="parts"):
        check_types(parse(text), STORED)


@pytest.mark.parametrize(
    "text", ["[" * 249 + "]" * 249, "{1: " * 249 + "1" + "}" * 249, "device.attributes" + ".a" * 240]
)
def test_the_deepest_expressions_are_checked(text: str) -> None:
    check_types(parse(text), STORED)


def test_local_names_shadow_types() -> None:
    assert type_of("cel.bind(net, {'IP': 1}, net.IP)") == "int"
    assert type_of("[1].map(int, int)") == "list(int)"


def test_failed_attempts_are_rolled_back() -> None:
    substitution = Substitution()
    variable = substitution.fresh_variable()
    assert not substitution.fit_all([types.list_of(types.INT), types.STRING], [types.list_of(variable), types.INT])
    assert substitution.resolve(variable) == variable


def _variable_inside(variable: Type) -> Type:
    return types.list_of(types.map_of(types.STRING, variable))


def test_a_type_variable_cannot_contain_itself() -> None:
    substitution = Substitution()
    variable = substitution.fresh_variable()
    assert not substitution.fits(variable, _variable_inside(variable))


@pytest.mark.slow
@pytest.mark.fuzz
@given(expression_texts())
def test_checking_raises_nothing_but_cel_errors(text: str) -> None:
    for environment in (STORED, NEW):
        with contextlib.suppress(CelError):
            checked = check_types(parse(text), environment)
            assert not any(found.is_open for found in checked.types.values())


def test_new_expressions_also_compile_when_stored() -> None:
    """Everything that the API server accepts runs in the scheduler, whatever the gates were."""
    texts = [
        "device.attributes['d'].a == 1",
        "device.capacity['d'].a == quantity('1')",
        "[device.attributes.d.a].max() > 1",
    ]
    for environment in (NEW, BARE):
        for text in texts:
            check_types(parse(text), environment)
            check_types(parse(text), STORED)
