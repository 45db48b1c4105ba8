"""How libraries define functions, and how calls are dispatched.

A function has overloads for different argument types. The overload is chosen by the runtime values, not by the
checker's types: attributes are dynamic, and Kubernetes does the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from dralloc.cel.errors import CelEvaluationError
from dralloc.cel.values import DerivedQuantity, DomainMap, Value, no_such_overload
from dralloc.primitives.quantity import Quantity

Implementation = Callable[..., Value]
Cost = Callable[..., int]
F = TypeVar("F", bound=Callable[..., Any])


class Anything:
    """As a parameter's class: matches every value."""


# Types whose values have several classes.
_FAMILY: Final[dict[type, type]] = {DomainMap: dict, DerivedQuantity: Quantity}


@dataclass(frozen=True, slots=True)
class Overload:
    """One implementation. A metered one takes the evaluation's meter as its first argument. A cost of None means one."""

    parameters: tuple[type, ...]
    implementation: Implementation
    cost: Cost | None
    is_metered: bool

    def accepts(self, classes: Sequence[type]) -> bool:
        return len(classes) == len(self.parameters) and all(
            parameter is Anything or _FAMILY.get(kind, kind) is parameter
            for parameter, kind in zip(self.parameters, classes, strict=True)
        )


@dataclass(slots=True, eq=False)
class Function:
    name: str
    overloads: list[Overload] = field(default_factory=list)
    # Cached overloads by the classes of the arguments.
    found: dict[tuple[type, ...], Overload] = field(default_factory=dict)

    def overload_for(self, *arguments: Value) -> Overload:
        return self.found.get(tuple([argument.__class__ for argument in arguments])) or self._find(arguments)

    def _find(self, arguments: tuple[Value, ...]) -> Overload:
        classes = tuple([argument.__class__ for argument in arguments])
        found = next((overload for overload in self.overloads if overload.accepts(classes)), None)
        if found is None:
            raise no_such_overload(self.name, *arguments)
        self.found[classes] = found
        return found


class Library:
    """The functions that a module defines."""

    def __init__(self) -> None:
        self.overloads: list[tuple[str, Overload]] = []

    def define(self, name: str, *parameters: type, cost: Cost | None = None, metered: bool = False) -> Callable[[F], F]:
        """Defines the decorated function as an overload of `name`."""

        def declare(implementation: F) -> F:
            self.overloads.append((name, Overload(parameters, implementation, cost, metered)))
            return implementation

        return declare


def accepted_by(conversion: Callable[..., Value]) -> Callable[..., bool]:
    """Returns the predicate that is true for the arguments that the conversion accepts."""

    def is_accepted(*arguments: Value) -> bool:
        try:
            conversion(*arguments)
        except CelEvaluationError:
            return False
        return True

    return is_accepted


def gather(libraries: Sequence[Library]) -> dict[str, Function]:
    """Merges the functions of several libraries, by name."""
    functions: dict[str, Function] = {}
    for library in libraries:
        for name, overload in library.overloads:
            functions.setdefault(name, Function(name)).overloads.append(overload)
    return functions


def tenths(size: int) -> int:
    """Returns a tenth of a size, rounded up: the cost of traversing a text. In floating point, as in Kubernetes."""
    return math.ceil(size * 0.1)


def text_cost(text: str | bytes, *_rest: Value) -> int:
    """The cost of reading a text once."""
    return tenths(len(text))


def text_rewriting_cost(text: str, *_rest: Value) -> int:
    """The cost of reading a text and building another."""
    return tenths(2 * len(text))


def size_of(value: Value) -> int:
    """Returns the size that Kubernetes counts for a value: one for scalars."""
    kind = value.__class__
    if kind is str or kind is bytes or kind is list or kind is dict or kind is DomainMap:
        return len(value)
    return getattr(value, "cost_size", 1)
