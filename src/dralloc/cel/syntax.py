"""The syntax tree of an expression.

Operators are calls with CEL's names (`_+_`, `_&&_`, `_?_:_`, `_[_]`, `@in`, …), and macros are already expanded to
comprehensions, because costs and results are defined on that form. Positions and IDs of nodes are not compared: two
trees are equal if they have the same meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final


class LiteralKind(Enum):
    NULL = "null"
    BOOL = "bool"
    INT = "int"
    UINT = "uint"
    DOUBLE = "double"
    STRING = "string"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntaxNode:
    """A part of an expression. `id` is unique in its tree; `offset` counts code points from the start."""

    id: int = field(compare=False)
    offset: int = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal(SyntaxNode):
    kind: LiteralKind
    value: bool | int | float | str | bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Identifier(SyntaxNode):
    """A name; a leading dot (`.name`) is kept and means the root scope."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Select(SyntaxNode):
    """`operand.field`, or with `tests_presence` the macro `has(operand.field)`."""

    operand: Expression
    field: str
    tests_presence: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(SyntaxNode):
    """A function or operator; `target` is set for `target.function(arguments)`.

    Functions with a namespace, as `lists.range`, have no target: the whole name is in `function`.
    """

    function: str
    target: Expression | None = None
    arguments: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListLiteral(SyntaxNode):
    """`optional` holds the positions of the elements written `?element`."""

    elements: tuple[Expression, ...]
    optional: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class MapEntry(SyntaxNode):
    key: Expression
    value: Expression
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MapLiteral(SyntaxNode):
    entries: tuple[MapEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldEntry(SyntaxNode):
    field: str
    value: Expression
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLiteral(SyntaxNode):
    """`Type{field: value}`."""

    type_name: str
    entries: tuple[FieldEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comprehension(SyntaxNode):
    """A fold: for each element of `range`, while `condition`, `accumulator = step`; then `result`."""

    range: Expression
    variable: str
    second_variable: str | None
    accumulator: str
    initial: Expression
    condition: Expression
    step: Expression
    result: Expression


Expression = Literal | Identifier | Select | Call | ListLiteral | MapLiteral | MessageLiteral | Comprehension


@dataclass(frozen=True, slots=True)
class ParsedExpression:
    """A tree with its text. `macros` maps a node that a macro made to the call as it was written."""

    text: str
    root: Expression
    macros: Mapping[int, Call] = field(compare=False)


def logical_terms(node: Call) -> tuple[Expression, ...]:
    """Returns the terms of a chain of one logical operator; the parser balances long chains into trees."""
    terms: list[Expression] = []
    waiting: list[Expression] = [node]
    while waiting:
        term = waiting.pop()
        if isinstance(term, Call) and term.function == node.function:
            waiting.extend(reversed(term.arguments))
        else:
            terms.append(term)
    return tuple(terms)


# --- Operators ------------------------------------------------------------------------------------------------------
# The operators of the language: how strongly they bind, and the functions that they call.


CONDITIONAL, OR, AND, RELATION, ADDITION, MULTIPLICATION, PREFIX, MEMBER = range(8)
# Of operators with two operands.
PRECEDENCE: Final = {
    "||": OR,
    "&&": AND,
    **dict.fromkeys(("<", "<=", ">=", ">", "==", "!=", "in"), RELATION),
    **dict.fromkeys(("+", "-"), ADDITION),
    **dict.fromkeys(("*", "/", "%"), MULTIPLICATION),
}
OPERATOR_FUNCTIONS: Final = {text: "@in" if text == "in" else f"_{text}_" for text in PRECEDENCE}


# --- Tree walk ------------------------------------------------------------------------------------------------------
# Visits a tree without recursion, so that the depth of an expression does not matter to the interpreter's stack.


def walk(root: Expression, visit: Callable[[Expression], Iterator[Expression] | None]) -> None:
    """Calls `visit` for the root. A visitor that is a generator yields the children to visit before it continues.

    A node with several parents is visited once: macros use their target twice, and nested macros would otherwise double
    the work with each level.
    """
    first = visit(root)
    waiting = [] if first is None else [first]
    seen = {root.id}
    while waiting:
        child = next(waiting[-1], None)
        if child is None:
            waiting.pop()
            continue
        if child.id in seen:
            continue
        seen.add(child.id)
        children = visit(child)
        if children is not None:
            waiting.append(children)
