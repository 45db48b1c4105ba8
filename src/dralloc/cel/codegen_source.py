"""Fragments of generated Python source, and the names they may use."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from dralloc.cel import types
from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.library.functions import Function
from dralloc.cel.meter import Meter
from dralloc.cel.syntax import Call, Expression
from dralloc.cel.type_checker import TypedExpression
from dralloc.cel.types import Type, TypeKind
from dralloc.cel.values import MISSING, Value

# CPython's parser allows at most 200 nested parentheses; one level here is up to three of them.
DEPTH_MAX: Final = 50
LENGTH_MAX: Final = 40_000

# Larger work is left to the evaluator, which meters it.
WORK_MAX: Final = 20_000

# The allowed functions of an expression with unknown cost: each takes constant time, however large its operands are,
# and none makes large values.
_MOMENTARY: Final = frozenset(
    {
        "!_", "_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "_+_", "_-_", "_*_", "_/_", "_%_", "-_", "@in", "size", "type", "dyn",
        "int", "uint", "double", "bool", "contains", "startsWith", "endsWith", "hasValue", "value", "optional.of", "optional.none",
        "quantity", "isQuantity", "sign", "isInteger", "asInteger", "asApproximateFloat", "add", "sub", "compareTo", "isGreaterThan",
        "isLessThan", "semver", "isSemver", "major", "minor", "patch",
    }
)  # fmt: skip

# Functions with small results, which are computed once if their arguments are constant.
_FOLDED: Final = frozenset({"quantity", "semver", "ip", "cidr", "url", "format.named"})

Dispatch = Callable[..., Value]


class TooComplex(Exception):
    """The expression is left to the evaluator."""


class SourceFragment:
    """The text of an expression, and the known facts about its value."""

    __slots__ = ("comparison", "constant", "depth", "entry", "is_assigning", "is_device", "text", "type")

    def __init__(self, text: str, static_type: Type) -> None:
        self.text = text
        self.type = static_type
        self.constant: Value = MISSING
        self.depth = 0
        self.is_device = False
        # Whether the text assigns to a temporary name, which Python does not allow everywhere.
        self.is_assigning = False
        # For `map.?key`: the texts of the map and of the key.
        self.entry: tuple[str, str] | None = None
        # For `a.compareTo(b)`: texts of two Python values that compare as the operands do.
        self.comparison: tuple[str, str] | None = None

    @property
    def kind(self) -> TypeKind:
        return self.type.kind

    @property
    def is_optional(self) -> bool:
        return types.is_optional(self.type)

    @property
    def holds_maps(self) -> bool:
        """True if this may be a map of domains, in which even missing keys are found."""
        return self.kind is TypeKind.MAP and self.type.parameters[1].kind is TypeKind.MAP


class SourceWriter:
    """Makes source fragments, and collects the values that they name."""

    def __init__(self, typed: TypedExpression, *, is_cheap: bool) -> None:
        self._typed = typed
        self._is_cheap = is_cheap
        self.names: dict[str, Any] = {}
        self._known: dict[int, str] = {}
        self._temporaries = 0

    def name(self, value: object) -> str:
        """Returns a name for a value. Equal names mean the same object, which `names` keeps alive."""
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = f"k{len(self.names)}"
            self.names[known] = value
        return known

    def require_cheap(self) -> None:
        """Raises unless the whole expression is known to be cheap."""
        if not self._is_cheap:
            raise TooComplex("this may take long")

    def allow_call(self, node: Call) -> None:
        """Raises for calls that could take long, or make large values, unless the expression is known to be cheap."""
        is_growing = node.function == "_+_" and self.type_of(node).kind is not TypeKind.INT
        if node.function not in _MOMENTARY or is_growing:
            self.require_cheap()

    def temporary(self) -> str:
        self._temporaries += 1
        return f"t{self._temporaries}"

    def type_of(self, node: Expression) -> Type:
        return self._typed.types.get(node.id, types.DYN)

    def overloads_of(self, node: Expression) -> tuple[str, ...]:
        return self._typed.overloads.get(node.id, ())

    def expression(
        self, node: Expression, text: str, *parts: SourceFragment, is_device: bool = False, is_assigning: bool = False
    ) -> SourceFragment:
        """Makes a fragment from others."""
        made = SourceFragment(text, self.type_of(node))
        made.depth = 1 + max([part.depth for part in parts], default=0)
        made.is_device = is_device
        made.is_assigning = is_assigning or any(part.is_assigning for part in parts)
        if made.depth > DEPTH_MAX or len(text) > LENGTH_MAX:
            raise TooComplex("the expression is nested too deeply or too long")
        return made

    def constant(self, node: Expression, value: Value) -> SourceFragment:
        return self._known_source(value, self.type_of(node))

    def key(self, value: Value) -> SourceFragment:
        """A constant without a node of its own."""
        return self._known_source(value, types.DYN)

    def _known_source(self, value: Value, static_type: Type) -> SourceFragment:
        made = SourceFragment(self._constant_text(value), _LITERAL_TYPES.get(value.__class__, static_type))
        made.constant = value
        return made

    def _constant_text(self, value: Value) -> str:
        kind = value.__class__
        if kind is str or kind is bool or value is None:
            return repr(value)
        if kind is int or (kind is float and math.isfinite(value)):
            return f"({value!r})"
        return self.name(value)

    def value_text(self, source: SourceFragment) -> str:
        """Returns the text for the value itself: the device is converted to a map."""
        return "device.as_map" if source.is_device else source.text

    def bool_text(self, source: SourceFragment) -> str:
        """Returns the text of a bool; it fails for any other value."""
        if source.kind is TypeKind.BOOL:
            return source.text
        temporary = self.temporary()
        fail = self.name(fail_over)
        return f"({temporary} if ({temporary} := {source.text}).__class__ is bool else {fail}())"

    def call(self, node: Call, function: Function, arguments: Sequence[SourceFragment]) -> SourceFragment:
        """Returns a call of a library function, or its result if all arguments are constant."""
        constants = [argument.constant for argument in arguments]
        if function.name in _FOLDED and all(constant is not MISSING for constant in constants):
            try:
                return self.constant(node, dispatcher(function)(*constants))
            except CelEvaluationError:
                # The call fails whenever it is reached, and the evaluator reports the error.
                pass
        listed = ", ".join(self.value_text(argument) for argument in arguments)
        return self.expression(node, f"{self.name(dispatcher(function))}({listed})", *arguments)


_LITERAL_TYPES: Final[dict[type, Type]] = {
    str: types.STRING,
    int: types.INT,
    bool: types.BOOL,
    float: types.DOUBLE,
}

_DISPATCHERS: Final[dict[str, Dispatch]] = {}


def dispatcher(function: Function) -> Dispatch:
    """Returns a plain function that runs the overload for its arguments."""
    known = _DISPATCHERS.get(function.name)
    if known is None:
        known = _DISPATCHERS.setdefault(function.name, _make_dispatcher(function))
    return known


def _make_dispatcher(function: Function) -> Dispatch:
    def dispatch(*arguments: Value) -> Value:
        overload = function.overload_for(*arguments)
        if overload.is_metered:
            return overload.implementation(Meter(work_max=WORK_MAX), *arguments)
        return overload.implementation(*arguments)

    return dispatch


class FallBack(Exception):
    """The fast path cannot decide; the evaluator does."""


def fail_over() -> NoReturn:
    raise FallBack
