"""Turns a checked tree into executable code.

The planner walks the tree once, from the leaves up, and determines what both forms of execution need: which variable a
name means, what is constant, which steps form one access into a value, which macro made a fold. A `CodeBuilder` makes
the executable form: `closures`, or Python source (`codegen`).

What counts as constant is part of the language: constants cost nothing, and a constant that fails makes the whole
expression unusable before it runs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from dralloc.cel import syntax
from dralloc.cel.errors import CelEvaluationError, CelProgramError, Problem
from dralloc.cel.library.function_table import FUNCTIONS
from dralloc.cel.library.functions import Function
from dralloc.cel.library.regex import compile_pattern
from dralloc.cel.literals import CONVERSIONS, PATTERN_FUNCTIONS, literal_value
from dralloc.cel.syntax import Call, Expression, ListLiteral, MapLiteral, MessageLiteral, walk
from dralloc.cel.type_checker import TypedExpression
from dralloc.cel.values import MISSING, TypeValue, Uint, Value, index_key, map_key

# --- Code builder ---------------------------------------------------------------------------------------------------
# The interface between the planner and the builders of executable code.


Code = TypeVar("Code")


@dataclass(frozen=True, slots=True)
class Qualifier(Generic[Code]):
    """One step into a value: a known key, or code that computes it."""

    node: Expression
    key: Value
    code: Code | None
    is_optional: bool


@dataclass(frozen=True, slots=True)
class Loop(Generic[Code]):
    """The range of a macro, and the variables that hold an element: the second is for index or key and value."""

    range: Code
    slot: int
    second_slot: int | None


class CodeBuilder(Protocol[Code]):
    """Makes code for each kind of step. `node` is the step's position in the tree."""

    def constant(self, node: Expression, value: Value) -> Code: ...

    def variable(self, node: Expression, slot: int, *, is_charged: bool) -> Code:
        """The value of a variable; Kubernetes does not charge for it in a few places."""

    def access(self, node: Expression, base: Code, qualifiers: Sequence[Qualifier[Code]], *, is_relative: bool) -> Code:
        """A value inside another. It is relative if the other is not a variable: then it costs one more."""

    def presence(
        self, node: Expression, base: Code, qualifiers: Sequence[Qualifier[Code]], *, is_relative: bool
    ) -> Code:
        """Whether the last step finds a value."""

    def conditional(self, node: Expression, condition: Code, then: Code, otherwise: Code) -> Code: ...

    def logical(self, node: Expression, terms: Sequence[Code], *, is_conjunction: bool) -> Code: ...

    def call(self, node: Call, function: Function, arguments: Sequence[Code]) -> Code: ...

    def membership(self, node: Expression, operand: Code, members: frozenset[Hashable]) -> Code:
        """Whether a value is in a constant list of primitives, given as map keys."""

    def alternative(self, node: Call, optional: Code, otherwise: Code, *, is_unwrapped: bool) -> Code:
        """`or` and `orValue`."""

    def make_list(self, node: ListLiteral, elements: Sequence[Code]) -> Code: ...

    def make_map(self, node: MapLiteral, entries: Sequence[tuple[Code, Code]]) -> Code: ...

    def make_message(self, node: MessageLiteral, values: Sequence[Code]) -> Code: ...

    def bind(self, node: Expression, slot: int, value: Code, body: Code) -> Code: ...

    def quantifier(self, node: Expression, loop: Loop[Code], predicate: Code, *, is_universal: bool) -> Code:
        """`all` and `exists`."""

    def exists_one(self, node: Expression, loop: Loop[Code], predicate: Code) -> Code: ...

    def collect_list(
        self, node: Expression, loop: Loop[Code], condition: Code | None, element: Code, *, is_constant: bool
    ) -> Code:
        """`map`, `filter` and `transformList`."""

    def collect_map(
        self, node: Expression, loop: Loop[Code], condition: Code | None, arguments: Sequence[Code]
    ) -> Code:
        """`transformMap` with key and value as arguments, `transformMapEntry` with entries."""


DEVICE_SLOT: Final = 0

_LOGICAL: Final = frozenset({"_&&_", "_||_"})
_PRIMITIVES: Final = frozenset({bool, int, Uint, float, str, bytes})


class _Piece(Generic[Code]):
    """The result for a node. Accesses are collected step by step and turned into code when complete."""

    __slots__ = ("code", "constant", "is_conditional", "qualifiers", "slot", "tests_presence", "variable")

    def __init__(self, code: Code | None = None, *, constant: Value = MISSING) -> None:
        self.code = code
        self.constant = constant
        # For a variable, or an access that starts from one: its node, and its slot.
        self.variable: syntax.Identifier | None = None
        self.slot = 0
        self.qualifiers: list[Qualifier[Code]] | None = None
        self.tests_presence = False
        self.is_conditional = False


class CodePlanner(Generic[Code]):
    """Plans one expression for one builder."""

    def __init__(self, typed: TypedExpression, builder: CodeBuilder[Code]) -> None:
        self._typed = typed
        self._builder = builder
        self._scopes: list[dict[str, int]] = [{"device": DEVICE_SLOT}]
        self._pieces: dict[int, _Piece[Code]] = {}
        self.slots_count = 1

    def plan(self) -> Code:
        """Returns the code of the whole expression. Raises `CelProgramError`."""
        root = self._typed.root
        walk(root, self._visit)
        return self._code(root)

    def _visit(self, node: syntax.Expression) -> Iterator[syntax.Expression] | None:
        denoted = self._typed.denoted_types.get(node.id)
        if denoted is not None:
            self._set_constant(node, TypeValue(denoted))
            return None
        if isinstance(node, syntax.Literal):
            self._set_constant(node, literal_value(node))
            return None
        if isinstance(node, syntax.Identifier):
            self._set_variable(node, node, self._slot(node.name))
            return None
        if isinstance(node, syntax.Select):
            return self._visit_select(node)
        if isinstance(node, syntax.Call):
            return self._visit_call(node)
        if isinstance(node, syntax.ListLiteral):
            return self._visit_list(node)
        if isinstance(node, syntax.MapLiteral):
            return self._visit_map(node)
        if isinstance(node, syntax.Comprehension):
            return self._visit_comprehension(node)
        return self._visit_message(node)

    # Pieces.

    def _set_constant(self, node: syntax.Expression, value: Value) -> None:
        self._pieces[node.id] = _Piece(self._builder.constant(node, value), constant=value)

    def _set_variable(self, node: syntax.Expression, variable: syntax.Identifier, slot: int) -> None:
        piece = self._pieces[node.id] = _Piece()
        piece.variable, piece.slot = variable, slot

    def _set(self, node: syntax.Expression, code: Code) -> None:
        self._pieces[node.id] = _Piece(code)

    def _constant(self, node: syntax.Expression) -> Value:
        return self._pieces[node.id].constant

    def _code(self, node: syntax.Expression, *, is_charged: bool = True) -> Code:
        """Returns the finished code of a visited node."""
        piece = self._pieces[node.id]
        if piece.variable is not None:
            base = self._builder.variable(piece.variable, piece.slot, is_charged=is_charged)
        else:
            assert piece.code is not None
            base = piece.code
        if piece.qualifiers is None:
            return base
        make = self._builder.presence if piece.tests_presence else self._builder.access
        is_relative = is_charged and piece.variable is None and not piece.is_conditional
        return make(node, base, piece.qualifiers, is_relative=is_relative)

    # Names and accesses.

    def _slot(self, name: str) -> int:
        if name.startswith("."):
            return self._scopes[0][name[1:]]
        return next(scope[name] for scope in reversed(self._scopes) if name in scope)

    def _new_slot(self) -> int:
        self.slots_count += 1
        return self.slots_count - 1

    def _visit_select(self, node: syntax.Select) -> Iterator[syntax.Expression]:
        yield node.operand
        self._qualify(node, node.operand, Qualifier(node, node.field, None, False))
        self._pieces[node.id].tests_presence = node.tests_presence

    def _visit_index(self, node: syntax.Call) -> Iterator[syntax.Expression]:
        operand, key = node.arguments
        yield operand
        yield key
        constant = self._constant(key)
        if constant is MISSING:
            code: Code | None = self._code(key, is_charged=False)
        else:
            code = None
            self._check_key(node, constant)
        self._qualify(node, operand, Qualifier(node, constant, code, node.function != "_[_]"))

    def _check_key(self, node: syntax.Expression, key: Value) -> None:
        try:
            index_key(key)
        except CelEvaluationError as fault:
            raise self._program_error(node, fault) from None

    def _qualify(self, node: syntax.Expression, operand: syntax.Expression, qualifier: Qualifier[Code]) -> None:
        """Adds a step to the operand's access, or starts one."""
        piece = self._pieces[operand.id]
        if piece.qualifiers is not None and not piece.tests_presence:
            piece.qualifiers.append(qualifier)
            self._pieces[node.id] = piece
            return
        if piece.variable is not None and piece.qualifiers is None:
            self._set_variable(node, piece.variable, piece.slot)
        else:
            self._set(node, self._code(operand))
            self._pieces[node.id].is_conditional = piece.is_conditional
        self._pieces[node.id].qualifiers = [qualifier]

    # Calls.

    def _visit_call(self, node: syntax.Call) -> Iterator[syntax.Expression]:
        if node.function in _LOGICAL:
            return self._visit_logical(node)
        if node.function in ("_[_]", "_[?_]", "_?._"):
            return self._visit_index(node)
        if node.function == "_?_:_":
            return self._visit_conditional(node)
        if node.function in ("or", "orValue") and node.target is not None:
            return self._visit_alternative(node)
        return self._visit_function(node)

    def _visit_logical(self, node: syntax.Call) -> Iterator[syntax.Expression]:
        terms = syntax.logical_terms(node)
        yield from terms
        codes = [self._code(term) for term in terms]
        self._set(node, self._builder.logical(node, codes, is_conjunction=node.function == "_&&_"))

    def _visit_conditional(self, node: syntax.Call) -> Iterator[syntax.Expression]:
        yield from node.arguments
        condition, then, otherwise = node.arguments
        branches = [self._code(branch, is_charged=False) for branch in (then, otherwise)]
        self._set(node, self._builder.conditional(node, self._code(condition), branches[0], branches[1]))
        self._pieces[node.id].is_conditional = True

    def _visit_alternative(self, node: syntax.Call) -> Iterator[syntax.Expression]:
        assert node.target is not None
        (otherwise,) = node.arguments
        yield node.target
        yield otherwise
        optional, alternative = self._code(node.target), self._code(otherwise)
        is_unwrapped = node.function == "orValue"
        self._set(node, self._builder.alternative(node, optional, alternative, is_unwrapped=is_unwrapped))

    def _visit_function(self, node: syntax.Call) -> Iterator[syntax.Expression]:
        operands = node.arguments if node.target is None else (node.target, *node.arguments)
        yield from operands
        function = self._function(node)
        constants = [self._constant(operand) for operand in operands]
        if node.function == "@in" and self._plan_membership(node, operands[0], constants[1]):
            return
        if node.function in CONVERSIONS and _are_known(constants):
            self._set_constant(node, self._fold(node, function, constants))
            return
        if node.function in PATTERN_FUNCTIONS and constants[1].__class__ is str:
            self._check_pattern(node, constants[1])
        self._set(node, self._builder.call(node, function, [self._code(operand) for operand in operands]))

    def _function(self, node: syntax.Call) -> Function:
        name = node.function.removeprefix(".")
        overloads = self._typed.overloads.get(node.id, ())
        if name == "sum" and len(overloads) == 1:
            # The type of an empty sum is known only here.
            name = _SUMS.get(overloads[0], name)
        return FUNCTIONS[name]

    def _plan_membership(self, node: syntax.Call, operand: syntax.Expression, elements: Value) -> bool:
        """Handles a search in a constant list of primitives as a set lookup; false if this is not one."""
        if elements is MISSING or self._typed.overloads.get(node.id) != ("in_list",):
            return False
        if not elements:
            self._set_constant(node, False)
            return True
        if not all(element.__class__ in _PRIMITIVES for element in elements):
            return False
        members = frozenset(key for element in elements for key in _membership_keys(element))
        self._set(node, self._builder.membership(node, self._code(operand), members))
        return True

    def _fold(self, node: syntax.Call, function: Function, constants: Sequence[Value]) -> Value:
        try:
            overload = function.overload_for(*constants)
            return overload.implementation(*constants)
        except CelEvaluationError as fault:
            raise self._program_error(node, fault) from None

    def _check_pattern(self, node: syntax.Call, pattern: str) -> None:
        try:
            compile_pattern(pattern)
        except CelEvaluationError as fault:
            raise self._program_error(node, fault) from None

    def _program_error(self, node: syntax.Expression, fault: CelEvaluationError) -> CelProgramError:
        return CelProgramError(self._typed.parsed.text, [Problem(str(fault), node.offset)])

    # Lists, maps and messages.

    def _visit_list(self, node: syntax.ListLiteral) -> Iterator[syntax.Expression]:
        yield from node.elements
        constants = [self._constant(element) for element in node.elements]
        if not node.optional and _are_known(constants):
            self._set_constant(node, constants)
            return
        self._set(node, self._builder.make_list(node, [self._code(element) for element in node.elements]))

    def _visit_map(self, node: syntax.MapLiteral) -> Iterator[syntax.Expression]:
        for entry in node.entries:
            yield entry.key
            yield entry.value
        pairs = [(self._constant(entry.key), self._constant(entry.value)) for entry in node.entries]
        if all(map(_are_known, pairs)) and not any(entry.optional for entry in node.entries):
            try:
                self._set_constant(node, {map_key(key): value for key, value in pairs})
            except CelEvaluationError as fault:
                raise self._program_error(node, fault) from None
            return
        entries = [(self._code(entry.key), self._code(entry.value)) for entry in node.entries]
        self._set(node, self._builder.make_map(node, entries))

    def _visit_message(self, node: syntax.MessageLiteral) -> Iterator[syntax.Expression]:
        for entry in node.entries:
            yield entry.value
        values = [self._code(entry.value) for entry in node.entries]
        self._set(node, self._builder.make_message(node, values))

    # Macros.

    def _visit_comprehension(self, node: syntax.Comprehension) -> Iterator[syntax.Expression]:
        if isinstance(node.range, syntax.ListLiteral) and not node.range.elements and node.accumulator != "@result":
            return self._visit_bind(node)
        return self._visit_loop(node)

    def _visit_bind(self, node: syntax.Comprehension) -> Iterator[syntax.Expression]:
        yield node.initial
        value, slot = self._code(node.initial), self._new_slot()
        self._scopes.append({node.accumulator: slot})
        yield node.result
        self._scopes.pop()
        self._set(node, self._builder.bind(node, slot, value, self._code(node.result)))

    def _visit_loop(self, node: syntax.Comprehension) -> Iterator[syntax.Expression]:
        yield node.range
        variables = {node.variable: self._new_slot()}
        if node.second_variable is not None:
            variables[node.second_variable] = self._new_slot()
        loop = Loop(self._code(node.range), variables[node.variable], variables.get(node.second_variable or ""))
        self._scopes.append(variables)
        yield from self._visit_step(node, loop)
        self._scopes.pop()

    def _visit_step(self, node: syntax.Comprehension, loop: Loop[Code]) -> Iterator[syntax.Expression]:
        """Every fold comes from a macro, so its step has one of the shapes that macros make."""
        step = node.step
        assert isinstance(step, syntax.Call)
        if step.function in _LOGICAL:
            predicate = step.arguments[1]
            yield predicate
            code = self._code(predicate)
            self._set(node, self._builder.quantifier(node, loop, code, is_universal=step.function == "_&&_"))
            return
        condition: syntax.Expression | None = None
        if step.function == "_?_:_":
            condition, inner = step.arguments[:2]
            assert isinstance(inner, syntax.Call)
            step = inner
            yield condition
        if isinstance(node.initial, syntax.ListLiteral):
            yield from self._visit_collected_list(node, loop, condition, step)
        elif isinstance(node.initial, syntax.MapLiteral):
            arguments = step.arguments[1:]
            yield from arguments
            codes = [self._code(argument) for argument in arguments]
            self._set(node, self._builder.collect_map(node, loop, self._optional_code(condition), codes))
        else:
            assert condition is not None
            self._set(node, self._builder.exists_one(node, loop, self._code(condition)))

    def _visit_collected_list(
        self, node: syntax.Comprehension, loop: Loop[Code], condition: syntax.Expression | None, step: syntax.Call
    ) -> Iterator[syntax.Expression]:
        literal = step.arguments[1]
        assert isinstance(literal, syntax.ListLiteral)
        (element,) = literal.elements
        yield element
        is_constant = self._constant(element) is not MISSING
        filtering, code = self._optional_code(condition), self._code(element)
        self._set(node, self._builder.collect_list(node, loop, filtering, code, is_constant=is_constant))

    def _optional_code(self, node: syntax.Expression | None) -> Code | None:
        return None if node is None else self._code(node)


_SUMS: Final = {
    "list_uint_sum_uint": "sum@uint",
    "list_double_sum_double": "sum@double",
    "list_duration_sum_duration": "sum@duration",
}


def _are_known(values: Iterable[Value]) -> bool:
    return all(value is not MISSING for value in values)


def _membership_keys(element: Value) -> tuple[Hashable, ...]:
    """Returns the keys under which an element of a constant list is found: a number also as the other number types."""
    kind = element.__class__
    keys = [map_key(element)]
    if kind is int or kind is Uint:
        keys.append(map_key(float(element)))
    if (kind is Uint or (kind is float and element.is_integer())) and -(2**63) <= element < 2**63:
        keys.append(map_key(int(element)))
    if (kind is int or (kind is float and element.is_integer())) and 0 <= element < 2**64:
        keys.append(map_key(Uint(element)))
    return tuple(keys)
