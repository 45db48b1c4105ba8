"""Closures that evaluate an expression with exact values, errors and costs.

Errors are exceptions, and the operators that absorb errors catch them. Costs are Kubernetes', with one exception: it
also charges one for each call that an error prevents from running, and here such calls cost nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

from dralloc.cel.closure_runtime import (
    Code,
    EvaluationFrame,
    LazyValue,
    Observer,
    Raised,
    Run,
    Step,
    Steps,
    finish,
    loop_over,
    reporting,
)
from dralloc.cel.code_planner import Loop, Qualifier
from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.library.functions import Function
from dralloc.cel.library.maps import insert, insert_all
from dralloc.cel.library.messages import build_message
from dralloc.cel.syntax import Call, Expression, ListLiteral, MapLiteral, MessageLiteral
from dralloc.cel.type_checker import TypedExpression
from dralloc.cel.values import (
    FATAL_ERRORS,
    MISSING,
    NONE,
    DomainMap,
    Map,
    Optional,
    Value,
    find_value,
    get_value,
    index_key,
    map_key,
    no_such_overload,
    type_of,
)

# Kubernetes only knows the price of these if their overload was resolved before running.
_PRICED_BY_OVERLOAD: Final = frozenset(
    {
        "@in",
        "_+_",
        "_<_",
        "_<=_",
        "_>_",
        "_>=_",
        "slice",
        "flatten",
        "reverse",
        "distinct",
        "sort",
        "@sortByAssociatedKeys",
    }
)

LIST_COST: Final = 10
MAP_COST: Final = 30
MESSAGE_COST: Final = 40


class ClosureBuilder:
    """Makes closures. `code_builder.CodeBuilder` describes each method."""

    def __init__(self, typed: TypedExpression, observe: Observer | None) -> None:
        self._typed = typed
        self._observe = observe

    def _observed(self, node: Expression, code: Code) -> Code:
        """Returns the code, wrapped to report its values if there is an observer."""
        return code if self._observe is None else reporting(node, code, self._observe)

    # Values.

    def constant(self, node: Expression, value: Value) -> Code:
        return self._observed(node, lambda _frame: value)

    def variable(self, node: Expression, slot: int, *, is_charged: bool) -> Code:
        cost = 1 if is_charged else 0

        def run(frame: EvaluationFrame) -> Value:
            frame.cost += cost
            value = frame.slots[slot]
            return value if value.__class__ is not LazyValue else value.get(frame)

        return self._observed(node, run)

    def access(self, node: Expression, base: Code, qualifiers: Sequence[Qualifier[Code]], *, is_relative: bool) -> Code:
        keys = _keys(qualifiers)
        cost = 1 if is_relative else 0
        if any(is_optional for _, _, is_optional in keys):
            return self._observed(node, Steps(base, lambda frame, value: _get_optionally(frame, value, keys, cost)))

        def step(frame: EvaluationFrame, value: Value) -> Value:
            if value.__class__ is Optional:
                return _get_optionally(frame, value, keys, cost)
            frame.cost += cost + len(keys)
            for key, code, _ in keys:
                value = get_value(value, key if code is None else index_key(code(frame)))
            return value

        return self._observed(node, Steps(base, step))

    def presence(
        self, node: Expression, base: Code, qualifiers: Sequence[Qualifier[Code]], *, is_relative: bool
    ) -> Code:
        keys, (last, _, _) = _keys(qualifiers[:-1]), _keys(qualifiers[-1:])[0]
        cost = 1 if is_relative else 0

        def step(frame: EvaluationFrame, value: Value) -> bool:
            value = _get_optionally(frame, value, keys, cost, wraps=False)
            return value is not MISSING and find_value(value, last) is not MISSING

        return self._observed(node, Steps(base, step))

    def make_list(self, node: ListLiteral, elements: Sequence[Code]) -> Code:
        parts = [(finish(element), position in node.optional) for position, element in enumerate(elements)]

        def run(frame: EvaluationFrame) -> list[Value]:
            made: list[Value] = []
            for part, is_optional in parts:
                value = part(frame)
                if not is_optional:
                    made.append(value)
                elif _as_optional(value).is_present:
                    made.append(value.value)
            frame.charge(LIST_COST)
            return made

        return self._observed(node, run)

    def make_map(self, node: MapLiteral, entries: Sequence[tuple[Code, Code]]) -> Code:
        parts = [
            (finish(key), finish(value), entry.optional)
            for (key, value), entry in zip(entries, node.entries, strict=True)
        ]

        def run(frame: EvaluationFrame) -> Map:
            made: Map = {}
            for key_part, value_part, is_optional in parts:
                key, value = map_key(key_part(frame)), value_part(frame)
                if not is_optional:
                    made[key] = value
                elif _as_optional(value).is_present:
                    made[key] = value.value
                else:
                    made.pop(key, None)
            frame.charge(MAP_COST)
            return made

        return self._observed(node, run)

    def make_message(self, node: MessageLiteral, values: Sequence[Code]) -> Code:
        name = node.type_name.removeprefix(".")
        parts = [
            (entry.field, finish(value), entry.optional) for entry, value in zip(node.entries, values, strict=True)
        ]

        def run(frame: EvaluationFrame) -> Value:
            fields: dict[str, Value] = {}
            for field, part, is_optional in parts:
                value = part(frame)
                if not is_optional:
                    fields[field] = value
                elif _as_optional(value).is_present:
                    fields[field] = value.value
            frame.charge(MESSAGE_COST)
            return build_message(name, fields)

        return self._observed(node, run)

    # Calls.

    def call(self, node: Call, function: Function, arguments: Sequence[Code]) -> Code:
        if node.function in _PRICED_BY_OVERLOAD and len(self._typed.overloads[node.id]) > 1:
            function = at_nominal_cost(function)
        if not arguments:
            return self._observed(node, lambda frame: call_function(frame, function))
        first, rest = arguments[0], [finish(argument) for argument in arguments[1:]]
        if not rest:
            step = step_of_one(function)
        elif len(rest) == 1:
            step = step_of_two(function, rest[0])
        else:
            step = step_of_many(function, rest)
        return self._observed(node, Steps(first, step))

    def membership(self, node: Expression, operand: Code, members: frozenset[Hashable]) -> Code:
        return self._observed(node, Steps(operand, lambda _frame, value: map_key(value) in members))

    def alternative(self, node: Call, optional: Code, otherwise: Code, *, is_unwrapped: bool) -> Code:
        alternative = finish(otherwise)

        def step(frame: EvaluationFrame, value: Value) -> Value:
            if not _as_optional(value).is_present:
                return alternative(frame)
            return value.value if is_unwrapped else value

        return self._observed(node, Steps(optional, step))

    # Operators that may skip operands.

    def conditional(self, node: Expression, condition: Code, then: Code, otherwise: Code) -> Code:
        test, positive, negative = finish(condition), finish(then), finish(otherwise)

        def run(frame: EvaluationFrame) -> Value:
            chosen = test(frame)
            if chosen is True:
                return positive(frame)
            if chosen is False:
                return negative(frame)
            raise no_such_overload("_?_:_", chosen)

        return self._observed(node, run)

    def logical(self, node: Expression, terms: Sequence[Code], *, is_conjunction: bool) -> Code:
        parts = [finish(term) for term in terms]
        # The value that decides alone, whatever the other terms are.
        decisive = not is_conjunction

        def run(frame: EvaluationFrame) -> bool:
            first_error: CelEvaluationError | None = None
            for part in parts:
                value = _bool_or_error(frame, part)
                if value is decisive:
                    return decisive
                if isinstance(value, Raised):
                    first_error = first_error or value.error
            if first_error is not None:
                raise first_error
            return not decisive

        return self._observed(node, run)

    # Macros.

    def bind(self, node: Expression, slot: int, value: Code, body: Code) -> Code:
        initial, result = finish(value), finish(body)

        def run(frame: EvaluationFrame) -> Value:
            frame.slots[slot] = LazyValue(slot, initial)
            return result(frame)

        return self._observed(node, run)

    def quantifier(self, node: Expression, loop: Loop[Code], predicate: Code, *, is_universal: bool) -> Code:
        each, test = loop_over(loop), finish(predicate)
        decisive = not is_universal
        # The accumulator is read, tested (and negated for `exists`) before each step, and read in it.
        condition_cost = 2 if is_universal else 3

        def run(frame: EvaluationFrame) -> bool:
            first_error: CelEvaluationError | None = None
            is_decided = False
            for _ in each(frame):
                frame.charge(condition_cost)
                if is_decided:
                    break
                frame.cost += 1
                value = _bool_or_error(frame, test)
                if value is decisive:
                    is_decided = True
                elif isinstance(value, Raised):
                    first_error = first_error or value.error
            frame.cost += 1
            if is_decided:
                return decisive
            if first_error is not None:
                raise first_error
            return not decisive

        return self._observed(node, run)

    def exists_one(self, node: Expression, loop: Loop[Code], predicate: Code) -> Code:
        each, test = loop_over(loop), finish(predicate)

        def run(frame: EvaluationFrame) -> bool:
            count = 0
            for _ in each(frame):
                frame.charge(0)
                if _require_bool(test(frame)):
                    frame.cost += 2
                    count += 1
            frame.cost += 2
            return count == 1

        return self._observed(node, run)

    def collect_list(
        self,
        node: Expression,
        loop: Loop[Code],
        condition: Code | None,
        element: Code,
        *,
        is_constant: bool,
    ) -> Code:
        each, test, make = loop_over(loop), None if condition is None else finish(condition), finish(element)
        cost = 2 if is_constant else 2 + LIST_COST

        def run(frame: EvaluationFrame) -> list[Value]:
            made: list[Value] = []
            for _ in each(frame):
                if test is None or _require_bool(test(frame)):
                    made.append(make(frame))
                    frame.cost += cost
                frame.charge(0)
            frame.cost += 1
            return made

        return self._observed(node, run)

    def collect_map(
        self,
        node: Expression,
        loop: Loop[Code],
        condition: Code | None,
        arguments: Sequence[Code],
    ) -> Code:
        each, test = loop_over(loop), None if condition is None else finish(condition)
        parts = [finish(argument) for argument in arguments]

        def run(frame: EvaluationFrame) -> Map:
            made: Map = {}
            for _ in each(frame):
                if test is None or _require_bool(test(frame)):
                    if len(parts) == 2:
                        insert(frame, made, parts[0](frame), parts[1](frame))
                    else:
                        insert_all(frame, made, parts[0](frame))
                    frame.cost += 2
                frame.charge(0)
            frame.cost += 1
            return made

        return self._observed(node, run)


# --- Steps ---------------------------------------------------------------------------------------------------


_Key = tuple[Value, Run | None, bool]


def _keys(qualifiers: Sequence[Qualifier[Any]]) -> list[_Key]:
    return [
        (
            qualifier.key,
            None if qualifier.code is None else finish(qualifier.code),
            qualifier.is_optional,
        )
        for qualifier in qualifiers
    ]


def _get_optionally(
    frame: EvaluationFrame, value: Value, keys: Sequence[_Key], cost: int, *, wraps: bool = True
) -> Value:
    """Returns a value inside another; after the first optional step all steps are optional, and so is the result."""
    frame.cost += cost
    is_optional = value.__class__ is Optional
    if is_optional:
        if not value.is_present:
            return NONE if wraps else MISSING
        # A value from an optional loses the default for missing domains.
        value = dict(value.value) if value.value.__class__ is DomainMap else value.value
    for constant, code, is_step_optional in keys:
        key = constant if code is None else index_key(code(frame))
        is_optional = is_optional or is_step_optional
        if not is_optional:
            value = get_value(value, key)
        else:
            value = find_value(value, key)
            if value is MISSING:
                return NONE if wraps else MISSING
        frame.cost += 1
    return Optional(value) if is_optional and wraps else value


def _as_optional(value: Value) -> Optional:
    if value.__class__ is Optional:
        optional: Optional = value
        return optional
    raise CelEvaluationError(f"no such overload: an optional value is needed, this is {type_of(value).name}")


def _require_bool(value: Value) -> bool:
    if value is True:
        return True
    if value is False:
        return False
    raise CelEvaluationError(f"no such overload: a bool is needed, this is {type_of(value).name}")


def _bool_or_error(frame: EvaluationFrame, run: Run) -> bool | Raised:
    try:
        return _require_bool(run(frame))
    except FATAL_ERRORS:
        raise
    except CelEvaluationError as error:
        return Raised(error)


# --- Function calls -------------------------------------------------------------------------------------------------
# Calls of library functions, and their charges.


@cache
def at_nominal_cost(function: Function) -> Function:
    """Returns the function with a cost of one for every call."""
    return Function(function.name, [replace(overload, cost=None) for overload in function.overloads])


def call_function(frame: EvaluationFrame, function: Function, *arguments: Value) -> Value:
    overload = function.overload_for(*arguments)
    frame.charge(1 if overload.cost is None else overload.cost(*arguments))
    implementation = overload.implementation
    return implementation(frame, *arguments) if overload.is_metered else implementation(*arguments)


def step_of_many(function: Function, rest: Sequence[Run]) -> Step:
    return lambda frame, value: call_function(frame, function, value, *[part(frame) for part in rest])


def step_of_one(function: Function) -> Step:
    """`call_function` specialised for one argument; the next function is for two. Nearly all calls have one or two."""
    found = function.found

    def step(frame: EvaluationFrame, operand: Value) -> Value:
        overload = found.get((operand.__class__,)) or function.overload_for(operand)
        frame.charge(1 if overload.cost is None else overload.cost(operand))
        implementation = overload.implementation
        return implementation(frame, operand) if overload.is_metered else implementation(operand)

    return step


def step_of_two(function: Function, second: Run) -> Step:
    found = function.found

    def step(frame: EvaluationFrame, left: Value) -> Value:
        right = second(frame)
        overload = found.get((left.__class__, right.__class__)) or function.overload_for(left, right)
        frame.charge(1 if overload.cost is None else overload.cost(left, right))
        implementation = overload.implementation
        return implementation(frame, left, right) if overload.is_metered else implementation(left, right)

    return step
