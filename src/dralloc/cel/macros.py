"""Macros: calls that the parser expands.

The expansions are CEL's, node by node, because types, costs and results are defined on the expanded form. All nodes
that a macro makes have the position of its call, except the ones the user wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dralloc.cel import syntax

ACCUMULATOR: Final = "@result"
UNUSED_VARIABLE: Final = "#unused"
SORT_INPUT: Final = "@__sortBy_input__"
MAP_INSERT: Final = "cel.@mapInsert"
NOT_STRICTLY_FALSE: Final = "@not_strictly_false"

# CEL's names for the accumulator: a variable of that name would be overwritten.
_ACCUMULATOR_NAMES: Final = frozenset({ACCUMULATOR, "__result__"})


class MacroError(Exception):
    """Invalid arguments of a macro; the parser, which has the text, turns it into a syntax error."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


@dataclass(frozen=True, slots=True)
class MacroCall:
    """A call that may be a macro, and the means to make nodes in its place."""

    call: syntax.Call
    new_id: Callable[[], int]

    @property
    def arguments(self) -> tuple[syntax.Expression, ...]:
        return self.call.arguments

    @property
    def target(self) -> syntax.Expression:
        assert self.call.target is not None, "a receiver macro has a target"
        return self.call.target

    def variable(self, position: int) -> str:
        """Returns the variable name that an argument introduces."""
        argument = self.arguments[position]
        if not isinstance(argument, syntax.Identifier) or argument.name.startswith("."):
            raise MacroError(f"{self.call.function}: this argument must be a simple name", argument.offset)
        if argument.name in _ACCUMULATOR_NAMES:
            raise MacroError(f"{self.call.function}: the variable name {argument.name!r} is reserved", argument.offset)
        return argument.name

    def name(self, name: str) -> syntax.Identifier:
        return syntax.Identifier(id=self.new_id(), offset=self.call.offset, name=name)

    def accumulator(self) -> syntax.Identifier:
        return self.name(ACCUMULATOR)

    def boolean(self, value: bool) -> syntax.Literal:
        return syntax.Literal(id=self.new_id(), offset=self.call.offset, kind=syntax.LiteralKind.BOOL, value=value)

    def integer(self, value: int) -> syntax.Literal:
        return syntax.Literal(id=self.new_id(), offset=self.call.offset, kind=syntax.LiteralKind.INT, value=value)

    def list_of(self, *elements: syntax.Expression) -> syntax.ListLiteral:
        return syntax.ListLiteral(id=self.new_id(), offset=self.call.offset, elements=elements)

    def empty_map(self) -> syntax.MapLiteral:
        return syntax.MapLiteral(id=self.new_id(), offset=self.call.offset, entries=())

    def function(self, function: str, *arguments: syntax.Expression) -> syntax.Call:
        return syntax.Call(id=self.new_id(), offset=self.call.offset, function=function, arguments=arguments)

    def method(self, target: syntax.Expression, function: str, *arguments: syntax.Expression) -> syntax.Call:
        return syntax.Call(
            id=self.new_id(), offset=self.call.offset, function=function, target=target, arguments=arguments
        )

    def fold(
        self,
        variables: tuple[str, ...],
        *,
        initial: syntax.Expression,
        condition: syntax.Expression,
        step: syntax.Expression,
        result: syntax.Expression | None = None,
        range_: syntax.Expression | None = None,
    ) -> syntax.Comprehension:
        return syntax.Comprehension(
            id=self.new_id(),
            offset=self.call.offset,
            range=self.target if range_ is None else range_,
            variable=variables[0],
            second_variable=variables[1] if len(variables) == 2 else None,
            accumulator=ACCUMULATOR,
            initial=initial,
            condition=condition,
            step=step,
            result=self.accumulator() if result is None else result,
        )

    def bind(self, name: str, value: syntax.Expression, body: syntax.Expression) -> syntax.Comprehension:
        """`body` with `name` bound to `value`: a fold over an empty list whose accumulator is the name."""
        return syntax.Comprehension(
            id=self.new_id(),
            offset=self.call.offset,
            range=self.list_of(),
            variable=UNUSED_VARIABLE,
            second_variable=None,
            accumulator=name,
            initial=value,
            condition=self.boolean(False),
            step=self.name(name),
            result=body,
        )


def expand_macro(macro: MacroCall) -> syntax.Expression | None:
    """Returns the expansion, or None if it is an ordinary call. Raises `MacroError`."""
    call = macro.call
    expander = _MACROS.get((call.function, len(call.arguments), call.target is not None))
    return None if expander is None else expander(macro)


def _expand_has(macro: MacroCall) -> syntax.Expression:
    argument = macro.arguments[0]
    if not isinstance(argument, syntax.Select):
        raise MacroError("has: the argument must select a field, as in has(a.b)", argument.offset)
    return syntax.Select(
        id=macro.new_id(),
        offset=macro.call.offset,
        operand=argument.operand,
        field=argument.field,
        tests_presence=True,
    )


def _variables(macro: MacroCall, count: int) -> tuple[str, ...]:
    names = tuple(macro.variable(position) for position in range(count))
    if len(set(names)) != count:
        raise MacroError(f"{macro.call.function}: the variables must differ", macro.arguments[1].offset)
    return names


def _expand_all(macro: MacroCall) -> syntax.Expression:
    return macro.fold(
        _variables(macro, len(macro.arguments) - 1),
        initial=macro.boolean(True),
        condition=macro.function(NOT_STRICTLY_FALSE, macro.accumulator()),
        step=macro.function("_&&_", macro.accumulator(), macro.arguments[-1]),
    )


def _expand_exists(macro: MacroCall) -> syntax.Expression:
    return macro.fold(
        _variables(macro, len(macro.arguments) - 1),
        initial=macro.boolean(False),
        condition=macro.function(NOT_STRICTLY_FALSE, macro.function("!_", macro.accumulator())),
        step=macro.function("_||_", macro.accumulator(), macro.arguments[-1]),
    )


def _expand_exists_one(macro: MacroCall) -> syntax.Expression:
    increment = macro.function("_+_", macro.accumulator(), macro.integer(1))
    return macro.fold(
        _variables(macro, len(macro.arguments) - 1),
        initial=macro.integer(0),
        condition=macro.boolean(True),
        step=macro.function("_?_:_", macro.arguments[-1], increment, macro.accumulator()),
        result=macro.function("_==_", macro.accumulator(), macro.integer(1)),
    )


def _filtered(macro: MacroCall, step: syntax.Expression, variables_count: int) -> syntax.Expression:
    """Returns the step, conditional on the macro's filter (the argument before the last, if any)."""
    if len(macro.arguments) == variables_count + 1:
        return step
    return macro.function("_?_:_", macro.arguments[variables_count], step, macro.accumulator())


def _fold_to_list(macro: MacroCall, variables_count: int, range_: syntax.Expression | None = None) -> syntax.Expression:
    step = macro.function("_+_", macro.accumulator(), macro.list_of(macro.arguments[-1]))
    return macro.fold(
        _variables(macro, variables_count),
        initial=macro.list_of(),
        condition=macro.boolean(True),
        step=_filtered(macro, step, variables_count),
        range_=range_,
    )


def _fold_to_map(macro: MacroCall, insertion: syntax.Call) -> syntax.Expression:
    return macro.fold(
        _variables(macro, 2),
        initial=macro.empty_map(),
        condition=macro.boolean(True),
        step=_filtered(macro, insertion, 2),
    )


def _expand_map(macro: MacroCall) -> syntax.Expression:
    return _fold_to_list(macro, 1)


def _expand_filter(macro: MacroCall) -> syntax.Expression:
    variables = _variables(macro, 1)
    step = macro.function("_+_", macro.accumulator(), macro.list_of(macro.arguments[0]))
    return macro.fold(
        variables,
        initial=macro.list_of(),
        condition=macro.boolean(True),
        step=macro.function("_?_:_", macro.arguments[1], step, macro.accumulator()),
    )


def _expand_transform_list(macro: MacroCall) -> syntax.Expression:
    return _fold_to_list(macro, 2)


def _expand_transform_map(macro: MacroCall) -> syntax.Expression:
    key = macro.name(_variables(macro, 2)[0])
    return _fold_to_map(macro, macro.function(MAP_INSERT, macro.accumulator(), key, macro.arguments[-1]))


def _expand_transform_map_entry(macro: MacroCall) -> syntax.Expression:
    return _fold_to_map(macro, macro.function(MAP_INSERT, macro.accumulator(), macro.arguments[-1]))


def _expand_bind(macro: MacroCall) -> syntax.Expression | None:
    if not isinstance(macro.target, syntax.Identifier) or macro.target.name != "cel":
        return None
    return macro.bind(macro.variable(0), macro.arguments[1], macro.arguments[2])


def _bound_value(macro: MacroCall) -> syntax.Expression:
    return macro.bind(macro.variable(0), macro.method(macro.target, "value"), macro.arguments[1])


def _expand_optional_map(macro: MacroCall) -> syntax.Expression:
    return macro.function(
        "_?_:_",
        macro.method(macro.target, "hasValue"),
        macro.function("optional.of", _bound_value(macro)),
        macro.function("optional.none"),
    )


def _expand_optional_flat_map(macro: MacroCall) -> syntax.Expression:
    return macro.function(
        "_?_:_",
        macro.method(macro.target, "hasValue"),
        _bound_value(macro),
        macro.function("optional.none"),
    )


def _expand_sort_by(macro: MacroCall) -> syntax.Expression:
    if not isinstance(
        macro.target, syntax.ListLiteral | syntax.Select | syntax.Identifier | syntax.Comprehension | syntax.Call
    ):
        raise MacroError("sortBy: the target must be a list", macro.target.offset)
    keys = _fold_to_list(macro, 1, range_=macro.name(SORT_INPUT))
    sorted_list = macro.method(macro.name(SORT_INPUT), "@sortByAssociatedKeys", keys)
    return macro.bind(SORT_INPUT, macro.target, sorted_list)


# By name, number of arguments, and whether there is a target.
_MACROS: Final[dict[tuple[str, int, bool], Callable[[MacroCall], syntax.Expression | None]]] = {
    ("has", 1, False): _expand_has,
    ("all", 2, True): _expand_all,
    ("all", 3, True): _expand_all,
    ("exists", 2, True): _expand_exists,
    ("exists", 3, True): _expand_exists,
    ("exists_one", 2, True): _expand_exists_one,
    ("exists_one", 3, True): _expand_exists_one,
    ("existsOne", 2, True): _expand_exists_one,
    ("existsOne", 3, True): _expand_exists_one,
    ("map", 2, True): _expand_map,
    ("map", 3, True): _expand_map,
    ("filter", 2, True): _expand_filter,
    ("transformList", 3, True): _expand_transform_list,
    ("transformList", 4, True): _expand_transform_list,
    ("transformMap", 3, True): _expand_transform_map,
    ("transformMap", 4, True): _expand_transform_map,
    ("transformMapEntry", 3, True): _expand_transform_map_entry,
    ("transformMapEntry", 4, True): _expand_transform_map_entry,
    ("bind", 3, True): _expand_bind,
    ("optMap", 2, True): _expand_optional_map,
    ("optFlatMap", 2, True): _expand_optional_flat_map,
    ("sortBy", 2, True): _expand_sort_by,
}
