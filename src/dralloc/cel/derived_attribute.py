"""Derived attributes: expressions whose value a constraint compares as if it were an attribute of the device."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from dralloc.cel.compiler import CheckedExpression, compile_derived_attribute
from dralloc.cel.device import DeviceView
from dralloc.cel.errors import CelCompileError, CelEvaluationError
from dralloc.cel.evaluator import Evaluator
from dralloc.cel.values import Value, type_of
from dralloc.primitives.semver import Semver

CACHED_MAX: Final = 1024

Scalar = bool | int | str

_MEMBERS: Final = {
    bool: ("bool", "bools"),
    int: ("int", "ints"),
    str: ("string", "strings"),
    Semver: ("version", "versions"),
}


class AttributeValue(NamedTuple):
    """The one member of a device attribute that is set, in the API's spelling, and its value."""

    member: str
    value: Scalar | tuple[Scalar, ...]


class DerivedAttribute:
    """A compiled expression."""

    def __init__(self, checked: CheckedExpression) -> None:
        self.checked = checked
        self._evaluator = Evaluator(checked.typed)

    def evaluate(self, device: DeviceView) -> AttributeValue:
        """Returns the attribute for a device. Raises `CelEvaluationError`."""
        value = self._evaluator.evaluate(device.as_map)
        if isinstance(value, list):
            return _list_value(value)
        members = _MEMBERS.get(value.__class__)
        if members is None:
            raise CelEvaluationError(f"an attribute cannot be of type {type_of(value).name}")
        return AttributeValue(members[0], _scalar(value))


def compile_derived(expression: str) -> DerivedAttribute:
    """Returns the attribute of a stored claim. Raises `CelCompileError`."""
    compiled = _compile_cached(expression)
    if isinstance(compiled, CelCompileError):
        raise compiled.with_traceback(None)
    return compiled


@lru_cache(maxsize=CACHED_MAX)
def _compile_cached(expression: str) -> DerivedAttribute | CelCompileError:
    try:
        return DerivedAttribute(compile_derived_attribute(expression))
    except CelCompileError as fault:
        return fault


def _list_value(elements: list[Value]) -> AttributeValue:
    if not elements:
        return AttributeValue("strings", ())
    first = elements[0].__class__
    members = _MEMBERS.get(first)
    if members is None:
        raise CelEvaluationError(f"an attribute cannot be a list of type {type_of(elements[0]).name}")
    for position, element in enumerate(elements):
        if element.__class__ is not first:
            names = type_of(elements[0]).name, type_of(element).name
            raise CelEvaluationError(f"the list has a {names[0]} first, but a {names[1]} at {position}")
    return AttributeValue(members[1], tuple(map(_scalar, elements)))


def _scalar(value: Value) -> Scalar:
    if isinstance(value, Semver):
        return str(value)
    assert isinstance(value, bool | int | str), f"not the value of an attribute: {value!r}"
    return value
