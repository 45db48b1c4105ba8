"""Prints a syntax tree; parsing the result gives the same tree.

Macros are printed as written. Parentheses are printed only where needed, or where a chain of equal logical operators is
grouped differently from the parser's default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from dralloc.cel import syntax
from dralloc.cel.syntax import (
    AND,
    CONDITIONAL,
    MEMBER,
    OPERATOR_FUNCTIONS,
    OR,
    PRECEDENCE,
    PREFIX,
)

_SIGNS: Final = {function: sign for sign, function in OPERATOR_FUNCTIONS.items()}
# An expression below the level of its context needs parentheses.
_LEVELS: Final = {
    "_?_:_": CONDITIONAL,
    **{OPERATOR_FUNCTIONS[sign]: precedence for sign, precedence in PRECEDENCE.items()},
    **dict.fromkeys(("!_", "-_"), PREFIX),
}

# Pending output: a text, or an expression and the level of its context.
_Piece = str | tuple[syntax.Expression, int]


def print_node(node: syntax.Expression, macros: Mapping[int, syntax.Call]) -> str:
    """Returns the text of an expression or of a part of one. `macros` maps the nodes that macros made to the written calls."""
    printed: list[str] = []
    waiting: list[_Piece] = [(node, CONDITIONAL)]
    while waiting:
        piece = waiting.pop()
        if isinstance(piece, str):
            printed.append(piece)
        else:
            part, level = piece
            waiting += reversed(_pieces(macros.get(part.id, part), level, macros))
    return "".join(printed)


def _pieces(node: syntax.Expression, level: int, macros: Mapping[int, syntax.Call]) -> list[_Piece]:
    match node:
        case syntax.Literal():
            return [_literal(node)]
        case syntax.Identifier():
            return [node.name]
        case syntax.Select(tests_presence=True):
            return ["has(", (node.operand, MEMBER), f".{_field(node.field)})"]
        case syntax.Select():
            return [(node.operand, MEMBER), f".{_field(node.field)}"]
        case syntax.ListLiteral():
            return ["[", *_separated([_element(node, position) for position in range(len(node.elements))]), "]"]
        case syntax.MapLiteral():
            entries: list[list[_Piece]] = [
                ["?" if entry.optional else "", (entry.key, OR), ": ", (entry.value, CONDITIONAL)]
                for entry in node.entries
            ]
            return ["{", *_separated(entries), "}"]
        case syntax.MessageLiteral():
            fields: list[list[_Piece]] = [
                [f"{'?' if entry.optional else ''}{_field(entry.field)}: ", (entry.value, CONDITIONAL)]
                for entry in node.entries
            ]
            return [f"{node.type_name}{{", *_separated(fields), "}"]
        case syntax.Comprehension():
            raise ValueError("a comprehension that no macro made has no text")
        case syntax.Call():
            own = _LEVELS.get(node.function, MEMBER) if node.target is None else MEMBER
            printed = _call(node, macros)
            return ["(", *printed, ")"] if own < level else printed


def _call(node: syntax.Call, macros: Mapping[int, syntax.Call]) -> list[_Piece]:
    function, arguments = node.function, node.arguments
    if node.target is not None:
        return [(node.target, MEMBER), f".{function}(", *_arguments(arguments), ")"]
    level = _LEVELS.get(function)
    if level in (OR, AND):
        return _logical(node, level, macros)
    if level == CONDITIONAL:
        condition, yes, no = arguments
        return [(condition, OR), " ? ", (yes, OR), " : ", (no, CONDITIONAL)]
    if level == PREFIX:
        return _prefixed(function[0], arguments[0], macros)
    if level is not None:
        left, right = arguments
        return [(left, level), f" {_SIGNS[function]} ", (right, level + 1)]
    if function in ("_[_]", "_[?_]"):
        container, key = arguments
        return [(container, MEMBER), "[?" if function == "_[?_]" else "[", (key, CONDITIONAL), "]"]
    if function == "_?._":
        container, key = arguments
        assert isinstance(key, syntax.Literal), "the parser puts the field's name here"
        return [(container, MEMBER), f".?{_field(str(key.value))}"]
    return [f"{function}(", *_arguments(arguments), ")"]


def _prefixed(sign: str, operand: syntax.Expression, macros: Mapping[int, syntax.Call]) -> list[_Piece]:
    # A minus directly before a number would become a part of it.
    if sign == "-" and _starts_with_number(operand, macros):
        return ["-(", (operand, CONDITIONAL), ")"]
    return [sign, (operand, MEMBER)]


def _starts_with_number(node: syntax.Expression, macros: Mapping[int, syntax.Call]) -> bool:
    while True:
        node = macros.get(node.id, node)
        if isinstance(node, syntax.Literal):
            return node.kind in (syntax.LiteralKind.INT, syntax.LiteralKind.DOUBLE)
        if isinstance(node, syntax.Select) and not node.tests_presence:
            node = node.operand
        elif isinstance(node, syntax.Call) and node.target is not None:
            node = node.target
        elif isinstance(node, syntax.Call) and node.function in ("_[_]", "_[?_]", "_?._"):
            node = node.arguments[0]
        else:
            return False


def _logical(node: syntax.Call, level: int, macros: Mapping[int, syntax.Call]) -> list[_Piece]:
    """Prints a chain without parentheses if the parser would build exactly this tree from it."""
    sign = f" {_SIGNS[node.function]} "
    terms = _balanced_terms(node, macros)
    if terms is None:
        left, right = node.arguments
        return [(left, level + 1), sign, (right, level + 1)]
    pieces: list[_Piece] = [(terms[0], level + 1)]
    for term in terms[1:]:
        pieces += (sign, (term, level + 1))
    return pieces


def _balanced_terms(node: syntax.Call, macros: Mapping[int, syntax.Call]) -> list[syntax.Expression] | None:
    """Returns the terms of a tree of equal operators, if it is the tree that the parser makes of them."""
    terms: list[syntax.Expression] = []
    waiting: list[syntax.Expression] = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, syntax.Call) and part.function == node.function and part.id not in macros:
            waiting += reversed(part.arguments)
        else:
            terms.append(part)
    return terms if _is_balanced(node, node.function, len(terms) - 1) else None


def _is_balanced(part: syntax.Expression, function: str, operators: int) -> bool:
    is_operator = isinstance(part, syntax.Call) and part.function == function
    if operators == 0 or not is_operator:
        return operators == 0 and not is_operator
    assert isinstance(part, syntax.Call), "just looked"
    middle = operators // 2
    left, right = part.arguments
    return _is_balanced(left, function, middle) and _is_balanced(right, function, operators - middle - 1)


def _element(node: syntax.ListLiteral, position: int) -> list[_Piece]:
    element: _Piece = (node.elements[position], CONDITIONAL)
    return ["?", element] if position in node.optional else [element]


def _arguments(arguments: tuple[syntax.Expression, ...]) -> list[_Piece]:
    return _separated([[(argument, CONDITIONAL)] for argument in arguments])


def _separated(groups: list[list[_Piece]]) -> list[_Piece]:
    pieces: list[_Piece] = []
    for position, group in enumerate(groups):
        pieces += ([", "] if position else []) + group
    return pieces


_PLAIN_FIELD: Final = re.compile(r"(?!(?:in|true|false|null)\Z)[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def _field(name: str) -> str:
    return name if _PLAIN_FIELD.fullmatch(name) else f"`{name}`"


def _literal(node: syntax.Literal) -> str:
    value = node.value
    match node.kind:
        case syntax.LiteralKind.NULL:
            return "null"
        case syntax.LiteralKind.BOOL:
            return "true" if value else "false"
        case syntax.LiteralKind.UINT:
            return f"{value!r}u"
        case syntax.LiteralKind.STRING:
            return quoted(str(value))
        case syntax.LiteralKind.BYTES:
            assert isinstance(value, bytes), "a bytes literal holds bytes"
            return f'b"{"".join(map(_shown_byte, value))}"'
        case _:
            return repr(value)


_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED: Final = re.compile(r'[\x00-\x1f\\"\x7f]')


def quoted(text: str) -> str:
    """Returns the text as a string literal."""
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    return _ESCAPES.get(character) or f"\\u{ord(character):04x}"


def _shown_byte(byte: int) -> str:
    character = chr(byte)
    return character if 0x20 <= byte < 0x7F and character not in '\\"' else f"\\x{byte:02x}"
