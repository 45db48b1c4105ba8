"""How libraries declare functions, and how a call finds the right one.

A function has overloads for different argument types. Which one runs is decided by the values at hand, not by the
types that the checker saw: attributes are dynamic, and Kubernetes decides the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from dralloc.cel.values import (
    DerivedQuantity,
    DomainMap,
    Value,
    no_such_overload,
)
from dralloc.primitives.quantity import Quantity

Implementation = Callable[..., Value]
Cost = Callable[..., int]
F = TypeVar("F", bound=Callable[..., Any])


class Anything:
    """As a parameter's class: every value fits."""


# Values that are of one type and have several classes.
_FAMILY: Final[dict[type, type]] = {DomainMap: dict, DerivedQuantity: Quantity}


@dataclass(frozen=True, slots=True)
class Overload:
    """One implementation. A metered one takes the evaluation's meter as its first argument. Most cost one, which is None."""

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
    """All overloads of one name."""

    name: str
    overloads: list[Overload] = field(default_factory=list)
    # What was found before, by the classes of the arguments.
    found: dict[tuple[type, ...], Overload] = field(default_factory=dict)

    def overload_for(self, *arguments: Value) -> Overload:
        """The overload for these values."""
        return self.found.get(tuple([argument.__class__ for argument in arguments])) or self._find(arguments)

    def _find(self, arguments: tuple[Value, ...]) -> Overload:
        classes = tuple([argument.__class__ for argument in arguments])
        found = next((overload for overload in self.overloads if overload.accepts(classes)), None)
        if found is None:
            raise no_such_overload(self.name, *arguments)
        self.found[classes] = found
        return found


class Library:
    """The functions that a module declares."""

    def __init__(self) -> None:
        self.overloads: list[tuple[str, Overload]] = []

    def define(self, name: str, *parameters: type, cost: Cost | None = None, metered: bool = False) -> Callable[[F], F]:
        """Declares the function below as an overload of `name`."""

        def declare(implementation: F) -> F:
            self.overloads.append((name, Overload(parameters, implementation, cost, metered)))
            return implementation

        return declare


def gather(libraries: Sequence[Library]) -> dict[str, Function]:
    """The functions of several libraries, by name."""
    functions: dict[str, Function] = {}
    for library in libraries:
        for name, overload in library.overloads:
            functions.setdefault(name, Function(name)).overloads.append(overload)
    return functions


# --- Costs ---------------------------------------------------------------------------------------------------


def tenths(size: int) -> int:
    """A tenth of a size, rounded up: the cost of walking over a text. In floating point, as Kubernetes does it."""
    return math.ceil(size * 0.1)


def text_cost(text: str | bytes, *_rest: Value) -> int:
    """The cost of reading a text once."""
    return tenths(len(text))


def text_rewriting_cost(text: str, *_rest: Value) -> int:
    """The cost of reading a text and building another."""
    return tenths(2 * len(text))


def size_of(value: Value) -> int:
    """What Kubernetes counts as the size of a value: of scalars it is one."""
    kind = value.__class__
    if kind is str or kind is bytes or kind is list or kind is dict or kind is DomainMap:
        return len(value)
    return getattr(value, "cost_size", 1)
