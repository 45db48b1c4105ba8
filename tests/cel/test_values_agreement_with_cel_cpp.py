"""Agreement with Google's C++ implementation on the values of plain CEL expressions.

Excluded is what Kubernetes' implementation does differently: ordering NaN is an error, any value may be looked up in
a map, and durations have another text and convert to numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from cel_expr_python import cel
from cel_expr_python.ext import ext_optional, ext_strings
from hypothesis import given
from hypothesis import strategies as st

from dralloc.cel.compiler import compile_selector_expression as check
from dralloc.cel.errors import CelCompileError, CelEvaluationError
from tests.support.selectors import evaluate

THEIRS = cel.NewEnv(extensions=[ext_optional.ExtOptional(), ext_strings.ExtStrings()], variables={})

FORMS: Final[Mapping[str, Sequence[str]]] = {
    "bool": (
        "true", "false", "({bool}) && ({bool})", "({bool}) || ({bool})", "!({bool})", "({bool}) ? ({bool}) : ({bool})", "({int}) < ({int})",
        "({int}) == ({int})", "({double}) < ({double})", "({double}) == ({double})", "({uint}) <= ({uint})", "({text}) == ({text})", "({text}) < ({text})",
        "({any}) == ({any})", "({any}) != ({any})", "({any}) < ({any})", "({any}) in ({list})", "({list}) == ({list})", "({text}).startsWith({text})",
        "({text}).contains({text})", "({text}).matches('^a')", "({list}).exists(e, e == ({any}))", "({list}).all(e, e != ({any}))",
        "({list}).exists_one(e, e == ({any}))", "{map} == {map}", "({span}) < ({span})", "({time}) < ({time})", "({span}) == ({span})", "({time}) == ({time})",
        "({bytes}) < ({bytes})", "({bytes}) == ({bytes})", "type({any}) == type({any})", "({optional}).hasValue()", "({optional}) == ({optional})",
        "({any}) && ({bool})", "({bool}) || ({any})", "bool({text})", "has({map}.a)",
    ),
    "int": (
        "0", "1", "-1", "7", "9223372036854775807", "({int}) + ({int})", "({int}) - ({int})", "({int}) * ({int})", "({int}) / ({int})", "({int}) % ({int})",
        "-({int})", "size({text})", "size({list})", "int({double})", "int({text})", "int({uint})", "({span}).getHours()", "({span}).getSeconds()",
        "({time}).getFullYear()", "({time}).getMonth()", "({time}).getDate()", "({time}).getDayOfYear()", "({time}).getDayOfWeek()",
        "({time}).getHours('+02:30')", "({time}).getHours('-09:00')", "({time}).getMilliseconds()", "int({time})", "({text}).indexOf({text})",
        "({text}).lastIndexOf({text})", "size({bytes})",
    ),
    "double": ("0.0", "-0.0", "1.5", "1e308", "double({int})", "double({text})", "double({uint})", "({double}) + 1.5", "({double}) - 0.5", "-({double})"),
    "uint": (
        "0u", "1u", "18446744073709551615u", "({uint}) + ({uint})", "({uint}) - ({uint})", "({uint}) * ({uint})", "({uint}) / ({uint})",
        "({uint}) % ({uint})", "uint({int})", "uint({double})", "uint({text})",
    ),
    "text": (
        "''", "'a'", "'1'", "'-1.5'", "'true'", "'é😀'", "({text}) + ({text})", "string({int})", "string({uint})", "string({bool})", "string({bytes})",
        "string({time})", "({bool}) ? ({text}) : ({text})", "({text}).charAt({int})", "({text}).substring({int})",
        "({text}).replace({text}, {text})", "({text}).lowerAscii()", "({text}).upperAscii()", "({text}).trim()",
    ),
    "bytes": ("b''", "b'a'", "b'\\xff'", "bytes({text})", "({bytes}) + ({bytes})"),
    "span": ("duration('1h')", "duration('-1.5s')", "duration('0s')", "({span}) + ({span})", "({span}) - ({span})", "({time}) - ({time})"),
    "time": (
        "timestamp('2024-02-29T23:59:59.999Z')", "timestamp('1969-12-31T23:59:59Z')", "timestamp('0001-01-01T00:00:00Z')",
        "timestamp('9999-12-31T23:59:59Z')", "({time}) + ({span})", "({time}) - ({span})", "timestamp({int})",
    ),
    "any": (
        "dyn({int})", "dyn({double})", "dyn({uint})", "dyn({text})", "dyn({bool})", "dyn(null)", "dyn({list})", "dyn({map})", "({list})[{int}]",
        "{map}['a']", "dyn(1)",
    ),
    "list": ("[dyn(1)]", "[dyn({any}), dyn({any})]", "({list}) + ({list})", "({list}).map(x, x)", "({list}).filter(x, x == ({any}))"),
    "map": ("{ 'a': dyn(1) }", "{ 'a': dyn({any}), 'b': dyn({int}) }", "{ dyn(1): dyn(2), dyn('a'): dyn({any}) }"),
    "optional": ("optional.none()", "optional.of({any})", "({list})[?{int}]", "{map}.?a", "optional.ofNonZeroValue({any})"),
}  # fmt: skip
HOLE: Final = re.compile(r"\{(\w+)\}")


LEAVES: Final = {
    kind: st.sampled_from([form for form in forms if not HOLE.search(form)]) for kind, forms in FORMS.items()
}
SHAPES: Final = {kind: st.sampled_from(forms) for kind, forms in FORMS.items()}


@st.composite
def sentences(draw: st.DrawFn) -> str:
    return _fill(draw, "bool", draw(st.integers(1, 4)))


def _fill(draw: st.DrawFn, kind: str, depth: int) -> str:
    form = draw(SHAPES[kind] if depth > 0 else LEAVES[kind])
    return HOLE.sub(lambda hole: _fill(draw, hole[1], depth - 1), form)


def _ours(text: str) -> Any:
    try:
        return evaluate(text)
    except CelEvaluationError:
        return "error"


def _theirs(text: str) -> Any:
    result = THEIRS.compile(text).eval(data={})
    return "error" if "ERROR" in str(result.type()) else result.value()


@pytest.mark.fuzz
@given(sentences())
def test_values_agree(text: str) -> None:
    try:
        check(text)
        THEIRS.compile(text)
    except (CelCompileError, RuntimeError, ValueError):
        # Types are compared elsewhere.
        return
    assert _ours(text) == _theirs(text)
