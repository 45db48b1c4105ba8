"""The interface between the planner and the builders of executable code."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from dralloc.cel.library.functions import Function
from dralloc.cel.syntax import Call, Expression, ListLiteral, MapLiteral, MessageLiteral
from dralloc.cel.values import Value

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
