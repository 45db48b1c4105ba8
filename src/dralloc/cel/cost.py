"""Estimates the highest cost of an expression before it runs.

Kubernetes refuses new expressions whose estimate exceeds a limit, so this reproduces its estimate with all
peculiarities: the sizes it knows (a string attribute has at most 64 characters, a device at most 32 attributes),
unknown sizes (unbounded), and the price of each function. `cost_functions` has the prices; this module has what is
common to all nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from dralloc.cel import cost_functions, syntax
from dralloc.cel.cost_functions import CallArguments, CallEstimate
from dralloc.cel.cost_sizes import (
    NOWHERE,
    ONE,
    UNKNOWN,
    ZERO,
    EntrySize,
    Path,
    Size,
    declared_size,
    fixed,
    plus,
    times,
)
from dralloc.cel.macros import ACCUMULATOR
from dralloc.cel.syntax import walk
from dralloc.cel.type_checker import TypedExpression
from dralloc.cel.types import Type, TypeKind, is_optional

_STEP: Final = 1
_LIST: Final = 10
_MAP: Final = 30
_MESSAGE: Final = 40

# Calls whose result can be larger than its estimated size, and those whose result is never empty.
_GROWS_UNSEEN: Final = frozenset({"list_flatten", "list_flatten_int", "@mapInsert_map_map"})
_PARTS_OF_NOTHING: Final = frozenset(
    {"string_split_string", "string_split_string_int", "string_find_all_string", "string_find_all_string_int"}
)

_SELECTED_FOR_A_PRICE: Final = frozenset({TypeKind.MAP, TypeKind.OBJECT, TypeKind.VARIABLE})
_SCALARS: Final = frozenset(
    {TypeKind.BOOL, TypeKind.DOUBLE, TypeKind.DURATION, TypeKind.INT, TypeKind.TIMESTAMP, TypeKind.UINT}
)


class CostEstimate(NamedTuple):
    """The highest cost of one evaluation, at most the largest 64-bit number.

    Kubernetes' estimate is not always an upper bound: it treats the parts of an empty string as none, a flattened list
    as unchanged in length, and some keys as empty. If the estimate depends on such a size, `is_upper_bound` is false.
    """

    max: int
    is_upper_bound: bool


def estimate_cost(typed: TypedExpression) -> CostEstimate:
    estimator = _Estimator(typed)
    walk(typed.root, estimator.visit)
    return CostEstimate(estimator.costs[typed.root.id], estimator.is_upper_bound)


class _Variable:
    """What is known about a name that the expression introduces."""

    __slots__ = ("entry", "path", "size")

    def __init__(self, path: Path, size: Size | None, entry: EntrySize | None) -> None:
        self.path = path
        self.size = size
        self.entry = entry


class _Estimator:
    def __init__(self, typed: TypedExpression) -> None:
        self.typed = typed
        self.costs: dict[int, int] = {}
        self.paths: dict[int, Path] = {}
        self.sizes: dict[int, Size] = {}
        self.entries: dict[int, EntrySize] = {}
        self.variables: dict[str, list[_Variable]] = {}
        self.is_upper_bound = True

    def visit(self, node: syntax.Expression) -> Iterator[syntax.Expression] | None:
        if isinstance(node, syntax.Literal):
            self.costs[node.id] = 0
            return None
        if isinstance(node, syntax.Identifier):
            known = self._variable(node.name)
            self.paths[node.id] = known.path if known else Path.of(node.name)
            self.costs[node.id] = _STEP
            return None
        if isinstance(node, syntax.Call):
            return self._visit_call(node)
        if isinstance(node, syntax.Select):
            return self._visit_select(node)
        if isinstance(node, syntax.ListLiteral):
            return self._visit_list(node)
        if isinstance(node, syntax.MapLiteral):
            return self._visit_map(node)
        if isinstance(node, syntax.MessageLiteral):
            return self._visit_message(node)
        return self._visit_binding(node) if _is_binding(node) else self._visit_comprehension(node)

    # Nodes.

    def _visit_select(self, node: syntax.Select) -> Iterator[syntax.Expression]:
        if node.id in self.typed.denoted_types:
            self.costs[node.id] = _STEP
            return
        yield node.operand
        cost = self.costs[node.operand.id]
        if not node.tests_presence:
            if self.typed.types[node.operand.id].kind in _SELECTED_FOR_A_PRICE:
                cost = plus(cost, _STEP)
            self.paths[node.id] = self._path(node.operand).extended(node.field)
        self.costs[node.id] = cost

    def _visit_list(self, node: syntax.ListLiteral) -> Iterator[syntax.Expression]:
        yield from node.elements
        cost, element_size = _LIST, None
        for element in node.elements:
            cost = plus(cost, self.costs[element.id])
            element_size = self._size_or_unknown(element).union(element_size)
        self.entries[node.id] = EntrySize(is_list=True, key=ONE, value=element_size or ZERO)
        self.costs[node.id] = cost

    def _visit_map(self, node: syntax.MapLiteral) -> Iterator[syntax.Expression]:
        cost, key_size, value_size = _MAP, None, None
        for entry in node.entries:
            yield entry.key
            yield entry.value
            cost = plus(cost, self.costs[entry.key.id], self.costs[entry.value.id])
            key_size = self._size_or_unknown(entry.key).union(key_size)
            value_size = self._size_or_unknown(entry.value).union(value_size)
        self.entries[node.id] = EntrySize(is_list=False, key=key_size or ZERO, value=value_size or ZERO)
        self.costs[node.id] = cost

    def _visit_message(self, node: syntax.MessageLiteral) -> Iterator[syntax.Expression]:
        cost = _MESSAGE
        for entry in node.entries:
            yield entry.value
            cost = plus(cost, self.costs[entry.value.id])
        self.costs[node.id] = cost

    def _visit_binding(self, node: syntax.Comprehension) -> Iterator[syntax.Expression]:
        yield node.range
        yield node.initial
        self._push(node.accumulator, self._bound_variable(node.initial))
        yield node.result
        self.variables[node.accumulator].pop()
        self.costs[node.id] = plus(self.costs[node.range.id], self.costs[node.initial.id], self.costs[node.result.id])
        self._copy_sizes(node, node.result)

    def _visit_comprehension(self, node: syntax.Comprehension) -> Iterator[syntax.Expression]:
        yield node.range
        yield node.initial
        self._push(node.accumulator, self._bound_variable(node.initial))
        iterated = self._iteration_variables(node)
        for name, variable in iterated:
            self._push(name, variable)
        yield node.condition
        yield node.step
        for name, _ in iterated:
            self.variables[name].pop()
        yield node.result
        self.variables[node.accumulator].pop()
        rounds = self._size_or_unknown(node.range)
        loop = times(rounds.max, plus(self.costs[node.condition.id], self.costs[node.step.id]))
        parts = (node.range, node.initial, node.result)
        self.costs[node.id] = plus(loop, *(self.costs[part.id] for part in parts))
        self._note_result_size(node, rounds)

    def _note_result_size(self, node: syntax.Comprehension, rounds: Size) -> None:
        if isinstance(node.initial, syntax.Literal):
            self._set_size(node, self._size(node.initial))
        elif isinstance(node.initial, syntax.ListLiteral | syntax.MapLiteral):
            self._set_size(node, rounds)
            self._set_entry(node, self._entry(node.step))

    # Calls.

    def _visit_call(self, node: syntax.Call) -> Iterator[syntax.Expression]:
        yield from node.arguments
        if node.function == "dyn":
            (argument,) = node.arguments
            self._copy_sizes(node, argument)
            self.costs[node.id] = plus(_STEP, self.costs[argument.id])
            return
        if node.target is not None:
            yield node.target
        arguments = self._call_arguments(node)
        cost, result_size = 0, None
        for overload in self.typed.overloads[node.id]:
            estimate = self._overload_estimate(node, overload, arguments)
            cost = max(cost, estimate.cost)
            if estimate.size is not None:
                result_size = estimate.size.union(result_size)
            if overload in ("index_list", "index_map"):
                result_size = self._note_element(node, overload)
            elif overload in _GROWS_UNSEEN or (overload in _PARTS_OF_NOTHING and arguments.target.max == 0):
                self.is_upper_bound = False
            result_size = result_size or self._size(node)
        self._set_size(node, result_size)
        self.costs[node.id] = cost if node.target is None else plus(cost, self.costs[node.target.id])

    def _note_element(self, node: syntax.Call, overload: str) -> Size | None:
        """Records the result of an index: its path below the variable, and its size if the container's entries are
        known.
        """
        container = node.arguments[0]
        step = "@items" if overload == "index_list" else "@values"
        self.paths[node.id] = self._path(container).extended(step)
        entry = self._entry(container)
        return entry.value if entry else None

    def _overload_estimate(self, node: syntax.Call, overload: str, arguments: CallArguments) -> CallEstimate:
        price = cost_functions.price_of(node.function, overload, arguments)
        if price is not None:
            return CallEstimate(plus(price.cost, *arguments.costs), price.size)
        if overload == "conditional":
            _, yes, no = node.arguments
            self._set_entry(node, _both(self._entry(yes), self._entry(no)))
        elif overload in ("add_string", "add_bytes", "add_list"):
            left, right = node.arguments
            self._set_entry(node, _both(self._entry(left), self._entry(right)))
        return cost_functions.standard_estimate(overload, arguments)

    def _call_arguments(self, node: syntax.Call) -> CallArguments:
        return CallArguments(
            node=node,
            types=self.typed.types,
            costs=tuple(self.costs[argument.id] for argument in node.arguments),
            sizes=tuple(self._size(argument) for argument in node.arguments),
            target_size=None if node.target is None else self._size(node.target),
            target_path=NOWHERE if node.target is None else self._visible_path(node.target),
        )

    # Sizes and paths.

    def _size(self, node: syntax.Expression) -> Size | None:
        """Returns the maximal size of the node's value; None if unknown."""
        known = self.sizes.get(node.id)
        if known is not None:
            return known
        if isinstance(node, syntax.Literal):
            return fixed(len(node.value)) if isinstance(node.value, str | bytes) else ONE
        if isinstance(node, syntax.ListLiteral):
            return fixed(len(node.elements))
        if isinstance(node, syntax.MapLiteral):
            return fixed(len(node.entries))
        declared = declared_size(self._path(node))
        if declared is not None:
            self.sizes[node.id] = declared
            if declared.max == 0 and self.typed.types[node.id].kind is not TypeKind.OBJECT:
                self.is_upper_bound = False
            return declared
        if _is_scalar(self.typed.types[node.id]):
            return ONE
        if isinstance(node, syntax.Identifier) and (variable := self._variable(node.name)) is not None:
            return variable.size
        return None

    def _size_or_unknown(self, node: syntax.Expression) -> Size:
        return self._size(node) or UNKNOWN

    def _set_size(self, node: syntax.Expression, size: Size | None) -> None:
        if size is not None:
            self.sizes[node.id] = size

    def _entry(self, node: syntax.Expression) -> EntrySize | None:
        """Returns the sizes of a list's elements or a map's keys and values."""
        known = self.entries.get(node.id)
        if (
            known is None
            and isinstance(node, syntax.Identifier)
            and (variable := self._variable(node.name)) is not None
        ):
            return variable.entry
        return known

    def _set_entry(self, node: syntax.Expression, entry: EntrySize | None) -> None:
        if entry is not None:
            self.entries[node.id] = entry

    def _copy_sizes(self, node: syntax.Expression, source: syntax.Expression) -> None:
        self._set_size(node, self._size(source))
        self._set_entry(node, self._entry(source))

    def _path(self, node: syntax.Expression) -> Path:
        if isinstance(node, syntax.Identifier) and (variable := self._variable(node.name)) is not None:
            return variable.path
        return self.paths.get(node.id, NOWHERE)

    def _visible_path(self, node: syntax.Expression) -> Path:
        path = self._path(node)
        return NOWHERE if path.steps[:1] == [ACCUMULATOR] else path

    # Variables.

    def _variable(self, name: str) -> _Variable | None:
        stack = self.variables.get(name)
        return stack[-1] if stack else None

    def _push(self, name: str, variable: _Variable) -> None:
        self.variables.setdefault(name, []).append(variable)

    def _bound_variable(self, value: syntax.Expression) -> _Variable:
        return _Variable(self._path(value), self._size(value), self._entry(value))

    def _iteration_variables(self, node: syntax.Comprehension) -> list[tuple[str, _Variable]]:
        entry, path = self._entry(node.range), self._path(node.range)
        is_list = entry.is_list if entry else self.typed.types[node.range.id].kind is TypeKind.LIST
        key_size, value_size = (entry.key, entry.value) if entry else (None, None)
        if node.second_variable is None:
            single = path.extended("@items" if is_list else "@keys")
            return [(node.variable, _Variable(single, value_size if is_list else key_size, None))]
        key = _Variable(path.extended("@indices" if is_list else "@keys"), key_size, None)
        value = _Variable(path.extended("@items" if is_list else "@values"), value_size, None)
        return [(node.variable, key), (node.second_variable, value)]


def _both(one: EntrySize | None, other: EntrySize | None) -> EntrySize | None:
    if one is None or other is None:
        return None
    return EntrySize(one.is_list, one.key.union(other.key), one.value.union(other.value))


def _is_binding(node: syntax.Comprehension) -> bool:
    """True if the fold only binds a name to a value, as `cel.bind` does."""
    return (
        isinstance(node.range, syntax.ListLiteral)
        and not node.range.elements
        and isinstance(node.condition, syntax.Literal)
        and node.condition.value is False
        and node.accumulator != ACCUMULATOR
    )


def _is_scalar(candidate: Type) -> bool:
    if is_optional(candidate):
        return _is_scalar(candidate.parameters[0])
    return candidate.kind in _SCALARS
