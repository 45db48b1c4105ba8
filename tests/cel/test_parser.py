"""The parser: tokens, grammar, macros and limits."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import pytest
from hypothesis import given

from dralloc.cel.errors import CelError, CelSyntaxError
from dralloc.cel.parser import parse
from dralloc.cel.syntax import (
    Call,
    Comprehension,
    Expression,
    Identifier,
    ListLiteral,
    Literal,
    MapLiteral,
    MessageLiteral,
    Select,
)
from tests.support.expressions import scrambled_texts


def shape(node: Expression) -> str:
    """A tree in one line: calls as `function(arguments)`, targets before a dot."""
    match node:
        case Literal():
            return repr(node.value)
        case Identifier():
            return node.name
        case Select():
            return f"{shape(node.operand)}.{node.field}{'?' if node.tests_presence else ''}"
        case Call(target=None):
            return f"{node.function}({', '.join(map(shape, node.arguments))})"
        case Call(target=target):
            assert target is not None
            return f"{shape(target)}->{node.function}({', '.join(map(shape, node.arguments))})"
        case ListLiteral():
            return (
                f"[{', '.join(('?' if at in node.optional else '') + shape(e) for at, e in enumerate(node.elements))}]"
            )
        case MapLiteral():
            entries = ", ".join(f"{'?' * e.optional}{shape(e.key)}: {shape(e.value)}" for e in node.entries)
            return f"{{{entries}}}"
        case MessageLiteral():
            fields = ", ".join(f"{'?' * e.optional}{e.field}: {shape(e.value)}" for e in node.entries)
            return f"{node.type_name}{{{fields}}}"
        case Comprehension():
            names = node.variable + (f", {node.second_variable}" if node.second_variable else "")
            parts = (node.range, node.initial, node.condition, node.step, node.result)
            return f"fold<{names}; {node.accumulator}>({'; '.join(map(shape, parts))})"


@dataclass(frozen=True)
class Case:
    id: str
    text: str
    want: str


READ = [
    Case("multiplication binds stronger", "1 + 2 * 3", "_+_(1, _*_(2, 3))"),
    Case("equal strength goes from the left", "7 - 2 - 1 + 4", "_+_(_-_(_-_(7, 2), 1), 4)"),
    Case("relations go from the left", "a < b == c", "_==_(_<_(a, b), c)"),
    Case("and binds stronger than or", "a || b && c", "_||_(a, _&&_(b, c))"),
    Case("chains are balanced", "a && b && c && d", "_&&_(_&&_(a, b), _&&_(c, d))"),
    Case("three in a chain", "a || b || c", "_||_(_||_(a, b), c)"),
    Case("parentheses group", "a && (b && c)", "_&&_(a, _&&_(b, c))"),
    Case("conditional", "a ? b : c ? d : e", "_?_:_(a, b, _?_:_(c, d, e))"),
    Case("conditional inside brackets", "[a ? b : c, d]", "[_?_:_(a, b, c), d]"),
    Case("in", "a in [1]", "@in(a, [1])"),
    Case("signs of a number", "-1 - -2.5", "_-_(-1, -2.5)"),
    Case("two signs are none", "--1 == !!a", "_==_(1, a)"),
    Case("three signs are one", "---1", "-_(1)"),
    Case("sign of a name", "-a.b", "-_(a.b)"),
    Case("sign of a number before a method", "-1.f()", "-1->f()"),
    Case("not with a negative number", "!-1", "!_(-1)"),
    Case("members", 'a.b["c"].d(e)[0]', "_[_](_[_](a.b, 'c')->d(e), 0)"),
    Case("optional members", "a.?b[?c]", "_[?_](_?._(a, 'b'), c)"),
    Case("fields with other letters", "a.`b-c/d e`", "a.b-c/d e"),
    Case("reserved words are fine as fields", "a.for.while", "a.for.while"),
    Case("root scope", ".a.b", ".a.b"),
    Case("lists may end in a comma", "[1, ?b,]", "[1, ?b]"),
    Case("a comma alone is an empty list", "[,]", "[]"),
    Case("maps", '{"a": 1, ?b: c,}', "{'a': 1, ?b: c}"),
    Case("a conditional as a key", "{a ? b : c : d}", "{_?_:_(a, b, c): d}"),
    Case("messages", "a.B{c: 1, ?`d-e`: 2}", "a.B{c: 1, ?d-e: 2}"),
    Case("empty message in the root scope", ".B{}", ".B{}"),
    Case("functions with a namespace have no target", "lists.range(3)", "lists.range(3)"),
    Case("namespaces are no values", "strings.quote(a).size()", "strings.quote(a)->size()"),
    Case("other targets stay", "a.range(3)", "a->range(3)"),
    Case("comments and blanks", "a // b\n  && // c\n\tc", "_&&_(a, c)"),
    Case("numbers", "0x1F + 1u + 0xFFu + .5e1 + 1e-2", "_+_(_+_(_+_(_+_(31, 1), 255), 5.0), 0.01)"),
    Case("least int", "-9223372036854775808", "-9223372036854775808"),
    Case("greatest uint", "18446744073709551615u", "18446744073709551615"),
    Case("escapes", r'"\a\"\101\x41\u00e9\U0001F600\?\`"', repr('\a"AA\u00e9\U0001f600?`')),
    Case("single quotes", "'a\"b'", repr('a"b')),
    Case("raw strings keep backslashes", r"r'\d+'", repr(r"\d+")),
    Case("three quotes hold lines", '"""a\n"b" """', repr('a\n"b" ')),
    Case("line ends are made equal", '"""a\r\nb\rc"""', repr("a\nb\nc")),
    Case("bytes", r"""b'\xff\101é\u00e9' + br"\x" """, r"""_+_(b'\xffA\xc3\xa9\xc3\xa9', b'\\x')"""),
    Case("a lone surrogate is the replacement character", r'"\ud800"', repr("\ufffd")),
    Case("has", "has(a.b.c)", "a.b.c?"),
    Case(
        "all",
        "a.all(x, x > 1)",
        "fold<x; @result>(a; True; @not_strictly_false(@result); _&&_(@result, _>_(x, 1)); @result)",
    ),
    Case(
        "exists",
        "a.exists(x, b)",
        "fold<x; @result>(a; False; @not_strictly_false(!_(@result)); _||_(@result, b); @result)",
    ),
    Case(
        "exists_one",
        "a.exists_one(x, b)",
        "fold<x; @result>(a; 0; True; _?_:_(b, _+_(@result, 1), @result); _==_(@result, 1))",
    ),
    Case("map", "a.map(x, b)", "fold<x; @result>(a; []; True; _+_(@result, [b]); @result)"),
    Case(
        "map with a filter",
        "a.map(x, b, c)",
        "fold<x; @result>(a; []; True; _?_:_(b, _+_(@result, [c]), @result); @result)",
    ),
    Case(
        "filter",
        "a.filter(x, b)",
        "fold<x; @result>(a; []; True; _?_:_(b, _+_(@result, [x]), @result); @result)",
    ),
    Case(
        "two variables",
        "a.existsOne(k, v, b)",
        "fold<k, v; @result>(a; 0; True; _?_:_(b, _+_(@result, 1), @result); _==_(@result, 1))",
    ),
    Case(
        "transformList",
        "a.transformList(k, v, b, c)",
        "fold<k, v; @result>(a; []; True; _?_:_(b, _+_(@result, [c]), @result); @result)",
    ),
    Case(
        "transformMap",
        "a.transformMap(k, v, c)",
        "fold<k, v; @result>(a; {}; True; cel.@mapInsert(@result, k, c); @result)",
    ),
    Case(
        "transformMapEntry",
        "a.transformMapEntry(k, v, b, c)",
        "fold<k, v; @result>(a; {}; True; _?_:_(b, cel.@mapInsert(@result, c), @result); @result)",
    ),
    Case("cel.bind", "cel.bind(x, a, b)", "fold<#unused; x>([]; a; False; x; b)"),
    Case("bind of something else is a method", "a.bind(x, b, c)", "a->bind(x, b, c)"),
    Case(
        "optMap",
        "a.optMap(x, b)",
        "_?_:_(a->hasValue(), optional.of(fold<#unused; x>([]; a->value(); False; x; b)), optional.none())",
    ),
    Case(
        "optFlatMap",
        "a.optFlatMap(x, b)",
        "_?_:_(a->hasValue(), fold<#unused; x>([]; a->value(); False; x; b), optional.none())",
    ),
    Case(
        "sortBy",
        "a.sortBy(x, b)",
        "fold<#unused; @__sortBy_input__>([]; a; False; @__sortBy_input__; @__sortBy_input__->@sortByAssociatedKeys("
        "fold<x; @result>(@__sortBy_input__; []; True; _+_(@result, [b]); @result)))",
    ),
    Case("a macro's name with other arguments is a method", "a.map(x)", "a->map(x)"),
]


@pytest.mark.parametrize("case", READ, ids=lambda case: case.id)
def test_parses(case: Case) -> None:
    assert shape(parse(case.text).root) == case.want


# The text, and where the fault is.
REFUSED = [
    ("", 0),
    ("a b", 2),
    ("a.", 2),
    ("a..b", 2),
    ("a.in", 2),
    ("a.true", 2),
    ("a.5", 1),
    ("1.2.3", 3),
    ("(a", 2),
    ("a)", 1),
    ("[", 1),
    ("{", 1),
    ("f(", 2),
    ("A{", 2),
    ("f(,)", 2),
    ("[1,", 3),
    ("[1, 2", 5),
    ("[1 2]", 3),
    ("[,,]", 1),
    ("f(1,)", 4),
    ("{1}", 2),
    ("{1: 2 3}", 6),
    ("A{1: 2}", 2),
    ("A{b 2}", 4),
    ("a[]", 2),
    ("a ? b", 5),
    ("a ? b ? c : d : e", 6),
    ("a && ", 5),
    ("&& a", 0),
    ("a & b", 2),
    ("a = b", 2),
    ("a !== b", 4),
    ("-!a", 1),
    ("!-a", 1),
    ("for", 0),
    ("if(a)", 0),
    ("a.b(c, for)", 7),
    ("`a`", 0),
    ("a.`b`()", 5),
    ("a.?b()", 4),
    ("'a", 0),
    ("'a\nb'", 0),
    (r'"\q"', 0),
    (r'"\400"', 0),
    (r'"\U00110000"', 0),
    ("rb'a'", 2),
    ("a # b", 2),
    ("a @ b", 2),
    ("9223372036854775808", 0),
    ("--9223372036854775808", 2),
    ("18446744073709551616u", 0),
    ("0x10000000000000000u", 0),
    ("1" * 5000, 0),
    ("1e999", 0),
    ("has(a)", 4),
    ("has(a[0])", 5),
    ("has(a.?b)", 5),
    ("a.all(b.c, d)", 7),
    ("a.all(1, d)", 6),
    ("a.all(x, x, d)", 9),
    ("a.map(__result__, 1)", 6),
    ("cel.bind(1, 2, 3)", 9),
    ("a.optMap(b.c, 1)", 10),
    ("'a'.sortBy(x, x)", 0),
]


@pytest.mark.parametrize(("text", "offset"), REFUSED, ids=[text[:30] for text, _ in REFUSED])
def test_rejects_with_a_position(text: str, offset: int) -> None:
    with pytest.raises(CelSyntaxError) as refusal:
        parse(text)
    assert refusal.value.problems[0].offset == offset


def test_an_error_shows_the_line_and_the_column() -> None:
    with pytest.raises(CelSyntaxError) as refusal:
        parse("a &&\n\tb +* c")
    assert str(refusal.value).splitlines()[1:] == [" |  b +* c", " | ....^"]
    assert str(refusal.value).startswith("ERROR: <input>:2:5: ")


def test_long_lines_are_cut_around_the_error() -> None:
    with pytest.raises(CelSyntaxError) as refusal:
        parse("a + " * 20_000 + "& b")
    _, line, mark = str(refusal.value).splitlines()
    assert len(line) < 200
    assert line[mark.index("^")] == "&"


@dataclass(frozen=True)
class DepthCase:
    """What may be repeated so often, and not once more."""

    id: str
    template: str
    count_max: int
    innermost: str = "a"


DEPTHS = [
    DepthCase("parentheses", "({})", 249),
    DepthCase("lists", "[{}]", 249),
    DepthCase("arguments", "f({})", 249),
    DepthCase("conditionals", "a ? b : {}", 249),
    DepthCase("relations to the right nest twice", "1 == ({})", 124),
    DepthCase("sums to the right nest twice", "1 + ({})", 124),
    DepthCase("members", "{}.a", 250),
    DepthCase("methods", "{}.f()", 250),
    DepthCase("sums to the left", "{} + 1", 250),
    DepthCase("mixed steps on one path", "({}.a[0] + 1)", 83),
]


@pytest.mark.parametrize("case", DEPTHS, ids=lambda case: case.id)
def test_the_depth_limit_is_that_of_kubernetes(case: DepthCase) -> None:
    prefix, suffix = case.template.split("{}")
    parse(prefix * case.count_max + case.innermost + suffix * case.count_max)
    with pytest.raises(CelSyntaxError, match="levels deep"):
        parse(prefix * (case.count_max + 1) + case.innermost + suffix * (case.count_max + 1))


@pytest.mark.parametrize(
    "text", ["!" * 5000 + "true", "-" * 5000 + "1", " || ".join(["a"] * 5000), "[1" + ", 1" * 5000 + "]"]
)
def test_length_alone_does_not_count_as_depth(text: str) -> None:
    parse(text)


def test_the_length_limit_is_in_code_points() -> None:
    parse("'" + "é" * 99_998 + "'")
    with pytest.raises(CelSyntaxError, match="100001 code points"):
        parse("'" + "é" * 99_999 + "'")


def test_macro_calls_are_kept_as_written() -> None:
    parsed = parse("a.exists(x, has(x.b))")
    assert [shape(call) for call in parsed.macros.values()] == ["has(x.b)", "a->exists(x, x.b?)"]
    assert parsed.root.id in parsed.macros


@pytest.mark.slow
@pytest.mark.fuzz
@given(scrambled_texts())
def test_any_text_parses_or_raises_a_source_error(text: str) -> None:
    with contextlib.suppress(CelError):
        parse(text)
