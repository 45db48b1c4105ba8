"""Errors in constants, found before an expression runs.

Kubernetes checks literals twice. With the types it checks that lists and maps have one element type, that durations,
timestamps and regular expressions parse, and that `format` gets the arguments of its clauses. When it makes a program
it evaluates conversions of constants, and refuses the expression if one fails, even in a part that never runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from dralloc.cel import syntax, types
from dralloc.cel.errors import CelEvaluationError, CelProgramError, CelTypeError, Problem
from dralloc.cel.library.function_table import FUNCTIONS
from dralloc.cel.library.regex import PatternBudget
from dralloc.cel.syntax import walk
from dralloc.cel.type_checker import TypedExpression
from dralloc.cel.types import Type, TypeKind
from dralloc.cel.values import TypeValue, Uint, Value


def check_literals(typed: TypedExpression) -> None:
    """Raises `CelTypeError` or `CelProgramError` if a constant part of the expression is invalid."""
    inspector = _Inspector(typed)
    walk(typed.root, inspector.visit)
    if inspector.type_problems:
        raise CelTypeError(typed.parsed.text, inspector.type_problems)
    if inspector.program_problems:
        raise CelProgramError(typed.parsed.text, inspector.program_problems[:1])


CONVERSIONS: Final = frozenset(
    {"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"}
)
_READ_AT_CHECK: Final = frozenset({"duration", "timestamp"})
PATTERN_FUNCTIONS: Final = frozenset({"matches", "find", "findAll"})


def literal_value(node: syntax.Literal) -> Value:
    return Uint(node.value) if node.kind is syntax.LiteralKind.UINT else node.value  # type: ignore[arg-type]


class _Inspector:
    def __init__(self, typed: TypedExpression) -> None:
        self.typed = typed
        self.constants: dict[int, Value] = {}
        self.type_problems: list[Problem] = []
        self.program_problems: list[Problem] = []
        self.formats_open = 0
        self.patterns = PatternBudget()

    def visit(self, node: syntax.Expression) -> Iterator[syntax.Expression] | None:
        if isinstance(node, syntax.Literal):
            self.constants[node.id] = literal_value(node)
            return None
        if node.id in self.typed.denoted_types:
            self.constants[node.id] = TypeValue(self.typed.denoted_types[node.id])
            return None
        if isinstance(node, syntax.Call):
            return self._visit_call(node)
        if isinstance(node, syntax.Select):
            return iter((node.operand,))
        if isinstance(node, syntax.ListLiteral):
            return self._visit_list(node)
        if isinstance(node, syntax.MapLiteral):
            return self._visit_map(node)
        if isinstance(node, syntax.MessageLiteral):
            return (entry.value for entry in node.entries)
        if isinstance(node, syntax.Comprehension):
            return iter((node.range, node.initial, node.condition, node.step, node.result))
        return None

    def _visit_list(self, node: syntax.ListLiteral) -> Iterator[syntax.Expression]:
        yield from node.elements
        element_types = []
        for position, element in enumerate(node.elements):
            known = self.typed.types[element.id]
            element_types.append(types.without_optional(known) if position in node.optional else known)
        self._expect_one_type(node.elements, element_types)
        if not node.optional and all(element.id in self.constants for element in node.elements):
            self.constants[node.id] = [self.constants[element.id] for element in node.elements]

    def _visit_map(self, node: syntax.MapLiteral) -> Iterator[syntax.Expression]:
        keys = [entry.key for entry in node.entries]
        values = [entry.value for entry in node.entries]
        yield from keys
        yield from values
        value_types = []
        for entry in node.entries:
            known = self.typed.types[entry.value.id]
            value_types.append(types.without_optional(known) if entry.optional else known)
        self._expect_one_type(keys, [self.typed.types[key.id] for key in keys])
        self._expect_one_type(values, value_types)
        if not any(entry.optional for entry in node.entries) and all(
            part.id in self.constants for part in (*keys, *values)
        ):
            # Conversions only need to know that it is a map, not its contents.
            self.constants[node.id] = {}

    def _expect_one_type(self, elements: Sequence[syntax.Expression], element_types: Sequence[Type]) -> None:
        if self.formats_open:
            return
        for element, element_type in zip(elements, element_types, strict=True):
            if element_type != element_types[0]:
                self._report(f"all must be of type {element_types[0]}, this is {element_type}", element)
                return

    def _visit_call(self, node: syntax.Call) -> Iterator[syntax.Expression]:
        is_format = node.function == "format"
        self.formats_open += is_format
        yield from node.arguments
        if node.target is not None:
            yield node.target
        self.formats_open -= is_format
        if node.function in CONVERSIONS:
            self._convert(node)
        elif node.function in PATTERN_FUNCTIONS:
            self._check_pattern(node)
        elif is_format:
            self._check_format(node)

    def _convert(self, node: syntax.Call) -> None:
        if node.target is not None or len(node.arguments) != 1 or node.arguments[0].id not in self.constants:
            return
        argument = node.arguments[0]
        constant = self.constants[argument.id]
        try:
            overload = FUNCTIONS[node.function].overload_for(constant)
            self.constants[node.id] = overload.implementation(constant)
        except CelEvaluationError as error:
            if node.function in _READ_AT_CHECK and isinstance(argument, syntax.Literal):
                self._report(f"not a valid {node.function}: {error}", argument)
            else:
                self.program_problems.append(Problem(str(error), node.offset))

    def _check_pattern(self, node: syntax.Call) -> None:
        operands = node.arguments if node.target is None else (node.target, *node.arguments)
        if node.function == "matches" and isinstance(node.arguments[0], syntax.Literal):
            # For a function call this argument is the text, not the pattern; Kubernetes parses it nevertheless.
            self._check_compiles(node.arguments[0], self.type_problems)
        self._check_compiles(operands[1], self.program_problems)

    def _check_compiles(self, pattern: syntax.Expression, problems: list[Problem]) -> None:
        text = self.constants.get(pattern.id)
        if isinstance(text, str):
            try:
                self.patterns.check(text)
            except CelEvaluationError as error:
                problems.append(Problem(f"not a valid regular expression: {error}", pattern.offset))

    # Formats.

    def _check_format(self, node: syntax.Call) -> None:
        """Checks that each clause of a constant template has an argument of a supported type."""
        template = node.target
        arguments = node.arguments[0] if node.arguments else None
        if not isinstance(template, syntax.Literal) or not isinstance(arguments, syntax.ListLiteral):
            return
        used = 0
        for clause in _CLAUSE.finditer(str(template.value)):
            if clause[0] == "%%":
                continue
            problem = self._clause_problem(clause, arguments.elements[used] if used < len(arguments.elements) else None)
            if problem is not None:
                self.type_problems.append(
                    problem if problem.offset is not None else Problem(problem.message, node.offset)
                )
                return
            used += 1
        if used < len(arguments.elements):
            self._report(f"format: {len(arguments.elements)} arguments for {used} clauses", node)

    def _clause_problem(self, clause: re.Match[str], argument: syntax.Expression | None) -> Problem | None:
        letter, decimals = clause["letter"], clause["decimals"]
        if letter is None:
            return Problem("format: the template ends inside a clause")
        if argument is None:
            return Problem(f"format: no argument for the clause {clause[0]!r}")
        if letter not in _SHOWN_KINDS or decimals == "":
            return Problem(f"format: there is no clause {clause[0]!r}")
        unfit = self._unfit_for(letter, argument)
        if unfit is None:
            return None
        shown = self.typed.types[unfit.id]
        return Problem(f"format: {clause[0]!r} cannot show a value of type {shown}", unfit.offset)

    def _unfit_for(self, letter: str, argument: syntax.Expression) -> syntax.Expression | None:
        """Returns the first part of the argument that the clause does not support; `%s` looks into lists and maps."""
        waiting = [argument]
        while waiting:
            part = waiting.pop()
            kind = self.typed.types[part.id].kind
            if kind is not TypeKind.DYN and kind not in _SHOWN_KINDS[letter]:
                return part
            if letter == "s" and isinstance(part, syntax.ListLiteral):
                waiting += reversed(part.elements)
            elif letter == "s" and isinstance(part, syntax.MapLiteral):
                waiting += reversed([piece for entry in part.entries for piece in (entry.key, entry.value)])
        return None

    def _report(self, message: str, node: syntax.Expression) -> None:
        self.type_problems.append(Problem(message, node.offset))


_CLAUSE: Final = re.compile(r"%(?:%|(?:\.(?P<decimals>[0-9]*))?(?P<letter>[\s\S])?)", re.ASCII)
_INTEGERS: Final = frozenset({TypeKind.INT, TypeKind.UINT})
_SHOWN_KINDS: Final = {
    "s": frozenset(
        {
            TypeKind.LIST, TypeKind.MAP, TypeKind.INT, TypeKind.UINT, TypeKind.DOUBLE, TypeKind.BOOL, TypeKind.STRING, TypeKind.TIMESTAMP,
            TypeKind.BYTES, TypeKind.DURATION, TypeKind.TYPE, TypeKind.NULL,
        }
    ),
    "d": _INTEGERS,
    "f": frozenset({TypeKind.DOUBLE, TypeKind.STRING}),
    "e": frozenset({TypeKind.DOUBLE, TypeKind.STRING}),
    "b": _INTEGERS | {TypeKind.BOOL},
    "x": _INTEGERS | {TypeKind.STRING, TypeKind.BYTES},
    "X": _INTEGERS | {TypeKind.STRING, TypeKind.BYTES},
    "o": _INTEGERS,
}  # fmt: skip
