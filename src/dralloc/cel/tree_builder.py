"""Builds nodes during parsing: assigns IDs, expands macros, and measures path lengths.

Separate from the parser, so that parsing and tree construction can be read independently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, NoReturn

from dralloc.cel import declarations_kubernetes, declarations_standard, lexer, syntax
from dralloc.cel.errors import CelSyntaxError, Problem
from dralloc.cel.lexer import Token
from dralloc.cel.macros import MacroCall, MacroError, expand_macro

LITERALS: Final = {
    lexer.INT: syntax.LiteralKind.INT,
    lexer.UINT: syntax.LiteralKind.UINT,
    lexer.DOUBLE: syntax.LiteralKind.DOUBLE,
    lexer.STRING: syntax.LiteralKind.STRING,
    lexer.BYTES: syntax.LiteralKind.BYTES,
    "true": syntax.LiteralKind.BOOL,
    "false": syntax.LiteralKind.BOOL,
    "null": syntax.LiteralKind.NULL,
}

# Functions with a namespace, such as `lists.range`: the part before the last dot is not a value.
_NAMESPACED: Final = frozenset(
    name
    for table in (*declarations_standard.TABLES, *declarations_kubernetes.TABLES)
    for name in table
    if name[0].isalpha() and "." in name
)
_NAMESPACES: Final = frozenset(name.rpartition(".")[0] for name in _NAMESPACED)


class PendingOperator(NamedTuple):
    """An operator that waits for its right operand."""

    precedence: int
    function: str
    offset: int


class TreeBuilder:
    """Makes the nodes of one tree. `macros` maps the nodes that macros made to the calls as they were written."""

    def __init__(self, text: str, *, counts_heights: bool) -> None:
        self.text = text
        self.macros: dict[int, syntax.Call] = {}
        self._ids = 0
        self._heights: dict[int, int] | None = {} if counts_heights else None

    def height(self, node: syntax.Expression) -> int:
        """Returns how many members, operators and conditionals are on the longest path below the node."""
        return self._heights.get(node.id, 0) if self._heights else 0

    def literal(self, token: Token, sign: str, offset: int) -> syntax.Literal:
        kind = LITERALS[token.kind]
        value = lexer.token_value(token, sign)
        if value is None and kind is not syntax.LiteralKind.NULL:
            self.fail(f"syntax error: {sign}{token.text} is not a valid {kind.value} literal", token.offset)
        return syntax.Literal(id=self._id(), offset=offset, kind=kind, value=value)

    def identifier(self, name: str, offset: int) -> syntax.Identifier:
        return syntax.Identifier(id=self._id(), offset=offset, name=name)

    def select(self, operand: syntax.Expression, field: str, offset: int) -> syntax.Select:
        node = syntax.Select(id=self._id(), offset=offset, operand=operand, field=field)
        self._note(node, (operand,), step=1)
        return node

    def optional_select(self, operand: syntax.Expression, field: Token, name: str, offset: int) -> syntax.Call:
        key = syntax.Literal(id=self._id(), offset=field.offset, kind=syntax.LiteralKind.STRING, value=name)
        return self.step("_?._", (operand, key), offset)

    def step(self, function: str, operands: tuple[syntax.Expression, ...], offset: int) -> syntax.Call:
        """An operator that makes the path longer, as most do."""
        node = syntax.Call(id=self._id(), offset=offset, function=function, arguments=operands)
        self._note(node, operands, step=1)
        return node

    def prefixed(self, operator: PendingOperator, operand: syntax.Expression) -> syntax.Call:
        node = syntax.Call(id=self._id(), offset=operator.offset, function=operator.function, arguments=(operand,))
        self._note(node, (operand,))
        return node

    def chain(self, operators: Sequence[PendingOperator], operands: Sequence[syntax.Expression]) -> syntax.Expression:
        """A balanced tree of equal logical operators."""
        node = self._balanced(operators, operands)
        self._note(node, operands)
        return node

    def list_literal(
        self, elements: Sequence[syntax.Expression], optional: set[int], offset: int
    ) -> syntax.ListLiteral:
        node = syntax.ListLiteral(id=self._id(), offset=offset, elements=tuple(elements), optional=frozenset(optional))
        self._note(node, elements)
        return node

    def map_entry(
        self, key: syntax.Expression, value: syntax.Expression, offset: int, *, optional: bool
    ) -> syntax.MapEntry:
        return syntax.MapEntry(id=self._id(), offset=offset, key=key, value=value, optional=optional)

    def map_literal(self, entries: Sequence[syntax.MapEntry], offset: int) -> syntax.MapLiteral:
        node = syntax.MapLiteral(id=self._id(), offset=offset, entries=tuple(entries))
        self._note(node, [part for entry in entries for part in (entry.key, entry.value)])
        return node

    def field_entry(self, field: str, value: syntax.Expression, offset: int, *, optional: bool) -> syntax.FieldEntry:
        return syntax.FieldEntry(id=self._id(), offset=offset, field=field, value=value, optional=optional)

    def message(self, type_name: str, entries: Sequence[syntax.FieldEntry], offset: int) -> syntax.MessageLiteral:
        node = syntax.MessageLiteral(id=self._id(), offset=offset, type_name=type_name, entries=tuple(entries))
        self._note(node, [entry.value for entry in entries])
        return node

    def call(
        self, function: str, target: syntax.Expression | None, arguments: tuple[syntax.Expression, ...], offset: int
    ) -> syntax.Expression:
        """Returns a call, or its expansion if it is a macro."""
        call = syntax.Call(id=self._id(), offset=offset, function=function, target=target, arguments=arguments)
        try:
            expanded = expand_macro(MacroCall(call, self._id))
        except MacroError as misuse:
            self.fail(misuse.message, misuse.offset)
        node: syntax.Expression = _without_namespace(call)
        if expanded is not None:
            node = expanded
            self.macros[expanded.id] = call
        if target is None:
            self._note(node, arguments)
        else:
            self._note(node, (target, *arguments), step=1)
        return node

    def fail(self, message: str, offset: int) -> NoReturn:
        raise CelSyntaxError(self.text, [Problem(message, offset)])

    def _balanced(
        self, operators: Sequence[PendingOperator], operands: Sequence[syntax.Expression]
    ) -> syntax.Expression:
        # The recursion depth is the logarithm of the number of operators.
        if not operators:
            return operands[0]
        middle = len(operators) // 2
        left = self._balanced(operators[:middle], operands[: middle + 1])
        right = self._balanced(operators[middle + 1 :], operands[middle + 1 :])
        operator = operators[middle]
        return syntax.Call(id=self._id(), offset=operator.offset, function=operator.function, arguments=(left, right))

    def _note(self, node: syntax.Expression, parts: Sequence[syntax.Expression], step: int = 0) -> None:
        heights = self._heights
        if heights is not None:
            heights[node.id] = step + max((heights.get(part.id, 0) for part in parts), default=0)

    def _id(self) -> int:
        self._ids += 1
        return self._ids


def _without_namespace(call: syntax.Call) -> syntax.Call:
    """Returns the call of `lists.range` instead of a method `range` of `lists`; other calls are unchanged."""
    target = call.target
    if not isinstance(target, syntax.Identifier):
        return call
    namespace = target.name.removeprefix(".")
    if namespace not in _NAMESPACES or (name := f"{namespace}.{call.function}") not in _NAMESPACED:
        return call
    return syntax.Call(id=call.id, offset=call.offset, function=name, arguments=call.arguments)
