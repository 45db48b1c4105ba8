"""The printer: its output parses to the same tree and is readable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralloc.cel.parser import parse
from dralloc.cel.printer import print_node
from dralloc.cel.syntax import Expression, ParsedExpression
from tests.support.expressions import expression_texts, expression_trees, typed_texts


@pytest.mark.slow
@pytest.mark.fuzz
@given(expression_trees())
def test_printing_round_trips(tree: Expression) -> None:
    printed = print_node(tree, {})
    assert parse(printed).root == tree


@pytest.mark.slow
@pytest.mark.fuzz
@given(st.one_of(expression_texts(), typed_texts()))
def test_macros_are_printed_as_written(text: str) -> None:
    parsed = parse(text)
    printed = _printed(parsed)
    again = parse(printed)
    assert again.root == parsed.root
    assert _printed(again) == printed


def _printed(parsed: ParsedExpression) -> str:
    return print_node(parsed.root, parsed.macros)


# Written, and printed when that is not the same.
PRINTED = [
    ("a&&b&&c", "a && b && c"),
    ("(a && b) && c", "a && b && c"),
    ("a && (b && c)", "a && (b && c)"),
    ("(a || b) && c", "(a || b) && c"),
    ("((a + b)) * c - (d - e)", "(a + b) * c - (d - e)"),
    ("a ? b : (c ? d : e)", "a ? b : c ? d : e"),
    ("(a ? b : c) ? d : e", "(a ? b : c) ? d : e"),
    ("-(5)", "-(5)"),
    ("-(-5).a", "-(-5.a)"),
    ("-5u", "-5u"),
    ("!(!a)", "!(!a)"),
    ("'it\\'s \"\\n\\x07'", '"it\'s \\"\\n\\u0007"'),
    ("b'\\x00a\"'", 'b"\\x00a\\x22"'),
    ("a.`in`.`b-c`", "a.`in`.`b-c`"),
    ("[ 1,2 , ?a ]", "[1, 2, ?a]"),
    ("{1 : 2, ?(a ? b : c) : d}", "{1: 2, ?(a ? b : c): d}"),
    ("A . B { c : 1 }", "A.B{c: 1}"),
    ("lists . range( 3 )", "lists.range(3)"),
    ("has( a.b ) && x.all( y,y.exists(z , z>1) )", "has(a.b) && x.all(y, y.exists(z, z > 1))"),
    ("cel.bind(x, a.?b.orValue( 1 ), x in [x])", "cel.bind(x, a.?b.orValue(1), x in [x])"),
    ("device.driver == 'x' // why", 'device.driver == "x"'),
]


@pytest.mark.parametrize(("written", "printed"), PRINTED, ids=[written for written, _ in PRINTED])
def test_prints(written: str, printed: str) -> None:
    assert _printed(parse(written)) == printed


@pytest.mark.parametrize("text", ["[" * 249 + "]" * 249, "a" + ".b" * 250, "(1 + " * 124 + "1" + ")" * 124])
def test_prints_the_deepest_expressions(text: str) -> None:
    printed = _printed(parse(text))
    assert _printed(parse(printed)) == printed
