"""Explains the result of a selector for one device: the value of each part, with the part's text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dralloc.cel import syntax
from dralloc.cel.closure_runtime import Raised
from dralloc.cel.device import DeviceView
from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.evaluator import Evaluator
from dralloc.cel.library.conversions import text_of_double
from dralloc.cel.library.text_format import go_quoted
from dralloc.cel.library.time import text_of_duration, text_of_timestamp
from dralloc.cel.printer import print_node
from dralloc.cel.type_checker import TypedExpression
from dralloc.cel.values import (
    DomainMap,
    Duration,
    Optional,
    Timestamp,
    TypeValue,
    Uint,
    Value,
    key_value,
    type_of,
)
from dralloc.primitives.quantity import Quantity
from dralloc.primitives.semver import Semver

# The first few values suffice for a part that runs for every element of a list, and for a value with many elements.
SHOWN_MAX: Final = 5
NESTING_SHOWN_MAX: Final = 4

_ACCESSES: Final = frozenset({"_[_]", "_[?_]", "_?._"})
_LOGICAL: Final = frozenset({"_&&_", "_||_"})
_SPELLED_OUT: Final = frozenset({"quantity", "semver", "duration", "timestamp", "dyn"})


@dataclass(frozen=True, slots=True)
class ExplainedPart:
    """A part of an expression, `depth` levels inside the whole.

    It has several values if it ran several times, and none if it was skipped or failed. `is_origin` is true where an
    error arose; the enclosing parts have the error, too.
    """

    text: str
    depth: int
    values: tuple[str, ...] = ()
    times: int = 0
    error: str | None = None
    is_origin: bool = False


@dataclass(frozen=True, slots=True)
class SelectorExplanation:
    """The parts of an expression, from the outside in, in written order."""

    parts: tuple[ExplainedPart, ...]

    @property
    def whole(self) -> ExplainedPart:
        return self.parts[0]


def explain(typed: TypedExpression, device: DeviceView) -> SelectorExplanation:
    """Returns the value of each part for a device. Raises `CelEvaluationError` only if the device itself is malformed."""
    seen: dict[int, list[Value | Raised]] = {}

    def observe(node: syntax.Expression, value: Value | Raised) -> None:
        seen.setdefault(node.id, []).append(value)

    device_map = device.as_map
    try:
        Evaluator(typed, observe).evaluate(device_map)
    except CelEvaluationError as error:
        if typed.root.id not in seen:
            seen[typed.root.id] = [Raised(error)]
    return SelectorExplanation(_Narrator(typed, seen).parts())


class _Narrator:
    """Collects the observed values, from the innermost parts outwards."""

    def __init__(self, typed: TypedExpression, seen: dict[int, list[Value | Raised]]) -> None:
        self._typed = typed
        self._seen = seen
        self._macros = typed.parsed.macros
        # The errors of the parts so far.
        self._errors: dict[int, CelEvaluationError] = {}
        self._told: set[int] = set()

    def parts(self) -> tuple[ExplainedPart, ...]:
        found: list[tuple[syntax.Expression, int, tuple[syntax.Expression, ...]]] = []
        waiting: list[tuple[syntax.Expression, int]] = [(self._typed.root, 0)]
        while waiting:
            node, depth = waiting.pop()
            inner = tuple(child for child in self._children(node) if not _says_itself(child))
            found.append((node, depth, inner))
            waiting.extend((child, depth + 1) for child in reversed(inner))
        parts = [self._part(node, depth, inner) for node, depth, inner in reversed(found)]
        return tuple(part for part in reversed(parts) if part.depth == 0 or part.values != (part.text,))

    def _part(self, node: syntax.Expression, depth: int, inner: tuple[syntax.Expression, ...]) -> ExplainedPart:
        text = print_node(node, self._macros)
        seen = self._seen.get(node.id, [])
        error = next((value.error for value in seen if isinstance(value, Raised)), None)
        if not seen:
            # An inner part failed before this part could run.
            error = next((self._errors[child.id] for child in inner if child.id in self._errors), None)
        is_origin = error is not None and id(error) not in self._told
        if error is not None:
            self._errors[node.id] = error
            self._told.add(id(error))
        values = [value for value in seen if not isinstance(value, Raised)]
        return ExplainedPart(
            text=text,
            depth=depth,
            values=tuple(shown_value(value) for value in values[:SHOWN_MAX]),
            times=len(seen),
            error=None if error is None else str(error),
            is_origin=is_origin,
        )

    def _children(self, node: syntax.Expression) -> tuple[syntax.Expression, ...]:
        written = self._macros.get(node.id)
        if isinstance(node, syntax.Select) or (isinstance(node, syntax.Call) and node.function in _ACCESSES):
            return _children_of_access(node)
        if written is not None:
            node = written
        if isinstance(node, syntax.Call):
            if node.function in _LOGICAL:
                return syntax.logical_terms(node)
            return node.arguments if node.target is None else (node.target, *node.arguments)
        if isinstance(node, syntax.ListLiteral):
            return node.elements
        if isinstance(node, syntax.MapLiteral):
            return tuple(part for entry in node.entries for part in (entry.key, entry.value))
        if isinstance(node, syntax.MessageLiteral):
            return tuple(entry.value for entry in node.entries)
        return ()


def _says_itself(node: syntax.Expression) -> bool:
    """True if the text of a part is its value, or a name whose value is shown elsewhere."""
    if isinstance(node, syntax.ListLiteral):
        return all(isinstance(element, syntax.Literal) for element in node.elements)
    if isinstance(node, syntax.Call) and node.target is None and node.function in _SPELLED_OUT:
        return all(isinstance(argument, syntax.Literal) for argument in node.arguments)
    return isinstance(node, syntax.Literal | syntax.Identifier)


def _children_of_access(node: syntax.Expression) -> tuple[syntax.Expression, ...]:
    """Returns the start of an access, and the computed keys: its steps are not shown one by one."""
    keys: list[syntax.Expression] = []
    while True:
        if isinstance(node, syntax.Select):
            node = node.operand
        elif isinstance(node, syntax.Call) and node.function in _ACCESSES:
            keys.append(node.arguments[1])
            node = node.arguments[0]
        else:
            return (node, *reversed(keys))


# --- Values --------------------------------------------------------------------------------------------------


def shown_value(value: Value, nesting: int = 0) -> str:
    """Returns a value as it would be written in an expression; large values are cut."""
    kind = value.__class__
    if kind is list:
        return _shown_many("[", [shown_value(element, nesting + 1) for element in value[:SHOWN_MAX]], len(value), "]")
    if kind is dict or kind is DomainMap:
        return _shown_map(value, nesting)
    if kind is Optional:
        return f"optional.of({shown_value(value.value, nesting)})" if value.is_present else "optional.none()"
    if kind is bool or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if kind is str:
        return go_quoted(value)
    if kind is float:
        text = text_of_double(value)
        return f"{text}.0" if text.lstrip("-").isdecimal() else text
    if kind is bytes:
        return f"b{go_quoted(value.decode('latin-1'))}"
    if kind is Uint:
        return f"{int(value)}u"
    if isinstance(value, Quantity):
        return f'quantity("{value}")'
    if kind is Semver:
        return f'semver("{value}")'
    if kind is Duration:
        return f'duration("{text_of_duration(value)}")'
    if kind is Timestamp:
        return f'timestamp("{text_of_timestamp(value)}")'
    if kind is TypeValue:
        return str(value.name)
    return str(value) if kind is int else f"a {type_of(value).name}"


def _shown_map(mapping: dict[object, Value], nesting: int) -> str:
    if nesting >= NESTING_SHOWN_MAX:
        return "{…}"
    entries = [
        f"{shown_value(key_value(key))}: {shown_value(value, nesting + 1)}"
        for key, value in list(mapping.items())[:SHOWN_MAX]
    ]
    return _shown_many("{", entries, len(mapping), "}")


def _shown_many(opening: str, shown: list[str], count: int, closing: str) -> str:
    more = [f"… {count - len(shown)} more"] if count > len(shown) else []
    return opening + ", ".join(shown + more) + closing
